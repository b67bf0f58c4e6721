"""Fetches many pages at once over a few kept connections: crowd.py requests|httpx|aiohttp AT_ONCE URL...

Prints the status and the body of each, or what the library says instead.
"""

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor

library, at_once, *urls = sys.argv[1:]
at_once = int(at_once)


def with_requests():
    import requests

    session = requests.Session()
    session.mount("https://", requests.adapters.HTTPAdapter(pool_maxsize=at_once))

    def get(url):
        try:
            answer = session.get(url, timeout=60)
            return f"{answer.status_code} {answer.text}"
        except requests.RequestException as error:
            return repr(error)

    with ThreadPoolExecutor(at_once) as pool:
        print(*pool.map(get, urls), sep="\n")


async def with_httpx():
    import httpx

    async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=at_once)) as client:
        async def get(url):
            try:
                answer = await client.get(url)
                return f"{answer.status_code} {answer.text}"
            except httpx.HTTPError as error:
                return repr(error)

        print(*await asyncio.gather(*map(get, urls)), sep="\n")


async def with_aiohttp():
    import aiohttp

    connector = aiohttp.TCPConnector(limit=at_once)
    async with aiohttp.ClientSession(connector=connector, trust_env=True) as session:
        async def get(url):
            try:
                async with session.get(url) as answer:
                    return f"{answer.status} {await answer.text()}"
            except aiohttp.ClientError as error:
                return repr(error)

        print(*await asyncio.gather(*map(get, urls)), sep="\n")


if library == "requests":
    with_requests()
else:
    asyncio.run({"httpx": with_httpx, "aiohttp": with_aiohttp}[library]())
