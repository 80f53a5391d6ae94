"""The node's certificate: asked for where none is at hand, and anew when a third of its life is left."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from llmgw_site.lib.logs import event
from workers.agent.link import Link, LinkError, NodeRemoved
from workers.agent.tls import Tls

log = logging.getLogger(__name__)
LOOK_EVERY = 3600.0
FIRST_PAUSE, LONGEST_PAUSE = 5.0, 600.0


class Renewal:
    """`run` never ends. `removed` is called where the controllers say that this node is out."""

    def __init__(self, link: Link, tls: Tls, *, removed: Callable[[], None]) -> None:
        self._link, self._tls, self._removed = link, tls, removed

    async def run(self) -> None:
        failures = 0
        while True:
            pause = LOOK_EVERY
            try:
                if await asyncio.to_thread(self._tls.due, self._link.cluster_time):
                    csr = await asyncio.to_thread(self._tls.request)
                    got = await self._link.certificate(csr)
                    await asyncio.to_thread(self._tls.keep, certificate=got.certificate, ca=got.ca_certificate)
                    event(log, "certificate_taken")
                failures = 0
            except (LinkError, OSError, ValueError) as error:
                pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(failures, 10))
                failures += 1
                event(log, "certificate_not_taken", level=logging.WARNING, reason=str(error))
            except NodeRemoved:
                self._removed()
            except Exception:
                log.exception("renewal_failed")
                pause = LONGEST_PAUSE
            await asyncio.sleep(pause)
