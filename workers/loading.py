"""Puts a load on one node's replicas of a model, and says what came of it: chats of some length, so many at once.

The requests go to the node itself, signed as a router's: no key, no quota, no usage record.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from cluster.domain.bench import Level, nearly_all
from llmgw_site.lib.errors import Kind, Refused
from workers.node_calls import Way

PATH = "/v1/chat/completions"
TOKENS = 64
"""Tokens of each answer, at most."""
WORDS = (
    "river", "engine", "lantern", "harbour", "copper", "window", "garden", "thunder", "paper", "silver", "mountain", "letter",
)  # fmt: skip
PATIENCE = 30.0
"""Seconds without a byte after which a request counts as failed."""


@dataclass
class _Tally:
    """Of one try. Times in seconds."""

    tokens: int = 0
    firsts: list[float] = field(default_factory=list)
    answered: int = 0
    failed: int = 0
    why: str = ""


def load(
    signed: Callable[[str, bytes], Way], *, model: str, at_once: int, replicas: int, seconds: float, seed: int = 0
) -> Level:
    """Keep `at_once` requests for each of `replicas` under way for so many seconds; those that still run then are broken off.

    Raises Refused `bench_failed` where none was answered: with what the first of them was told.
    """
    tally, began = _Tally(), time.monotonic()
    asyncio.run(_all(signed, model, at_once * replicas, seconds, seed, tally))
    took = time.monotonic() - began
    if tally.failed and not tally.answered:
        raise Refused(Kind.UPSTREAM, "bench_failed", f"{model} answered none of {tally.failed} requests: {tally.why}")
    return Level(
        at_once=at_once, tps=round(tally.tokens / took / replicas, 2), first_s=round(min(nearly_all(tally.firsts), 1e6), 3),
        requests=len(tally.firsts), failed=tally.failed,
    )  # fmt: skip


async def _all(
    signed: Callable[[str, bytes], Way], model: str, count: int, seconds: float, seed: int, tally: _Tally
) -> None:
    until = time.monotonic() + seconds
    way = signed(PATH, b"")
    limits = httpx.Limits(max_connections=count, max_keepalive_connections=count)
    timeout = httpx.Timeout(PATIENCE, connect=10.0, pool=None)
    async with httpx.AsyncClient(
        base_url=way.base_url, verify=way.verify, trust_env=False, limits=limits, timeout=timeout
    ) as client:
        askers = [asyncio.create_task(_one(client, signed, model, f"{seed} {at}", until, tally)) for at in range(count)]
        try:
            await asyncio.wait(askers, timeout=max(0.0, until - time.monotonic()))
        finally:
            for asker in askers:
                asker.cancel()
            await asyncio.gather(*askers, return_exceptions=True)


async def _one(
    client: httpx.AsyncClient, signed: Callable[[str, bytes], Way], model: str, name: str, until: float, tally: _Tally
) -> None:
    """One asker: the next question as soon as the answer is there. Every question is another, so that no cache answers it."""
    number = 0
    while time.monotonic() < until:
        number += 1
        body = orjson.dumps(_question(model, f"{name} {number}"))
        way, began, first = signed(PATH, body), time.monotonic(), None
        try:
            async with client.stream(
                "POST", PATH, content=body, headers=way.headers, extensions=way.extensions
            ) as response:
                if response.status_code != 200:
                    await response.aread()
                    raise _Told(response.text[:300])
                async for line in response.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    chunk = orjson.loads(line.removeprefix("data: "))
                    if "error" in chunk:
                        raise _Told(str(chunk["error"].get("message", ""))[:300])
                    said = [bool(_text(choice)) for choice in chunk.get("choices", ())]
                    ended = any(choice.get("finish_reason") for choice in chunk.get("choices", ()))
                    if first is None and (any(said) or ended):
                        first = time.monotonic() - began
                        tally.firsts.append(first)
                        tally.answered += 1
                    tally.tokens += sum(said)
        except asyncio.CancelledError:
            if first is None:
                tally.firsts.append(time.monotonic() - began)  # it had waited at least so long
            raise
        except (httpx.HTTPError, orjson.JSONDecodeError, _Told) as error:
            tally.failed += 1
            tally.why = tally.why or str(error) or type(error).__name__
            await asyncio.sleep(0.2)


class _Told(Exception):
    """What a node answered instead."""


def _text(choice: dict[str, Any]) -> str:
    delta = choice.get("delta", {})
    return str(delta.get("content") or delta.get("reasoning_content") or "")


def _question(model: str, name: str) -> dict[str, Any]:
    number = zlib.crc32(name.encode())
    words = " ".join(WORDS[(number + step * step) % len(WORDS)] for step in range(40))
    text = f"Question {name}. Write a long story about: {words}."
    return {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": TOKENS, "stream": True,
            "temperature": 0.7, "seed": number % 1_000_000}  # fmt: skip
