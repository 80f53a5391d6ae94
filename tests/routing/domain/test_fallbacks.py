"""Which models may answer a request instead, and in which order."""

from __future__ import annotations

from typing import Any

import pytest

from routing.domain.choose import Route
from routing.domain.endpoints import CHAT, EMBEDDINGS
from routing.domain.fallbacks import order, renamed
from routing.domain.openai import Ask
from routing.domain.snapshot import ModelEntry
from routing.domain.tenancy import Holder


def routes(**more: dict[str, Any]) -> dict[str, Route]:
    entries = {
        "a": {"fallbacks": ("b", "gone", "off", "vectors", "a", "c"), "context": 100},
        "b": {"context": 1000},
        "c": {},
        "off": {"enabled": False},
        "vectors": {"embeddings": True},
    } | more
    return {name: Route(model=ModelEntry(name=name, created=1, **fields)) for name, fields in entries.items()}  # type: ignore[arg-type]


def ordered(model: str = "a", prompt: int = 10, endpoint: str = CHAT, models: frozenset[str] | None = None) -> str:
    key = Holder(key_id="key_1", prefix="", project_id="proj_1", models=models)
    return " ".join(order(routes(), key, Ask(model=model), endpoint=endpoint, prompt=prompt, now=0.0))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, "a b c"),
        ({"model": "b"}, "b"),
        ({"model": "unknown"}, "unknown"),
        ({"prompt": 101}, "b c"),
        ({"prompt": 1001}, "c"),
        ({"models": frozenset({"a", "c"})}, "a c"),
        ({"models": frozenset({"a"}), "prompt": 101}, "a"),
        ({"models": frozenset({"b"})}, "a"),
        ({"endpoint": EMBEDDINGS}, "a vectors"),
    ],
)
def test_fallbacks_in_their_order_without_those_that_cannot(given: dict[str, Any], expected: str) -> None:
    assert ordered(**given) == expected


def test_only_the_name_changes_in_the_body() -> None:
    ask, body = renamed(Ask(model="a", stream=True), b'{ "x": 1, "model": "a" , "y": [2]}', "org/b")
    assert (ask.model, ask.stream) == ("org/b", True)
    assert body == b'{ "x": 1, "model": "org/b" , "y": [2]}'
