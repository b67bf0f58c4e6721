"""A Scrapy spider that follows every link; everything else is Scrapy's default."""

import os

import scrapy
from scrapy.linkextractors import LinkExtractor


class JudgedSpider(scrapy.Spider):
    name = "judged"
    custom_settings = {"TELNETCONSOLE_ENABLED": False}

    async def start(self):
        yield scrapy.Request(os.environ.get("SEED", "http://news.test/"))

    def parse(self, response):
        if b"html" in response.headers.get("Content-Type", b""):
            yield from response.follow_all(LinkExtractor().extract_links(response))
