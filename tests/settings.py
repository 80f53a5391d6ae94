"""Django's settings for the tests: the product's own, on a data folder that lives as long as the test process.

Imported by pytest-django before any conftest, so the environment is put in order here: nothing of the developer's
`LLMGW_*` reaches a test, and each pytest-xdist worker has its own folder. SQLite by default; where DATABASE_URL is set
(`python -m tests.postgres -- pytest ...` does it) the same tests run on PostgreSQL.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile

for _name in [name for name in os.environ if name.startswith("LLMGW_")]:
    del os.environ[_name]
TEST_DATA = tempfile.mkdtemp(prefix="llmgw-test-")
"""The data folder; short, because unix socket paths below it are bounded to 107 bytes."""
os.environ["LLMGW_DATA"] = TEST_DATA
_owner = os.getpid()


@atexit.register
def _remove() -> None:
    if os.getpid() == _owner:  # not in a forked child
        shutil.rmtree(TEST_DATA, ignore_errors=True)


from llmgw_site.settings import *  # noqa: E402, F403 - after the environment is in order
from llmgw_site.settings import DATABASES  # noqa: E402

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # signing in costs milliseconds, not a second
WHITENOISE_AUTOREFRESH = True  # look static files up when asked for; listing them all costs each test client 100 ms
CELERY_TASK_PUBLISH_RETRY = False  # without a broker a wake-up is lost at once; the rows are the truth
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["TEST"] = {"NAME": f"{TEST_DATA}/test.sqlite3"}  # a file, as in production: WAL, threads
