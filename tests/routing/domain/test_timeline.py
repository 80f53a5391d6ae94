"""routing.domain.timeline: parts of a request's time, without gaps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.domain.timeline import spans


def told(**times: float | bool | None) -> list[tuple[str, float, float]]:
    every = {"queue_s": 0.5, "first_token_s": None, "total_s": 3.0, "forwarded": True, **times}
    return [(span.name, span.start_s, span.length_s) for span in spans(**every)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("times", "parts"),
    [
        ({"total_s": None}, []),
        ({"forwarded": False, "queue_s": None}, [("gateway", 0.0, 3.0)]),
        ({}, [("queue", 0.0, 0.5), ("upstream", 0.5, 2.5)]),
        ({"first_token_s": 1.0}, [("queue", 0.0, 0.5), ("first_token", 0.5, 0.5), ("answer", 1.0, 2.0)]),
        ({"first_token_s": 0.2}, [("queue", 0.0, 0.5), ("first_token", 0.5, 0.0), ("answer", 0.5, 2.5)]),
        ({"queue_s": 9.0}, [("queue", 0.0, 3.0), ("upstream", 3.0, 0.0)]),
        ({"schedule_s": 0.25}, [("queue", 0.0, 0.25), ("schedule", 0.25, 0.25), ("upstream", 0.5, 2.5)]),
        ({"schedule_s": 0.0}, [("queue", 0.0, 0.5), ("schedule", 0.5, 0.0), ("upstream", 0.5, 2.5)]),
        ({"schedule_s": 9.0}, [("queue", 0.0, 0.0), ("schedule", 0.0, 0.5), ("upstream", 0.5, 2.5)]),
    ],
)
def test_what_a_request_did(times: dict[str, float], parts: list[tuple[str, float, float]]) -> None:
    assert told(**times) == parts


SOME = st.floats(0, 100) | st.none()


@given(SOME, SOME, SOME, st.floats(0, 100), st.booleans())
def test_parts_follow_each_other_to_the_end(
    queue: float | None, placed: float | None, first: float | None, total: float, sent: bool
) -> None:
    at = 0.0
    for span in spans(queue_s=queue, schedule_s=placed, first_token_s=first, total_s=total, forwarded=sent):
        assert span.start_s == pytest.approx(at)
        assert span.length_s >= 0
        at = span.start_s + span.length_s
    assert at == pytest.approx(total)
