"""Fetches URLs one after the other over one connection: pages.py requests|httpx|aiohttp URL..."""

import asyncio
import os
import sys
import warnings

library, urls = sys.argv[1], sys.argv[2:]
warnings.simplefilter("ignore")  # the test's certificate is nobody's


def with_requests():
    import requests

    session = requests.Session()
    session.verify = False
    for url in urls:
        session.get(url, timeout=60).raise_for_status()


def with_httpx():
    import httpx

    with httpx.Client(verify=False, timeout=60) as client:
        for url in urls:
            client.get(url).raise_for_status()


async def with_aiohttp():
    import aiohttp

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
        for url in urls:
            async with session.get(url, proxy=os.environ["https_proxy"]) as response:
                await response.read()


if library == "aiohttp":
    asyncio.run(with_aiohttp())
else:
    {"requests": with_requests, "httpx": with_httpx}[library]()
