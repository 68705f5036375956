#!/bin/sh
# Install Debian's Chromium and a font, which the tests of the pages need. For `make test`.
set -eu

if ! command -v apt-get >/dev/null || [ "$(id -u)" != 0 ]; then
    echo "The tests of the pages need Chromium as the command \`chromium\`: please install it." >&2
    exit 1
fi
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null
