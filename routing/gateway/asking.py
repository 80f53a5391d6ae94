"""Questions that are asked again and again in the background, each in a task of its own: a slow answer delays no other."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)

K = TypeVar("K")


class Asking(Generic[K]):
    """What is under way: one question at most for each key."""

    def __init__(self) -> None:
        self._tasks: dict[K, asyncio.Task[None]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._tasks

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, key: K, question: Coroutine[Any, Any, None], *, whom: str) -> None:
        """`whom` stands in the log if the question ends in a defect."""
        task = self._tasks[key] = asyncio.get_running_loop().create_task(question)
        task.add_done_callback(functools.partial(self._ended, key, whom))

    def _ended(self, key: K, whom: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(key, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            event(log, "question_failed", level=logging.ERROR, whom=whom, error=repr(error)[:300])

    async def run(self, look: Callable[[], None], pause: float) -> None:
        """Look for ever, so many seconds apart; what is under way ends with it."""
        try:
            while True:
                look()
                await asyncio.sleep(pause)
        finally:
            for task in self._tasks.values():
                task.cancel()
