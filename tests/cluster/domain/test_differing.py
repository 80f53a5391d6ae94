"""cluster.domain.differing: what a serve job asks for that the model of that name has not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cluster.domain.differing import Have, differences, refuse
from llmgw_site.lib.errors import Refused

L4 = "NVIDIA L4"
CPU: dict[str, Any] = {
    "name": "default",
    "context": 4096,
    "slots": 2,
    "gpus_per_node": 0,
    "tp": 0,
    "card_classes": [],
    "args": [],
}
CARDS = {**CPU, "gpus_per_node": 2, "card_classes": [L4]}
HAVE = Have(name="m", replicas=2, max_replicas=None, description="d", profiles=(CPU,), trained=8192)
ON_CARDS = replace(HAVE, profiles=(CARDS, CPU))
RESTS = replace(HAVE, replicas=0, max_replicas=3)


@pytest.mark.parametrize(
    ("have", "asked"),
    [
        (HAVE, {}),
        (HAVE, {"replicas": 2, "description": "d", "context": 4096, "slots": 2, "way": "processor", "on_demand": False}),
        (HAVE, {"profile": {"name": "other", "context": "4096", "args": []}}),
        (replace(HAVE, trained=4096), {"context": 9999}),  # never more than was trained for
        (HAVE, {"fallbacks": True}),  # no other way was planned then, nor is now
        (ON_CARDS, {"fallbacks": True, "tp": 2, "gpu_class": L4, "way": "2 x nvidia l4"}),
        (ON_CARDS, {"way": "cards"}),
        (RESTS, {"on_demand": True, "replicas": 3}),
    ],
)  # fmt: skip
def test_what_is_as_it_was_asked_for_agrees(have: Have, asked: dict[str, Any]) -> None:
    refuse(asked, have, planned=1)


@pytest.mark.parametrize(
    ("have", "asked", "what", "has"),
    [
        (HAVE, {"replicas": 3}, "replicas 3", "2"),
        (RESTS, {"replicas": 3}, "replicas 3", "0 to 3, on demand"),
        (HAVE, {"on_demand": True, "replicas": 2}, "on demand", "2"),
        (RESTS, {"on_demand": False}, "always running", "0 to 3, on demand"),
        (HAVE, {"description": "e"}, "the description 'e'", "'d'"),
        (HAVE, {"context": 8192}, "context 8192", "4096"),
        (HAVE, {"context": 99_999}, "context 8192", "4096"),
        (HAVE, {"slots": 1}, "slots 1", "2"),
        (HAVE, {"way": "cards"}, "the way cards", "processor"),
        (ON_CARDS, {"way": "processor"}, "the way processor", f"2 x {L4}"),
        (ON_CARDS, {"way": f"1 x {L4}"}, f"the way 1 x {L4}", f"2 x {L4}"),
        (ON_CARDS, {"tp": 1}, "tp 1", "2 cards"),
        (HAVE, {"gpu_class": L4}, f"the class {L4}", "none"),
        (HAVE, {"profile": {"args": ["--swa-full"]}}, "args ['--swa-full']", "[]"),
        (replace(HAVE, profiles=()), {"context": 1}, "context 1", "no profile"),
    ],
)
def test_what_differs_is_named_with_what_there_is(have: Have, asked: dict[str, Any], what: str, has: str) -> None:
    assert list(differences(asked, have)) == [(what, has)]


def test_more_ways_than_it_has_are_a_difference() -> None:
    assert list(differences({"fallbacks": True}, HAVE, planned=2)) == [("fallbacks, 2 ways together,", "1")]


def test_the_refusal_says_all_that_differs_and_what_to_do() -> None:
    with pytest.raises(Refused) as refused:
        refuse({"replicas": 3, "slots": 1}, HAVE)
    assert refused.value.code == "model_differs"
    for words in ("replicas 3 was asked for, and it has 2; slots 1", "llmgw model scale m", "llmgw model remove m"):
        assert words in refused.value.message
