"""vLLM, in an environment of its own: the `vllm` program on PATH."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import httpx

from catalog.domain.engine_command import Command, command
from cluster.wire import CardReport, EngineBuild, Serve
from workers.agent.engines.architectures import of_vllm
from workers.agent.engines.base import (
    QUICK,
    Look,
    Target,
    fetch,
    health,
    in_flight,
    number,
    one_token,
    run_of,
)
from workers.agent.events import Verdict


@functools.cache
def _architectures(binary: str) -> tuple[str, ...]:
    return of_vllm(Path(binary))


class Vllm:
    kind = "vllm"
    files_bounded = False  # it writes caches of compiled kernels and shared memory

    def build(self) -> EngineBuild:
        binary = shutil.which("vllm")
        if binary:
            known = _architectures(binary)
            return EngineBuild(kind=self.kind, version=f"vllm ({binary})", architectures=known, spans=True)
        return EngineBuild(kind=self.kind, problem="no `vllm` on PATH: install vLLM in an environment of its own")

    def command(self, serve: Serve, *, port: int, threads: int, cards: Sequence[CardReport] = ()) -> Command:
        run = run_of(serve, port=port, threads=threads, cards=cards)
        return command(self.kind, (shutil.which("vllm") or "vllm", "serve"), run)

    def secrets(self, key: str) -> Mapping[str, str]:
        return {"VLLM_API_KEY": key}

    async def look(self, client: httpx.AsyncClient, target: Target, *, deep: bool) -> Look:
        """1. health; 2. deep: a token, then the context; 3. else: what its metrics count. A part that leads no other answers
        nobody: that its process lives is all there is to see, and whoever watches that says when it ends."""
        if target.serve.rank:
            return Look(verdict=Verdict.READY)
        found = await health(client, target)  # 1
        if found.verdict is not Verdict.READY:
            return found
        if deep:  # 2
            found = await one_token(client, target)
            if found.verdict is not Verdict.READY:
                return found
            models = await fetch(client, target, "GET", "/v1/models", timeout=QUICK)
            cards = models.json().get("data") if not isinstance(models, Look) and models.status_code == 200 else None
            return replace(found, context=number(cards[0].get("max_model_len")) if cards else None)
        return replace(found, in_flight=await in_flight(client, target))  # 3
