"""Questions under way: one for each key, a defect in one is logged, and all end with the asking."""

from __future__ import annotations

import asyncio
import logging

import pytest

from routing.gateway import asking as module
from routing.gateway.asking import Asking
from tests.routing.gateway.scripted import until


async def test_a_question_that_fails_is_logged_by_whom_it_asked_and_may_be_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asking: Asking[str] = Asking()

    async def fails() -> None:
        raise RuntimeError("a defect")

    with caplog.at_level(logging.ERROR):
        asking.begin("key", fails(), whom="rep_1")
        assert "key" in asking
        assert len(asking) == 1
        await until(lambda: len(asking) == 0)
    (record,) = (item for item in caplog.records if item.name == module.__name__)  # threads of other tests may log, too
    assert record.getMessage() == "question_failed"
    assert record.__dict__["f"] == {"whom": "rep_1", "error": "RuntimeError('a defect')"}


async def test_what_is_under_way_ends_with_the_asking() -> None:
    asking: Asking[str] = Asking()
    never = asyncio.Event()

    async def hangs() -> None:
        await never.wait()

    def look() -> None:
        if "key" not in asking:
            asking.begin("key", hangs(), whom="rep_1")

    running = asyncio.ensure_future(asking.run(look, 0.01))
    await until(lambda: len(asking) == 1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await until(lambda: len(asking) == 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
