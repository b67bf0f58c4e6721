"""A Scrapy spider that fetches the URLs in PAGES one after the other."""

import os

import scrapy


class PagesSpider(scrapy.Spider):
    name = "pages"
    custom_settings = {"CONCURRENT_REQUESTS": 1, "LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False}

    async def start(self):
        for url in os.environ["PAGES"].split():
            yield scrapy.Request(url)

    def parse(self, response):
        pass
