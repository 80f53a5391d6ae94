#!/usr/bin/env bash
# Bring .venv to exactly what a lock says, with the project itself and the quickstart model beside it.
set -euo pipefail
cd "$(dirname "$0")/.."
lock=$1
echo "==> installing $lock"
export VIRTUAL_ENV=$PWD/.venv
uv=.venv/bin/uv
# sync removes what the lock does not name; uv itself is kept by naming it
cat "$lock" requirements/uv.txt requirements/quickstart.txt > .venv/.wanted.txt
"$uv" pip sync --compile-bytecode --require-hashes .venv/.wanted.txt
"$uv" pip install --quiet --no-deps --no-build-isolation --editable .
