"""A crawler as people write it first: requests in a loop, one page after the other, every link once."""

import re
import sys

import requests

todo, seen = [sys.argv[1]], set()
session = requests.Session()
while todo:
    url = todo.pop(0)
    if url in seen:
        continue
    seen.add(url)
    answer = session.get(url, timeout=30)
    todo += re.findall(r'href="(http[^"]+)"', answer.text)
