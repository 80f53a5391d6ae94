"""Structured logs: one JSON object a line, or readable lines on a terminal. Secrets are never passed in.

Call `setup(process="gateway", config=...)` once per process; log with `log.info("event", extra={"f": {...}})`
or through `event(logger, "replica_ready", replica_id=...)`, which is the same and reads better.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import orjson

from llmgw_site.lib.unblocked import Unblocked


def event(logger: logging.Logger, name: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """Log the event `name` (snake_case) with `fields`; fields whose value is None are left out."""
    if logger.isEnabledFor(level):
        logger.log(level, name, extra={"f": {k: v for k, v in fields.items() if v is not None}})


class JsonFormatter(logging.Formatter):
    """A line: ts (Unix seconds), level, process, logger, event, then the fields."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": round(record.created, 3),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "event": record.getMessage(),
        }
        line.update(getattr(record, "f", {}))
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class TextFormatter(logging.Formatter):
    """A line for people: time, level, process, event, key=value."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = " ".join(f"{k}={v}" for k, v in getattr(record, "f", {}).items())
        line = f"{stamp} {record.levelname[0]} {self._process} {record.getMessage()} {fields}".rstrip()
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def setup(*, process: str, level: str = "info", style: str = "json", stream: Unblocked | None = None) -> None:
    """Send this process's logs to standard error, as `json` or `text` lines at `level` and above; to `stream` where nobody
    may wait for whoever reads them."""
    handler: logging.Handler = logging.StreamHandler(sys.stderr if stream is None else stream)
    handler.setFormatter(JsonFormatter(process) if style == "json" else TextFormatter(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # Celery says three lines for each tick of the reconciler; failures of tasks are errors and stay
    for chatty in ("httpx", "httpcore", "uvicorn.access", "celery"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def quiet() -> None:
    """Keep libraries from logging what is ours to say (Django's request lines, Celery's banner)."""
    for chatty in ("django.request", "django.channels.server", "daphne"):
        logging.getLogger(chatty).setLevel(logging.ERROR)
