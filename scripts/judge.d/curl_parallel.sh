#!/bin/sh
# Downloads every page of the sitemap with curl, as many as it likes at the same time.
curl -sS "$1sitemap.txt" | sed 's|.*|url = "&"\noutput = /dev/null|' | curl -sS --parallel --config -
