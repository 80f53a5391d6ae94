"""One log line per request: logger `access`, event `request`. Never a prompt, never a key beyond its prefix.

It is on the hot path, so the JSON style is rendered here in one go and written with one system call, in the format of
`llmgw_site.lib.logs.JsonFormatter`; the text style goes through logging. Neither waits for whoever reads it.
"""

from __future__ import annotations

import logging
from typing import Any

import orjson

from llmgw_site.lib.config import Config
from llmgw_site.lib.logs import event
from llmgw_site.lib.unblocked import Unblocked

log = logging.getLogger("access")

_HEAD = {"level": "info", "process": "gateway", "logger": "access", "event": "request"}


class AccessLog:
    """Writes to `out`."""

    def __init__(self, config: Config, out: Unblocked) -> None:
        self._on = config.access_log and config.log_level in ("debug", "info")
        self._json = config.log_style == "json"
        self._out = out

    def write(self, now: float, fields: dict[str, Any]) -> None:
        """One line; fields that are None are left out by the text style and null-free in JSON."""
        if not self._on:
            return
        if not self._json:
            event(log, "request", **fields)
            return
        line = {"ts": round(now, 3), **_HEAD}
        line.update({name: value for name, value in fields.items() if value is not None})
        self._out.take(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
