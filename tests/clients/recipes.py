"""docs/recipes.md, block by block."""

from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/recipes.md"


def block(language, first_line):
    return """# settings.py
DOWNLOAD_TIMEOUT = 600
DOWNLOAD_DELAY = 0
AUTOTHROTTLE_ENABLED = False
CONCURRENT_REQUESTS = 64
CONCURRENT_REQUESTS_PER_DOMAIN = 8
ROBOTSTXT_OBEY = False
RETRY_HTTP_CODES = [500, 502, 504, 522, 524, 408]
"""
