"""The list of models as Anthropic's clients want it, in pages.

Source: Anthropic's API reference (models: list, get).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

import orjson

from routing.domain.bodies import refused
from routing.domain.openai import SHOWN_NAME
from routing.domain.snapshot import ModelEntry

USUAL, MOST = 20, 1000
"""Models of a page."""


def described(entry: ModelEntry) -> dict[str, Any]:
    """A model or an adapter."""
    known = {"max_input_tokens": entry.context} if entry.context else {}
    created = datetime.fromtimestamp(entry.created, tz=UTC)
    return {
        "type": "model",
        "id": entry.name,
        "display_name": entry.name,
        "created_at": f"{created:%Y-%m-%dT%H:%M:%SZ}",
        "lifecycle": "active",
        **known,
    }


def page(entries: Sequence[ModelEntry], query: bytes) -> bytes:
    """The newest first, `limit` of them, behind `after_id` or before `before_id`. Raises Refused INVALID `invalid_value`."""
    asked = dict(parse_qsl(query.decode("latin-1"), encoding="utf-8", errors="replace"))
    listed = sorted(entries, key=lambda entry: (-entry.created, entry.name))
    most = _limit(asked)
    start, end = 0, len(listed)
    if "after_id" in asked:
        start = _place(listed, asked, "after_id") + 1
    if "before_id" in asked:
        end = max(start, _place(listed, asked, "before_id"))
    backwards = "before_id" in asked and "after_id" not in asked
    shown = listed[max(start, end - most) : end] if backwards else listed[start : min(end, start + most)]
    return orjson.dumps(
        {
            "data": [described(entry) for entry in shown],
            "has_more": end - start > most,
            "first_id": shown[0].name if shown else None,
            "last_id": shown[-1].name if shown else None,
        }
    )


def _limit(asked: Mapping[str, str]) -> int:
    text = asked.get("limit", str(USUAL))
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST)) and 1 <= int(text) <= MOST):
        raise refused("invalid_value", f"'limit' must be a whole number from 1 to {MOST}.", "limit")
    return int(text)


def _place(listed: Sequence[ModelEntry], asked: Mapping[str, str], name: str) -> int:
    found = next((number for number, entry in enumerate(listed) if entry.name == asked[name]), None)
    if found is None:
        raise refused("invalid_value", f"'{name}' names no model of the list: '{asked[name][:SHOWN_NAME]}'.", name)
    return found
