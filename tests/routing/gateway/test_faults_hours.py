"""Faults that take many minutes, at the defaults that operators have: real gateways and sockets, whose clock goes on at
once where it would only wait."""

from __future__ import annotations

import asyncio
import contextlib
import math
import selectors
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from llmgw_site.lib.config import load
from routing.domain.endpoints import CHAT, COMPLETIONS, ENDPOINTS, MESSAGES, RESPONSES, TRANSCRIPTIONS
from routing.domain.snapshot import External, ModelEntry
from tests.fakes.provider import Provider
from tests.routing.gateway.clouds import OURS, PROVIDER_KEY, THEIRS
from tests.routing.gateway.hops import Many, Site, many
from tests.routing.gateway.matrix import request
from tests.routing.gateway.rig import TINY, ask, until
from tests.routing.gateway.test_cloud_hops import tell

SILENT, LONG = 700.0, 1800.0
"""Seconds: longer than any default; and what the operator set."""
GRID = 1.0
"""Virtual seconds between two moments at which anything is due: looks that are made ten times a second cost as much time
as all else."""


class _Selector(selectors.DefaultSelector):  # type: ignore[misc]
    hurried = False
    ahead = 0.0

    def select(self, timeout: float | None = None) -> Any:
        if not self.hurried or timeout is None or timeout <= 0:
            return super().select(timeout)
        found = super().select(0.001)  # what was sent on this machine is there by then
        if not found:
            self.ahead += timeout
        return found


class HurriedLoop(asyncio.SelectorEventLoop):
    """Within `hurry`, nobody waits for anything but what is under way."""

    def __init__(self) -> None:
        self._hurried = _Selector()
        super().__init__(self._hurried)

    def time(self) -> float:
        return super().time() + self._hurried.ahead

    def call_at(self, when: float, *args: Any, **options: Any) -> asyncio.TimerHandle:
        due = math.ceil(when / GRID) * GRID if self._hurried.hurried else when
        return super().call_at(due, *args, **options)

    @contextmanager
    def hurry(self) -> Iterator[None]:
        self._hurried.hurried = True
        try:
            yield
        finally:
            self._hurried.hurried = False


BOTH, PATH = (TINY, OURS), "/v1/chat/completions"


def play(work: Callable[[HurriedLoop], Awaitable[None]]) -> None:
    loop = HurriedLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:

        async def whole() -> None:
            await work(loop)

        runner.run(whole())


@asynccontextmanager
async def town(folder: Path, rule: dict[str, float], *, of_models: bool) -> AsyncIterator[tuple[Many, Site]]:
    """edge -> router -> inference -> engine, and edge -> router -> cloud -> provider; the rule is set for the models, or on
    all nodes, and all else is as by default."""
    settings: dict[str, Any] = {} if of_models else rule
    async with Provider(key=PROVIDER_KEY, model=THEIRS) as provider, many(folder) as it:
        it.slots = 50
        it.models.append(ModelEntry(name=OURS, created=1, external=External(provider_id="prov_1", model=THEIRS)))
        if of_models:
            it.change(TINY, **rule)
            it.change(OURS, **rule)
        edge = await it.start("edge", "edge", **settings)
        await it.start("router", "router", **settings)
        await it.start("worker", "inference", serves=(TINY,), **settings)
        cloud = await it.start("cloud", "cloud", **settings)
        await it.settle()
        tell(cloud, provider)
        yield it, edge


def named(body: dict[str, Any], model: str) -> dict[str, Any]:
    """The request, but to this model."""
    if "json" in body:
        return {"json": {**body["json"], "model": model}}
    return {**body, "content": body["content"].replace(TINY.encode(), model.encode(), 1)}


SILENCES: list[tuple[str, dict[str, Any], bool]] = [
    (CHAT, {"silent": SILENT}, False),
    (CHAT, {"head_silent": SILENT}, False),
    (CHAT, {"silent": SILENT}, True),
    (CHAT, {"head_silent": SILENT}, True),
    (CHAT, {"tokens": 2, "gap": SILENT}, True),
    (COMPLETIONS, {"silent": SILENT}, True),
    (MESSAGES, {"silent": SILENT}, False),
    (MESSAGES, {"silent": SILENT}, True),
    (RESPONSES, {"silent": SILENT}, True),
    (TRANSCRIPTIONS, {"silent": SILENT}, False),
]


@pytest.mark.parametrize("of_models", [True, False], ids=["of the models", "of the nodes"])
def test_f02_the_operators_time_rules_on_every_hop_where_an_engine_is_silent_for_longer_than_any_default(
    tmp_path: Path, of_models: bool
) -> None:
    defaults = load({"LLMGW_DATA": str(tmp_path)})
    assert max(defaults.first_byte_timeout, defaults.idle_timeout) < SILENT

    async def work(loop: HurriedLoop) -> None:
        async with town(tmp_path, {"first_byte_timeout": LONG, "idle_timeout": LONG}, of_models=of_models) as (
            it,
            edge,
        ):
            asked = []
            for name, script, stream in SILENCES:
                for model in BOTH[:1] if ENDPOINTS[name].form else BOTH:
                    body = request(ENDPOINTS[name], script, stream)
                    asked.append(edge.client.post(ENDPOINTS[name].path, timeout=None, **named(body, model)))
            began = loop.time()
            with loop.hurry():
                answers = await asyncio.gather(*asked)
            assert loop.time() - began >= SILENT
            assert [answer.status_code for answer in answers] == [200] * len(asked)
            await it.idle()
            await until(lambda: len(edge.records()) == len(asked))
            assert {(record.outcome, record.code) for record in edge.records()} == {("ok", "")}

    play(work)


async def said(site: Site, body: dict[str, Any]) -> tuple[int, str]:
    """Status, and what came until the end, of whatever kind."""
    text = b""
    async with site.client.stream("POST", PATH, json=body, timeout=None) as answer:
        with contextlib.suppress(httpx.RemoteProtocolError):
            async for piece in answer.aiter_raw():
                text += piece
    return answer.status_code, text.decode()


def test_f29_a_hung_engine_or_provider_ends_at_the_time_that_was_set_and_at_no_default(tmp_path: Path) -> None:
    async def work(loop: HurriedLoop) -> None:
        async with town(tmp_path, {"first_byte_timeout": SILENT}, of_models=True) as (it, edge):
            began = loop.time()
            asked = [
                said(edge, ask({"never": True}, model=model, stream=how)) for model in BOTH for how in (False, True)
            ]
            with loop.hurry():
                answers = await asyncio.gather(*asked)
            assert SILENT <= loop.time() - began < SILENT + 120  # the machine takes its own time beside
            codes = ["engine_timeout"] * 2 + ["provider_timeout"] * 2
            assert [code in text for code, (_, text) in zip(codes, answers, strict=True)] == [True] * 4
            assert [status for status, _ in answers] == [504, 200] * 2  # who streams was sent comments
            await it.idle()
            await until(lambda: len(edge.records()) == 4)
            assert sorted(record.code for record in edge.records()) == codes

    play(work)


def test_f28_comments_for_longer_than_any_default_are_life_on_every_hop(tmp_path: Path) -> None:
    async def work(loop: HurriedLoop) -> None:
        async with town(tmp_path, {}, of_models=False) as (it, edge):
            script = {"tokens": 2, "gap": 100.0, "pings": int(SILENT / 100.0)}
            began = loop.time()
            with loop.hurry():
                answers = await asyncio.gather(
                    *(
                        edge.client.post(PATH, timeout=None, json=ask(script, model=model, stream=True))
                        for model in BOTH
                    )
                )
            assert loop.time() - began >= SILENT
            for answer in answers:
                assert [word in answer.text for word in ('"t0 "', '"t1 "', "[DONE]")] == [True] * 3
            await it.idle()
            await until(lambda: len(edge.records()) == 2)
            assert {record.outcome for record in edge.records()} == {"ok"}

    play(work)
