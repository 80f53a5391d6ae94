"""The websocket to a controller: it says "look again now", and its silence tells that the controller is dead.

Two parts of a controller can fall silent. Its gateway answers the websocket's own pings; `web` behind it sends back what is
sent as `Ping`, if it has said that it does.

Nothing travels here that a heartbeat would not bring as well, later. One connection at a time; when it is lost the next
controller is tried at once, and when none accepts, again after a growing pause, for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import time
from typing import Any, Protocol

import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from cluster.wire import Nudge, Ping, WireError, from_dict, to_dict
from llmgw_site.lib.logs import event
from workers.agent.link import Link

log = logging.getLogger(__name__)
PATH = "/ws/agent"
PING_EVERY, PONG_WITHIN = 5.0, 5.0
"""Seconds; together the silence after which a controller is taken for dead: its gateway, or `web`."""
OPEN_TIMEOUT = 5.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
STEADY = 10.0
"""Seconds that a connection must have stood for its end to be no failure: else who accepts and closes is asked without
a pause."""
REFUSED_PAUSE = 15.0
"""Of a controller that answers and has no websocket for us: an older one, or `web` is starting."""
LARGEST = 1 << 20


class Ears(Protocol):
    """Who listens."""

    def connected(self) -> None:
        """A connection stands: whatever was said while none did was missed."""

    def nudged(self, nudge: Nudge) -> None: ...


class Nudges:
    """`run` never ends."""

    def __init__(self, link: Link, ears: Ears, *, dice: random.Random | None = None) -> None:
        self._link, self._ears = link, ears
        self._dice = dice or random.Random()

    async def run(self) -> None:
        failures = 0
        while True:
            stood = refused = False
            for url in self._link.urls:
                try:
                    stood = await self._follow(url)
                except InvalidStatus as error:
                    refused = True
                    self._note(url, f"refused with {error.response.status_code}")
                except (OSError, WebSocketException, TimeoutError) as error:
                    self._note(url, str(error) or type(error).__name__)
                except Exception:
                    log.exception("nudges_failed")
                if stood:
                    break
            failures = 0 if stood else failures + 1
            longest = REFUSED_PAUSE if refused else LONGEST_PAUSE
            pause = min(longest, FIRST_PAUSE * 2 ** min(max(0, failures - 1), 10))
            # after a connection that stood the next controller is tried at once
            await asyncio.sleep(0.0 if stood and len(self._link.urls) > 1 else pause * self._dice.uniform(0.5, 1.0))

    async def _follow(self, url: str) -> bool:
        """Listen to this controller until its connection ends; True: it stood for a while."""
        options: dict[str, Any] = {}
        if url.startswith("https:"):
            context, name = self._link.clients.security(url)
            options = {"ssl": context, **({"server_hostname": name} if name else {})}
        async with connect(
            "ws" + url.removeprefix("http") + PATH,
            additional_headers=self._link.headers("GET", PATH),
            ping_interval=PING_EVERY,
            ping_timeout=PONG_WITHIN,
            open_timeout=OPEN_TIMEOUT,
            close_timeout=1.0,
            max_size=LARGEST,
            compression=None,
            proxy=None,
            logger=logging.getLogger("workers.agent.nudges.websocket"),
            **options,
        ) as connection:
            began = time.monotonic()
            event(log, "nudges_connected", controller=url)
            self._ears.connected()
            silent = not await self._listen(connection)
        reason = f"{connection.close_code or ''} {connection.close_reason or ''}".strip()
        if silent:
            reason = f"no word of its web for {PING_EVERY + PONG_WITHIN:g} s"
        event(log, "nudges_lost", level=logging.WARNING, controller=url, reason=reason)
        self._link.doubt(url)
        return time.monotonic() - began >= STEADY

    async def _listen(self, connection: ClientConnection) -> bool:
        """Until the connection ends. False: it stands, but who has said that he echoes pings does not any more."""
        echoes, asked, pings = False, False, itertools.count(1)
        try:
            while True:
                try:
                    # not wait_for: in Python 3.11 it can swallow a cancellation that meets the message
                    async with asyncio.timeout((PONG_WITHIN if asked else PING_EVERY) if echoes else None):
                        message = await connection.recv()
                except TimeoutError:
                    if asked or not await self._ask(connection, next(pings)):
                        return False
                    asked = True
                    continue
                asked = False
                nudge = _read(message)
                if nudge is not None:
                    echoes = echoes or nudge.echoes
                    if not nudge.echoes:
                        self._ears.nudged(nudge)
        except ConnectionClosed:
            return True

    async def _ask(self, connection: ClientConnection, number: int) -> bool:
        """Send a ping. False: nobody takes it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PONG_WITHIN):
                await connection.send(orjson.dumps(to_dict(Ping(ping=number))).decode())
                return True
        return False

    def _note(self, url: str, reason: str) -> None:
        event(log, "nudges_not_connected", level=logging.DEBUG, controller=url, reason=reason[:200])


def _read(message: str | bytes) -> Nudge | None:
    """None: a ping that came back, or nothing that we can read."""
    try:
        data = orjson.loads(message)
        return None if isinstance(data, dict) and "ping" in data else from_dict(Nudge, data)
    except (orjson.JSONDecodeError, WireError) as error:
        event(log, "nudge_unreadable", level=logging.WARNING, reason=str(error)[:200])
        return None
