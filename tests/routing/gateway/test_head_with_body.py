"""routing.gateway.protocol.send_head_with_body: one write for an answer whose body is at hand."""

from __future__ import annotations

import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from routing.gateway.protocol import _CYCLE, send_head_with_body


class Transport:
    """Keeps what it is told to do, in order."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    def write(self, data: bytes) -> None:
        self.done.append(data)

    def close(self) -> None:
        self.done.append("close")


class Cycle(SimpleNamespace):
    """As uvicorn's it can be held weakly."""


@pytest.fixture
def cycle() -> SimpleNamespace:
    return Cycle(transport=Transport(), response_started=False)


def scope(cycle: SimpleNamespace, method: str = "POST") -> dict[str, Any]:
    return {_CYCLE: weakref.ref(cycle), "method": method}


def test_head_and_first_piece_leave_together_and_the_rest_as_it_comes(cycle: SimpleNamespace) -> None:
    real = cycle.transport
    send_head_with_body(scope(cycle))
    for piece in (b"head ", b"one ", b"two"):
        cycle.transport.write(piece)
    assert real.done == [b"head one ", b"two"]
    assert cycle.transport is real


def test_an_answer_that_is_given_up_after_its_head_is_sent_as_far_as_it_is(cycle: SimpleNamespace) -> None:
    real = cycle.transport
    send_head_with_body(scope(cycle))
    cycle.transport.write(b"head")
    cycle.transport.close()
    assert real.done == [b"head", "close"]
    assert cycle.transport is real


@pytest.mark.parametrize(("method", "started"), [("HEAD", False), ("POST", True)])
def test_nothing_waits_where_no_body_follows_or_the_head_is_out(
    cycle: SimpleNamespace, method: str, started: bool
) -> None:
    real, cycle.response_started = cycle.transport, started
    send_head_with_body(scope(cycle, method))
    assert cycle.transport is real


def test_another_server_has_no_cycle_and_goes_on_as_ever() -> None:
    plain = {"method": "POST"}
    send_head_with_body(plain)
    assert plain == {"method": "POST"}
