"""A Scrapy spider that follows every link of the hosts in SHOPS. Prints the status and the URL of each page it gets."""

import os

import scrapy


class ShopSpider(scrapy.Spider):
    name = "shop"
    # The spider must see every response, and only curtsy may retry.
    custom_settings = {"HTTPERROR_ALLOW_ALL": True, "RETRY_ENABLED": False, "LOG_LEVEL": "ERROR",
                       "TELNETCONSOLE_ENABLED": False}

    async def start(self):
        for url in os.environ["SHOPS"].split():
            yield scrapy.Request(url, errback=self.failed)

    def parse(self, response):
        print(response.status, response.url, flush=True)
        yield from response.follow_all(css="a", errback=self.failed)

    def failed(self, failure):
        print("failed", failure.request.url, failure.value, flush=True)
