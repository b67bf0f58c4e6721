"""Fetches URLs one after the other over one connection: pages.py [--insecure] requests|httpx|aiohttp URL...

Prints the status and the body of each, or what the library says instead.
"""

import asyncio
import sys
import warnings

arguments = sys.argv[1:]
verify = arguments[0] != "--insecure"
library, *urls = arguments if verify else arguments[1:]
if not verify:
    warnings.simplefilter("ignore")


def with_requests():
    import requests

    session = requests.Session()
    if not verify:
        session.verify = False
    for url in urls:
        try:
            answer = session.get(url, timeout=60)
            print(answer.status_code, answer.text)
        except requests.RequestException as error:
            print(error)


def with_httpx():
    import httpx

    with httpx.Client(verify=verify, timeout=60) as client:
        for url in urls:
            try:
                answer = client.get(url)
                print(answer.status_code, answer.text)
            except httpx.HTTPError as error:
                print(error)


async def with_aiohttp():
    import aiohttp

    connector = aiohttp.TCPConnector(ssl=verify)
    async with aiohttp.ClientSession(connector=connector, trust_env=True) as session:
        for url in urls:
            try:
                async with session.get(url) as answer:
                    print(answer.status, await answer.text())
            except aiohttp.ClientError as error:
                print(error)


if library == "aiohttp":
    asyncio.run(with_aiohttp())
else:
    {"requests": with_requests, "httpx": with_httpx}[library]()
