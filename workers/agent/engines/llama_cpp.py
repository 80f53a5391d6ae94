"""llama.cpp: the server inside the `xllamacpp` wheel through our launcher, else a `llama-server` on PATH."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import httpx

from catalog.domain.engine_command import Command, command
from cluster.wire import CardReport, EngineBuild, Serve
from workers.agent.engines import adapters
from workers.agent.engines.architectures import of_library
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

TOP = Path(__file__).resolve().parents[3]
"""The folder that holds our packages: the launcher is started far from it."""


@functools.cache
def _wheel() -> str:
    """Version of the installed wheel; empty: none. The wheel itself is never imported here, it is large."""
    if importlib.util.find_spec("xllamacpp") is None:
        return ""
    return importlib.metadata.version("xllamacpp")


@functools.cache
def _architectures(binary: str) -> tuple[str, ...]:
    """Of the wheel (`binary` empty), or of a program with its library beside it. Read once: they are large."""
    if binary:
        program = Path(binary).resolve()
        beside = (*program.parent.glob("libllama.so*"), *program.parent.parent.glob("lib*/libllama.so*"))
        files: list[Path] = [program, *sorted(beside)]
    else:
        spec = importlib.util.find_spec("xllamacpp")
        folders = spec.submodule_search_locations if spec else None
        files = [file for folder in folders or () for file in sorted(Path(folder).glob("*.so"))]
    return next((found for file in files if (found := of_library(file))), ())


class LlamaCpp:
    kind = "llama.cpp"
    files_bounded = True

    def build(self) -> EngineBuild:
        if _wheel():
            return EngineBuild(kind=self.kind, version=f"xllamacpp {_wheel()}", architectures=_architectures(""))
        binary = shutil.which("llama-server")
        if binary:
            version = f"llama-server ({binary})"
            return EngineBuild(kind=self.kind, version=version, architectures=_architectures(binary))
        problem = "neither the package xllamacpp nor llama-server is installed: install llmgw with its extra `llama`"
        return EngineBuild(kind=self.kind, problem=problem)

    def command(self, serve: Serve, *, port: int, threads: int, cards: Sequence[CardReport] = ()) -> Command:
        run = run_of(serve, port=port, threads=threads, cards=cards)
        if not _wheel():
            return command(self.kind, (shutil.which("llama-server") or "llama-server",), run)
        # -P: the engine's own folder must not be a place to import from
        program = (sys.executable, "-P", "-m", "workers.agent.engines.launcher")
        made = command(self.kind, program, run, launcher=True)
        return replace(made, env={**made.env, "PYTHONPATH": str(TOP)})

    def secrets(self, key: str) -> Mapping[str, str]:
        return {"LLMGW_ENGINE_KEY" if _wheel() else "LLAMA_API_KEY": key}

    async def look(self, client: httpx.AsyncClient, target: Target, *, deep: bool) -> Look:
        """1. health; 2. deep: a token, then the shape and the adapters; 3. else: what its metrics count."""
        found = await health(client, target)  # 1
        if found.verdict is not Verdict.READY:
            return found
        if deep:  # 2
            found = await one_token(client, target)
            if found.verdict is not Verdict.READY:
                return found
            props = await fetch(client, target, "GET", "/props", timeout=QUICK)
            data = props.json() if not isinstance(props, Look) and props.status_code == 200 else {}
            settings = data.get("default_generation_settings") or {}
            found = replace(found, context=number(settings.get("n_ctx")), slots=number(data.get("total_slots")))
            return await adapters.ask(client, target, found) if target.serve.adapters else found
        # 3. answered by the loop that also computes: a long batch delays it, which is no sign of death
        return replace(found, in_flight=await in_flight(client, target))
