#!/usr/bin/env bash
# Style, types, import contracts, migrations, OpenAPI schema. Fast things first; each says what it looked at.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
export LLMGW_DATA
LLMGW_DATA=$(mktemp -d)
trap 'rm -rf "$LLMGW_DATA"' EXIT
echo "==> style"; "$bin/ruff" check .; "$bin/ruff" format --check .
echo "==> import contracts"; "$bin/lint-imports"
echo "==> types"; "$bin/mypy"
echo "==> system checks and migrations"; "$bin/python" manage.py check; "$bin/python" manage.py makemigrations --check --dry-run
echo "==> OpenAPI schema"
"$bin/python" manage.py spectacular --fail-on-warn --validate --file "$LLMGW_DATA/openapi.yaml"
diff -u docs/openapi.yaml "$LLMGW_DATA/openapi.yaml" || { echo "docs/openapi.yaml is not what the code says: make openapi"; exit 1; }
echo "lint: all well"
