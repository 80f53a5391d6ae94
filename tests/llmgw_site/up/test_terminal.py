"""What the supervisor prints where lines cannot move, and where they can."""

from __future__ import annotations

import io

import pytest

from llmgw_site.up import terminal
from llmgw_site.up.terminal import Terminal


def test_a_wait_is_told_once_and_again_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    out = io.StringIO()
    screen = Terminal(out)
    for _ in range(4):
        screen.waiting("the model")
        clock[0] += 4
    assert [line.split("s  ", 1)[1] for line in out.getvalue().splitlines()] == [
        "waiting: the model",
        "still waiting: the model (12 s)",
    ]


def test_what_changes_all_the_time_is_not_told_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: clock[0])
    out = io.StringIO()
    screen = Terminal(out)
    for number in range(32):
        screen.waiting(f"try {number}")
        clock[0] += 0.125
    assert [line.rsplit(" ", 1)[1] for line in out.getvalue().splitlines()] == ["0", "8", "16", "24"]


def test_on_a_terminal_the_wait_is_one_moving_line() -> None:
    class Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = Tty()
    screen = Terminal(out)
    screen.waiting("the model")
    screen.waiting("the model")
    screen.say("ready")
    assert out.getvalue().count("\n") == 1
    assert out.getvalue().count("\r\x1b[K") == 2


def test_a_reader_that_left_does_not_end_the_supervisor() -> None:
    out = io.StringIO()
    screen = Terminal(out)
    out.close()
    screen.say("nobody hears this")
    screen.waiting("nor this")
    assert out.closed
