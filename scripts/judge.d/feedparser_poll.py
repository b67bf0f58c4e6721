"""A feed reader with feedparser: polls a feed three times and does not keep its validators."""

import feedparser

for _ in range(3):
    feed = feedparser.parse("http://feed.test/feed.xml")
    for entry in feed.entries:
        feedparser.parse(entry.link)
