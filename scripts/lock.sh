#!/usr/bin/env bash
# Write the locks anew from pyproject.toml: exact versions with hashes, no index and no address in them.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=${UV:-.venv/bin/uv}
options=(--universal --python-version 3.11 --generate-hashes --no-header --no-annotate --no-emit-index-url --quiet)
run=(--extra controller --extra llama --extra tracing --group build)
"$uv" pip compile pyproject.toml "${run[@]}" "${options[@]}" --output-file requirements/run.txt
"$uv" pip compile pyproject.toml "${run[@]}" --group dev "${options[@]}" --constraints requirements/run.txt --output-file requirements/dev.txt
"$uv" pip compile requirements/quickstart.in --no-deps "${options[@]}" --output-file requirements/quickstart.txt
