"""What engines say of their model in their own list of models. Sources: llama.cpp's server README, vLLM's API server."""

from __future__ import annotations

from typing import Any

import orjson

MOST_FACTS = 40
"""Entries of an engine's `meta` that are kept."""


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
