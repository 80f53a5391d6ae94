"""Units, spans, and the look of a state."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from cluster.domain.states import JobState, NodeState, ReplicaState, StepState
from llmgw_site.console import tags


@pytest.mark.parametrize("states", [NodeState, ReplicaState, JobState, StepState])
def test_every_state_of_the_product_has_a_look(states: type) -> None:
    assert [item for item in states if item.value not in tags.LOOKS] == []


def test_a_state_is_a_word_beside_its_mark_and_cannot_carry_markup() -> None:
    assert tags.state("ready") == '<span class="lg-state ok">ready</span>'
    assert "<b>" not in tags.state("<b>")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(3, "3 s ago"), (75, "1 min 15 s ago"), (3_700, "1 h 1 min ago"), (90_000, "1 d 1 h ago"), (-5, "0 s ago")],
)
def test_ages_are_said_in_two_units_at_most_and_never_lie_in_the_future(
    seconds: int, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)
    assert f">{shown}</time>" in tags.ago(now - timedelta(seconds=seconds))


def test_what_is_not_known_is_left_out() -> None:
    assert [tags.size(None), tags.ago(None), tags.share(None), tags.thousands(None), tags.pressure(None)] == [""] * 5
    assert tags.until(None, timezone.now()) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no node has room", "No node has room"),
        ("rep_01 on node a fails", "rep_01 on node a fails"),
        ("vllm is not there", "vllm is not there"),
        ("tiny is disabled", "tiny is disabled"),
        ("embedder: its engine does not start", "embedder: its engine does not start"),
        ("the model tiny was removed", "The model tiny was removed"),
        ("replicas: a whole number from 0 on is needed", "replicas: a whole number from 0 on is needed"),
        ("nothing changed: the files are as they are", "Nothing changed: the files are as they are"),
        ("GGUF only", "GGUF only"),
        ("", ""),
    ],
)
def test_a_message_begins_like_a_sentence_unless_it_begins_with_a_name(text: str, expected: str) -> None:
    assert tags.sentence(text) == expected


def test_a_bar_warns_before_it_is_full() -> None:
    assert [tags.pressure(value) for value in (10.0, 85.0, 95.0)] == ["", "warn", "bad"]
