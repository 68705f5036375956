#!/bin/sh
# Write constraints.txt: the newest versions that fit together, of everything that any of our environments holds.
set -eu

python="${1:-python3}"
environment="$(mktemp -d)"
trap 'rm -rf "$environment"' EXIT

"$python" -m venv "$environment"
"$environment/bin/python" -m pip install --quiet --upgrade pip setuptools
"$environment/bin/python" -m pip install --quiet --no-build-isolation --editable '.[dev,profiler]' torch==2.13.0
{
    echo "# Every version of every environment, written by \`make lock\`."
    # A build of torch ends in +cpu or +cu…, which another machine may not have.
    "$environment/bin/python" -m pip freeze --all --exclude-editable | sed 's/+[a-z0-9.]*$//' | LC_ALL=C sort -f
} >constraints.txt.new
mv constraints.txt.new constraints.txt
