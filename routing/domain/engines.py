"""What engines say of themselves, read from their own endpoints. Sources: llama.cpp's server README, vLLM's metrics."""

from __future__ import annotations

import re
from typing import Any

import orjson

_REQUESTS = re.compile(
    rb"^(?:llamacpp:requests_(?:processing|deferred)|vllm:num_requests_(?:running|waiting))(?:\{[^}\n]*\})? ([0-9.e+]+)$",
    re.MULTILINE,
)
MOST_FACTS = 40
"""Entries of an engine's `meta` that are kept."""


def requests_in(metrics: bytes) -> int | None:
    """Requests that run and wait in the engine, over all of its ranks, by its /metrics; None: it does not say."""
    found = _REQUESTS.findall(metrics)
    try:
        return int(sum(float(value) for value in found)) if found else None
    except (ValueError, OverflowError):
        return None


def facts_in(models: bytes) -> dict[str, Any]:
    """What the engine's /v1/models says of its model: numbers and switches only, since texts name paths of the machine.

    `meta` is llama.cpp's (parameters, size, vocabulary, trained context), `max_model_len` vLLM's. Raises ValueError.
    """
    try:
        first = orjson.loads(models)["data"][0]
        meta, longest = first.get("meta"), first.get("max_model_len")
    except (orjson.JSONDecodeError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"no list of models: {error}") from None
    facts: dict[str, Any] = {}
    if isinstance(meta, dict):
        kept = [(name[:64], value) for name, value in meta.items() if isinstance(value, (int, float))]
        if kept:
            facts["meta"] = dict(kept[:MOST_FACTS])
    if type(longest) is int:
        facts["max_model_len"] = longest
    return facts
