"""What every endpoint is put through, at one gateway and at an edge before the node that has the engine.

`Case` is one endpoint and one way to end; `Town.play` plays it with a key of its own, and `settled` says what is to hold afterwards:
status and envelope, one record each, at the edge only, counters that say what the records say, and nothing left over.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from catalog.domain import keys
from cluster.domain.leasing import PARALLEL, REQUESTS, TOKENS
from routing.domain.endpoints import (
    COUNT_TOKENS,
    DETOKENIZE,
    ENDPOINTS,
    MESSAGES,
    RESPONSES,
    TOKENIZE,
    Endpoint,
    Shape,
)
from routing.domain.records import UsageRecord
from routing.domain.snapshot import BudgetEntry, LimitEntry, ModelEntry, PriceEntry, ScopeEntry
from tests.routing.gateway.hops import Many, Site, many
from tests.routing.gateway.rig import ENGINE_KEY, TINY, VECTORS, key_entry
from tests.routing.gateway.scripted import until
from tests.routing.gateway.test_limits import taken
from tests.routing.gateway.test_uploads import FILE, KIND, form, part

ONE, HOP, CHAIN = "one gateway", "edge and engine", "edge, router and engine"
WAYS: dict[str, dict[str, tuple[str, ...]]] = {
    ONE: {"all": ("edge", "router", "inference")},
    HOP: {"edge": ("edge",), "node": ("router", "inference")},
    CHAIN: {"edge": ("edge",), "router": ("router",), "node": ("inference",)},
}
"""Gateways of each way, by their names, with their modules; the first is asked, the last has the engine."""
TRANSLATED = (MESSAGES, RESPONSES)
"""Once more by an engine that has only chats, where both ways are translated."""
PRICE = PriceEntry(input=2_000_000, output=8_000_000, currency="EUR")
MUCH = LimitEntry(requests_per_minute=1000, tokens_per_minute=10**6, parallel=9)
SLOTS = 2
BOOM = json.dumps({"error": {"message": "boom", "code": 500, "type": "server_error"}})
End = tuple[str, int, str]
"""Outcome, status and code of a record."""
OK: End = ("ok", 200, "")
GONE: End = ("client_gone", 499, "client_gone")


@dataclass(frozen=True)
class Cell:
    """An endpoint as it is asked."""

    endpoint: Endpoint
    stream: bool = False
    translated: bool = False

    def __str__(self) -> str:
        return self.endpoint.name + "-streamed" * self.stream + "-translated" * self.translated

    @property
    def events(self) -> bool:
        """Whether the answer is read as a stream: those of sounds and pictures pass as they are."""
        return self.stream and not self.endpoint.opaque

    def request(self, script: dict[str, Any]) -> dict[str, Any]:
        return request(self.endpoint, script, self.stream)


CELLS = [
    Cell(item, stream, translated)
    for translated in (False, True)  # at last: it is remembered who has only chats
    for item in ENDPOINTS.values()
    for stream in (False, True)
    if (item.streams or not stream) and (not translated or item.name in TRANSLATED)
]


def request(endpoint: Endpoint, script: dict[str, Any], stream: bool) -> dict[str, Any]:
    """What is sent; what the engine shall do stands where each endpoint has its text."""
    text, model = json.dumps(script), VECTORS if endpoint.embeddings else TINY
    if endpoint.form:
        return {"content": form(part("model", model.encode()), part("prompt", text.encode()), FILE), "headers": KIND}
    body: dict[str, Any] = {"model": model, "prompt": text, **({"stream": True} if stream else {})}
    if "messages" in endpoint.name or endpoint.name.startswith("chat"):
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    elif endpoint.name in ("embeddings", "audio.speech", RESPONSES):
        body["input"] = body.pop("prompt")
    return {"json": {**body, "query": "q", "documents": ["d"], "tokens": [1]}}


def code_of(endpoint: Endpoint, text: str) -> str:
    """The code of an error in the envelope of this endpoint, alone or as a stream's last event."""
    last = text.rstrip().rpartition("\n")[2]
    body = json.loads(last.removeprefix("data: "))
    named = endpoint.shape is Shape.ANTHROPIC or (endpoint.shape is Shape.RESPONSES and last.startswith("data: "))
    assert body.get("type") == ("error" if named else None)
    assert {"message", "type", "code", "param"} <= set(body["error"])
    assert ENGINE_KEY not in text
    return str(body["error"]["code"])


@dataclass
class Answer:
    """`whole`: it ended cleanly."""

    status: int
    text: str
    whole: bool
    kind: str


class Town:
    """The gateways, and the key of the case that is played."""

    def __init__(self, sites: Many) -> None:
        self.sites = sites
        every = list(sites.sites.values())
        self.edge, self.node = every[0], every[-1]
        self.cases = self.ended = 0
        self.ends: list[End] = []
        self.key = keys.make(keys.KEY_PREFIX, entropy=b"0" * 32)

    async def play(self, cell: Cell, case: str) -> None:
        """One case, with a key and a project of its own; then all of `settled`."""
        await self.begin()
        self.node.engine.unknown = {cell.endpoint.path} if cell.translated else set()
        if cell.translated:
            await self.expect(cell, {}, 200, "", OK)  # from now on it is known that the engine has only chats
        await CASES[case](self, cell)
        await self.settled(cell)

    async def begin(self) -> None:
        self.cases += 1
        self.ends = []
        self.node.engine.requests.clear()
        self.key = keys.make(keys.KEY_PREFIX, entropy=b"%032d" % self.cases)
        await self.limit(MUCH)

    async def limit(self, limit: LimitEntry, *budgets: BudgetEntry) -> None:
        """Of the key; its project has much room, and these budgets."""
        project = ScopeEntry(scope_id=self.project, kind="project", name="shop", limit=MUCH, budgets=budgets)
        entry = key_entry(self.key, str(self.cases), limit=limit)
        self.sites.keys = (replace(entry, project_id=self.project, name="ci"),)
        self.sites.scopes = (project,)
        await self.sites.settle()

    @property
    def project(self) -> str:
        return f"proj_{self.cases}"

    @property
    def holders(self) -> tuple[str, str]:
        """Whose limits count."""
        return f"key_{self.cases}", self.project

    def options(self, given: dict[str, Any]) -> dict[str, Any]:
        return given | {"headers": {**given.get("headers", {}), "authorization": f"Bearer {self.key.text}"}}

    async def sent(self, cell: Cell, script: dict[str, Any]) -> Answer:
        text = b""
        body = self.options(cell.request(script))
        async with self.edge.client.stream("POST", cell.endpoint.path, **body) as answer:
            kind, whole = answer.headers["content-type"], True
            try:
                async for piece in answer.aiter_raw():
                    text += piece
            except httpx.RemoteProtocolError:
                whole = False
            return Answer(answer.status_code, text.decode("latin-1"), whole, kind)

    async def expect(self, cell: Cell, script: dict[str, Any], status: int, code: str, end: End) -> None:
        answer = await self.sent(cell, script)
        assert (answer.status, answer.whole) == (status, True), answer.text
        if code:
            assert code_of(cell.endpoint, answer.text) == code
            assert answer.kind == "application/json"
        self.ends.append(end)

    async def left(self, cell: Cell, script: dict[str, Any], *, after: bytes = b"") -> None:
        """Send it and leave, once the engine has it, or these bytes came; the engine's work ends."""
        task = await self.held(cell, script, after=after)
        await self.leave(task)

    async def held(self, cell: Cell, script: dict[str, Any], *, after: bytes = b"") -> asyncio.Task[None]:
        came, asked = asyncio.Event(), len(self.node.engine.requests)

        async def read() -> None:
            body = self.options(cell.request(script))
            async with self.edge.client.stream("POST", cell.endpoint.path, **body) as answer:
                text = b""
                async for piece in answer.aiter_raw():
                    text += piece
                    if after and after in text:
                        came.set()

        task = asyncio.ensure_future(read())
        await until(lambda: task.done() or (came.is_set() if after else len(self.node.engine.requests) > asked))
        assert not task.done()
        return task

    async def leave(self, *tasks: asyncio.Task[None]) -> None:
        """All that are under way."""
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await until(lambda: all(seen.done or seen.aborted_at is not None for seen in self.node.engine.requests))
        self.ends += [GONE] * len(tasks)

    def records(self) -> list[UsageRecord]:
        return [record for record in self.edge.records() if record.project_id == self.project]

    async def settled(self, cell: Cell | None) -> None:
        """See the module."""
        edge, ends = self.edge, self.ends
        await self.sites.idle()
        await until(lambda: len(self.records()) >= len(ends))
        records = self.records()
        assert sorted((record.outcome, record.status, record.code) for record in records) == sorted(ends)
        assert len({record.record_id for record in records}) == len(ends)
        self.ended += len(ends)
        passed = sum(bool(record.model_served) for record in records)
        tokens = sum((record.prompt_tokens or 0) + (record.completion_tokens or 0) for record in records)
        for holder in self.holders:
            assert (taken(edge, holder, REQUESTS), taken(edge, holder, TOKENS)) == (passed, tokens)
            assert taken(edge, holder, PARALLEL) == 0
        for record in records:
            counted = (record.prompt_tokens, record.completion_tokens) != (None, None)
            assert counted or record.cost is None
            assert record.cost in (None, 2 * (record.prompt_tokens or 0) + 8 * (record.completion_tokens or 0))
            if cell is not None:
                assert (record.endpoint, record.stream) == (cell.endpoint.name, cell.events)
        assert total(edge, "llmgw_requests_total") == self.ended
        engine = self.node.engine
        assert sum(seen.path not in engine.unknown for seen in engine.requests) == passed
        for site in self.sites.sites.values():
            assert site is edge or site.records("open") == site.records() == []
            await self._nothing_left(site)

    async def _nothing_left(self, site: Site) -> None:
        gateway = site.gateway
        assert not gateway.queues._waits
        assert not any(line.running or line.waiting for line in gateway.queues.lines.values())
        pools = gateway.upstream._pools.values()
        await until(lambda: all(len(pool.open) == len(pool.idle) and not pool.connecting for pool in pools))


def total(site: Site, name: str) -> float:
    """A counter, over all its labels."""
    families = site.gateway.metrics.registry.collect()
    return sum(item.value for family in families for item in family.samples if item.name == name)


# --- the ways to end


async def _ok(town: Town, cell: Cell) -> None:
    await town.expect(cell, {}, 200, "", OK)


async def _engine_error(town: Town, cell: Cell) -> None:
    await town.expect(cell, {"status": 500, "body": BOOM}, 500, "engine_error", ("failed", 500, "engine_error"))


async def _no_answer(town: Town, cell: Cell) -> None:
    await town.expect(cell, {"reset": True}, 502, "engine_broken", ("failed", 502, "engine_broken"))


async def _death(town: Town, cell: Cell) -> None:
    """In mid-stream: an error event and no end. Of what has no events the connection is cut, which is all that an edge hears of it,
    or nothing was sent yet."""
    answer = await town.sent(cell, {"die_after": 1})
    if cell.stream or not answer.whole:
        assert (answer.status, answer.whole) == (200, False)
    else:
        assert answer.status == 502
    if cell.events or answer.whole:
        assert code_of(cell.endpoint, answer.text) == "engine_broken"
        assert "[DONE]" not in answer.text
    heard = cell.events or answer.whole or town.edge is town.node
    town.ends.append(("failed", answer.status, "engine_broken" if heard else "upstream_lost"))


async def _left(town: Town, cell: Cell) -> None:
    await town.left(cell, {"never": True})


async def _left_within(town: Town, cell: Cell) -> None:
    """After its head; of a stream after a token, which is counted."""
    if not cell.stream:
        await town.left(cell, {"head_silent": 30.0})
        return
    await town.left(cell, {"tokens": 1000, "gap": 0.02}, after=b"t1 ")
    seen = town.node.engine.last
    if cell.events:
        await until(town.records)
        record = town.records()[-1]
        assert record.estimated
        assert 1 <= (record.completion_tokens or 0) <= seen.sent
        assert 1 <= (record.prompt_tokens or 0) <= 7


async def _requests(town: Town, cell: Cell) -> None:
    await town.limit(replace(MUCH, requests_per_minute=len(town.ends) + 1))
    await town.expect(cell, {}, 200, "", OK)
    code = "requests_limit_reached"
    await town.expect(cell, {}, 429, code, ("refused", 429, code))


async def _tokens(town: Town, cell: Cell) -> None:
    """As long as one is under way that has half of what there is. What takes none passes."""
    task = await town.held(cell, {"never": True})
    used = sum((record.prompt_tokens or 0) + (record.completion_tokens or 0) for record in town.records())
    amount = taken(town.edge, town.holders[0], TOKENS) - used
    await town.limit(replace(MUCH, tokens_per_minute=used + amount + amount // 2))
    code = "tokens_limit_reached"
    if amount:
        await town.expect(cell, {}, 429, code, ("refused", 429, code))
        await town.leave(task)
    else:
        await town.leave(task)
        await town.expect(cell, {}, 200, "", OK)


async def _parallel(town: Town, cell: Cell) -> None:
    await town.limit(replace(MUCH, parallel=1))
    task = await town.held(cell, {"never": True})
    code = "parallel_limit_reached"
    await town.expect(cell, {}, 429, code, ("refused", 429, code))
    await town.leave(task)
    await town.sites.idle()
    await town.expect(cell, {}, 200, "", OK)


async def _queue(town: Town, cell: Cell) -> None:
    """As many as run are under way, and none may wait. What takes no place among them passes."""
    tasks = [await town.held(cell, {"never": True}) for _ in range(SLOTS)]
    if cell.endpoint.name in (COUNT_TOKENS, TOKENIZE, DETOKENIZE):
        await town.expect(cell, {}, 200, "", OK)
    else:
        await town.expect(cell, {}, 429, "queue_full", ("refused", 429, "queue_full"))
    await town.leave(*tasks)


async def _budget(town: Town, cell: Cell) -> None:
    entry = BudgetEntry(
        budget_id="bud_1", period="day", amount=10, spent=12, resets_at=time.time() + 600, currency="EUR"
    )
    await town.limit(MUCH, entry)
    await town.expect(cell, {}, 429, "budget_spent", ("refused", 429, "budget_spent"))


CASES = {
    "ok": _ok, "engine error": _engine_error, "no answer": _no_answer, "death": _death, "client left": _left,
    "client left within": _left_within, "requests": _requests, "tokens": _tokens, "parallel": _parallel, "budget": _budget,
    "queue": _queue,
}  # fmt: skip


@asynccontextmanager
async def town(folder: Path, way: str) -> AsyncIterator[Town]:
    async with many(folder) as sites:
        sites.slots = SLOTS
        sites.models = [
            ModelEntry(name=TINY, created=1, price=PRICE),
            ModelEntry(name=VECTORS, created=2, price=PRICE, embeddings=True),
        ]
        for name, modules in WAYS[way].items():
            serves = (TINY, VECTORS) if "inference" in modules else ()
            await sites.start(name, *modules, serves=serves, queue_length=0)
        yield Town(sites)
