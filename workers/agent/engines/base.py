"""What the agent needs to know of a kind of engine. One adapter a file; nothing else in the agent knows the kinds.

An adapter says early what it cannot do (`build`), makes the command (pure, by catalog.domain.engine_command) and
looks at a running engine over HTTP on loopback.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import httpx

from catalog.domain.engine_command import CardUse, Command, Lora, Run, Span
from cluster.wire import CardReport, EngineBuild, Serve
from routing.domain.figures import figures_in
from workers.agent.address import interface_of
from workers.agent.events import Verdict

QUICK = 3.0
"""Seconds for an answer that costs the engine nothing."""
DEEP = 300.0
"""Seconds for one token: the first one of a big model on a slow disk may take minutes."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A running engine."""

    port: int
    serve: Serve
    key: str = field(repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a look found; None: the engine does not tell."""

    verdict: Verdict
    message: str = ""
    context: int | None = None
    slots: int | None = None
    in_flight: int | None = None
    loras: tuple[int, ...] = ()  # the engine's numbers of `Serve.adapters`, where it goes by numbers


class Engine(Protocol):
    """A kind of engine on this node."""

    kind: str
    files_bounded: bool
    """Whether its files may be held to the log's size by the kernel (RLIMIT_FSIZE): it writes no other files."""

    def build(self) -> EngineBuild:
        """What is installed here; `problem` says why it cannot run, if it cannot."""

    def command(self, serve: Serve, *, port: int, threads: int, cards: Sequence[CardReport] = ()) -> Command:
        """`cards`: those of the node. Raises Refused if the profile's args do not pass the vetting."""

    def secrets(self, key: str) -> Mapping[str, str]:
        """The variables by which the engine learns its key: never argv, which everybody on the machine can read."""

    async def look(self, client: httpx.AsyncClient, target: Target, *, deep: bool) -> Look:
        """Is it alive, and of a deep look: does it really compute? Never raises."""


def run_of(serve: Serve, *, port: int, threads: int, cards: Sequence[CardReport] = ()) -> Run:
    """What the controllers want, as the command builder takes it."""
    totals = {card.uuid: card.memory_total for card in cards}
    none = (0,) * len(serve.cards)
    held = zip(serve.cards, serve.card_memory or none, serve.card_layers or none, strict=False)
    return Run(
        model=serve.model,
        weights=serve.weights.path,
        weights_size=serve.weights.size,
        port=port,
        threads=serve.threads or threads,
        context=serve.context,
        slots=serve.slots,
        memory=serve.memory,
        embeddings=serve.embeddings,
        pooling=serve.pooling,
        cards=tuple(
            CardUse(memory=size, base=serve.card_base, layers=layers, total=totals.get(uuid) or 0)
            for uuid, size, layers in held
        ),
        projector=serve.projector,
        adapters=tuple(Lora(item.name, item.weights.path, item.rank) for item in serve.adapters),
        span=_span(serve),
        args=serve.args,
        env=serve.env,
    )


def _span(serve: Serve) -> Span | None:
    if serve.nodes < 2:
        return None
    return Span(
        nodes=serve.nodes,
        rank=serve.rank,
        master=serve.master,
        port=serve.master_port,
        address=serve.address,
        interface=interface_of(serve.address),
    )


async def fetch(
    client: httpx.AsyncClient, target: Target, method: str, path: str, *, timeout: float, body: Any = None
) -> httpx.Response | Look:
    """The engine's answer, or what its absence means."""
    try:
        async with asyncio.timeout(timeout):
            return await client.request(method, target.url + path, headers=target.headers, json=body, timeout=timeout)
    except (httpx.ConnectError, httpx.ConnectTimeout):
        return Look(verdict=Verdict.LOADING, message="it does not listen yet")
    except (httpx.HTTPError, TimeoutError) as error:
        return Look(verdict=Verdict.SILENT, message=f"no answer ({type(error).__name__})")


async def health(client: httpx.AsyncClient, target: Target) -> Look:
    """`/health`: 200 is ready; 503 is loading, for minutes if need be; the rest is no engine that we know."""
    answer = await fetch(client, target, "GET", "/health", timeout=QUICK)
    if isinstance(answer, Look):
        return answer
    if answer.status_code == 200:
        return Look(verdict=Verdict.READY)
    if answer.status_code == 503:
        return Look(verdict=Verdict.LOADING, message="it loads the model")
    return Look(verdict=Verdict.BROKEN, message=f"/health answered {answer.status_code}")


async def one_token(client: httpx.AsyncClient, target: Target) -> Look:
    """Ask for one real token, or one embedding: a health page can be right while the core is stuck."""
    body: dict[str, Any] = {"model": target.serve.model}
    if target.serve.embeddings:
        path, body = "/v1/embeddings", {**body, "input": "Hello"}
    else:
        path, body = "/v1/completions", {**body, "prompt": "Hello", "max_tokens": 1, "temperature": 0}
    answer = await fetch(client, target, "POST", path, timeout=DEEP, body=body)
    if isinstance(answer, Look):
        return answer
    if answer.status_code == 503:
        return Look(verdict=Verdict.LOADING, message="it loads the model")
    if answer.status_code != 200:
        return Look(verdict=Verdict.BROKEN, message=f"{path} answered {answer.status_code}: {answer.text[:300]}")
    try:
        data = answer.json()
        made = len(data["data"][0]["embedding"]) if target.serve.embeddings else data["usage"]["completion_tokens"]
    except (ValueError, LookupError, TypeError):
        made = 0
    if not made:
        return Look(verdict=Verdict.BROKEN, message=f"{path} answered 200 without a result: {answer.text[:300]}")
    return Look(verdict=Verdict.READY)


async def in_flight(client: httpx.AsyncClient, target: Target) -> int | None:
    """Requests that run and wait in it by its own figures; None: it does not say."""
    answer = await fetch(client, target, "GET", "/metrics", timeout=QUICK)
    found = None if isinstance(answer, Look) or answer.status_code != 200 else figures_in(answer.content)
    return None if found is None else found.requests


def number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
