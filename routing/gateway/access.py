"""One log line per request: logger `access`, event `request`. Never a prompt, never a key beyond its prefix.

It is on the hot path, so the JSON style is rendered here, in the format of `llmgw_site.lib.logs.JsonFormatter`, and what came
within LATE seconds in one go: done alone, a line costs three times as much. The text style goes through logging. Neither
waits for whoever reads it.
"""

from __future__ import annotations

import asyncio
import json
import logging
from itertools import compress, repeat
from operator import is_not
from typing import Any

import orjson

from llmgw_site.lib.config import Config
from llmgw_site.lib.logs import event
from llmgw_site.lib.unblocked import PIPE_BUF, Unblocked

log = logging.getLogger("access")

_HEAD = {"level": "info", "process": "gateway", "logger": "access", "event": "request"}


LATE = 0.05
"""Seconds by which a line may come later than the end of its request."""


class AccessLog:
    """Writes to `out`. `flush` before the end."""

    def __init__(self, config: Config, out: Unblocked) -> None:
        self._on = config.access_log and config.log_level in ("debug", "info")
        self._json = config.log_style == "json"
        self._out = out
        self._waiting: list[tuple[float, dict[str, Any]]] = []

    def write(self, now: float, fields: dict[str, Any]) -> None:
        """One line; fields that are None are left out by the text style and null-free in JSON."""
        if not self._on:
            return
        if not self._json:
            event(log, "request", **fields)
            return
        if not self._waiting:
            asyncio.get_running_loop().call_later(LATE, self.flush)
        self._waiting.append((now, fields))

    def flush(self) -> None:
        """Write what waits."""
        waiting, self._waiting = self._waiting, []
        some = b""  # whole lines, as many as a pipe takes at once
        for at, fields in waiting:
            line = {"ts": round(at, 3), **_HEAD}
            line.update(compress(fields.items(), map(is_not, fields.values(), repeat(None))))  # those that are not None
            text = _rendered(line)
            if some and len(some) + len(text) > PIPE_BUF:
                self._out.take(some)
                some = b""
            some += text
        if some:
            self._out.take(some)


def _rendered(line: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # half a surrogate pair, a number beyond 64 bits; whatever it is, its neighbours are written, too
        return f"{json.dumps(line, default=str)}\n".encode()
