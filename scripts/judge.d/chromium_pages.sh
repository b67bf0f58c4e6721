#!/bin/sh
# A script around a headless browser: opens every page of the sitemap, one after the other.
curl -sS "$1sitemap.txt" | while read -r url; do
    chromium --headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update \
        --user-data-dir="$2" --dump-dom "$url" >/dev/null 2>&1
done
