"""Shipping the usage spool to the controllers, oldest records first, batch by batch. Nothing is lost while none answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from llmgw_site.lib.logs import event
from workers.agent.link import Link, LinkError, NodeRemoved
from workers.agent.usage import Spool

log = logging.getLogger(__name__)
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
IDLE, BEHIND = 1.0, 0.05


class Shipping:
    """`waiting`: closed records not yet committed; None: not known, or too many to count now."""

    def __init__(self, folder: Path, link: Link, *, removed: Callable[[], None]) -> None:
        self._spool, self._link, self._removed = Spool(folder), link, removed
        self.waiting: int | None = None
        self.is_long = False

    async def run(self) -> None:
        failures = 0
        while True:
            pause = IDLE
            try:
                self.waiting = await asyncio.to_thread(self._spool.waiting)
                self.is_long = self.waiting is None
                batch = await asyncio.to_thread(self._spool.next_batch)
                if batch is not None:
                    got = await self._link.usage(batch.records)
                    done = await asyncio.to_thread(self._spool.committed, batch, got.stored, got.refused)
                    pause = BEHIND if done else IDLE
                failures = 0
            except LinkError as error:
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures, 10))
                failures += 1
                if failures == 1:
                    event(log, "usage_not_shipped", level=logging.WARNING, reason=str(error))
            except NodeRemoved:
                self._removed()
                pause = LONGEST_PAUSE
            except Exception:
                log.exception("usage_failed")
                pause = LONGEST_PAUSE
            await asyncio.sleep(pause)

    def problems(self) -> tuple[str, ...]:
        """For people."""
        if not self.is_long:
            return ()
        return ("the usage spool is long: the controllers take its records too slowly, or not at all",)
