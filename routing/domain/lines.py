"""A request that is over as one line: of the access log, and of whoever follows it later. Pure."""

from __future__ import annotations

from typing import Any

from routing.domain.records import UsageRecord

_LONGEST = 200
"""Characters of a name that a client made up."""


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
        "alias_target": record.alias_target if record.alias_target not in ("", model) else None,
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
        "schedule_s": record.schedule_s or None,
        "first_token_s": record.first_token_s,
        "total_s": record.total_s,
        "tokens_in": record.prompt_tokens,
        "tokens_out": record.completion_tokens,
        "tokens_cached": record.cached_tokens,
        "tokens_reasoning": record.reasoning_tokens,
        "audio_s": record.audio_seconds,
        "estimated": record.estimated or None,
        "cost": record.cost,
        "user": record.user or None,
    }
