"""What a newer version of the program keeps is read by an older one: of each value that a column keeps, fields that nobody
knows yet are passed over."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest

from catalog.domain import adapters, facts
from catalog.domain.caches import Caches
from catalog.domain.manifests import ManifestFile
from catalog.domain.repository import Format
from cluster.domain.bench import Level, level
from cluster.domain.fetching import Fetch
from cluster.selectors.mirror import fetch_rows, fetches_of
from workers.tasks.serve_fetched import _files

MODEL = facts.ModelFacts(
    kind="model",
    layers=4,
    split=facts.Split(number=1, count=2),
    caches=(Caches(layers=4, key=8, value=8),),
)
FILE = ManifestFile(path="m.gguf", size=3, sha256="0" * 64)
KEPT: list[tuple[str, Any, Callable[[Any], Any], Any]] = [
    ("a model's facts", MODEL.as_dict(), facts.facts_from_dict, MODEL),
    ("an adapter's facts", {"format": "gguf", "rank": 8}, adapters.facts_from_dict, adapters.AdapterFacts(format=Format.GGUF, rank=8)),
    ("a node's fetches", fetch_rows([Fetch(version="ver_1", there=3)]), fetches_of, (Fetch(version="ver_1", there=3),)),
    ("a job's plan", {"files": [asdict(FILE)]}, _files, (FILE,)),
    ("a tried load", {"at_once": 1, "tps": 2.0, "first_s": 0.5, "requests": 3}, level, Level(at_once=1, tps=2.0, first_s=0.5, requests=3)),
]  # fmt: skip


def newer(value: Any) -> Any:
    """The same with a field in each object that this version does not have; an empty one is no object, but names by which
    nothing stands."""
    if isinstance(value, dict):
        return value and {**{key: newer(item) for key, item in value.items()}, "of_a_newer_version": 1}
    return [newer(item) for item in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize(("kept", "read", "meant"), [case[1:] for case in KEPT], ids=[case[0] for case in KEPT])
def test_what_a_newer_version_kept_is_read(kept: Any, read: Callable[[Any], Any], meant: Any) -> None:
    assert read(kept) == meant
    assert read(newer(kept)) == meant
