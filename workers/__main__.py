"""`python -m workers worker ...`: Celery's command line for our app. `celery -A` would import it from the current folder first."""

from __future__ import annotations

import sys

from workers.celery import app

if __name__ == "__main__":
    sys.exit(app.start(sys.argv[1:]))
