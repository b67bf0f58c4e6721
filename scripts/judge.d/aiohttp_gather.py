"""A crawler with aiohttp: all links of one level at the same time."""

import asyncio
import re
import sys

import aiohttp


async def links(session, url):
    async with session.get(url) as answer:
        return re.findall(r'href="(http[^"]+)"', await answer.text())


async def crawl(seed):
    level, seen = {seed}, set()
    async with aiohttp.ClientSession(trust_env=True) as session:
        while level:
            seen |= level
            found = await asyncio.gather(*(links(session, url) for url in level))
            level = {link for page in found for link in page} - seen


asyncio.run(crawl(sys.argv[1]))
