"""A Scrapy spider that fetches the URLs in PAGES one after the other and prints what it gets."""

import os

import scrapy


class PagesSpider(scrapy.Spider):
    name = "pages"
    custom_settings = {
        "CONCURRENT_REQUESTS": 1, "LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False, "HTTPERROR_ALLOW_ALL": True,
    }

    async def start(self):
        for url in os.environ["PAGES"].split():
            yield scrapy.Request(url, errback=lambda failure: print(failure.value))

    def parse(self, response):
        print(response.status, response.text)
