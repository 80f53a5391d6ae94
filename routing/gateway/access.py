"""One log line per request: logger `access`, event `request`. Never a prompt, never a key beyond its prefix.

It is on the hot path, so the JSON style is rendered here in one go and written with one system call, in the format of
`llmgw_site.lib.logs.JsonFormatter`; the text style goes through logging.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import orjson

from llmgw_site.lib.config import Config
from llmgw_site.lib.logs import event
from routing.domain.records import UsageRecord

log = logging.getLogger("access")

_LONGEST = 200
"""Characters of a name that a client made up."""
_HEAD = {"level": "info", "process": "gateway", "logger": "access", "event": "request"}


def fields_of(record: UsageRecord, *, method: str, model: str, key: str, adapter: str) -> dict[str, Any]:
    """All that is known of a request that is over; None: not known, or as it mostly is. `key` is its key's first characters,
    `model` the catalogue's name of what was asked for."""
    return {
        "request_id": record.request_id,
        "key": key or None,
        "project": record.project_id or None,
        "method": method,
        "endpoint": record.endpoint,
        "model": model or None,
        "model_asked": record.model_asked[:_LONGEST] if record.model_asked != model and record.model_asked else None,
        "adapter": adapter or None,
        "replica": record.replica_id or None,
        "node": record.node_id or None,
        "status": record.status,
        "code": record.code or None,
        "outcome": record.outcome,
        "client_gone": record.client_gone or None,
        "finish_reason": record.finish_reason or None,
        "stream": record.stream,
        "queue_s": record.queue_s,
        "first_token_s": record.first_token_s,
        "total_s": record.total_s,
        "tokens_in": record.prompt_tokens,
        "tokens_out": record.completion_tokens,
        "tokens_cached": record.cached_tokens,
        "tokens_reasoning": record.reasoning_tokens,
        "estimated": record.estimated or None,
        "cost": record.cost,
        "user": record.user or None,
    }


class AccessLog:
    """Writes to file descriptor `fd` (standard error); a line that it does not take is dropped."""

    def __init__(self, config: Config, *, fd: int = 2) -> None:
        self._on = config.access_log and config.log_level in ("debug", "info")
        self._json = config.log_style == "json"
        self._fd = fd

    def write(self, now: float, fields: dict[str, Any]) -> None:
        """One line; fields that are None are left out by the text style and null-free in JSON."""
        if not self._on:
            return
        if not self._json:
            event(log, "request", **fields)
            return
        line = {"ts": round(now, 3), **_HEAD}
        line.update({name: value for name, value in fields.items() if value is not None})
        try:
            os.write(self._fd, orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
        except OSError:  # a closed or full pipe: chat goes on
            pass
