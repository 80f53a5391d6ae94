"""The real llama.cpp engine of the wheel, as the agent starts it, alone or behind a whole gateway."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from cluster.wire import LocalAdapter, Serve, Weights
from tests.processes import free_port
from tests.routing.gateway.rig import ENGINE_KEY, Rig, local_engine, rig
from tests.routing.gateway.scripted import until
from workers.agent.engines.base import Target
from workers.agent.engines.llama_cpp import LlamaCpp
from workers.agent.events import Verdict


@asynccontextmanager
async def real_engine(serve: Serve) -> AsyncIterator[tuple[int, tuple[LocalAdapter, ...]]]:
    """The engine of the wheel as the agent starts it, and the numbers that it gives to the adapters."""
    engine, port = LlamaCpp(), free_port()
    made = engine.command(serve, port=port, threads=1)
    env = {**os.environ, **made.env, **engine.secrets(ENGINE_KEY)}
    process = await asyncio.create_subprocess_exec(
        *made.argv, "--die-with-parent", env=env, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    try:
        async with httpx.AsyncClient(timeout=60) as client:
            target = Target(port=port, serve=serve, key=ENGINE_KEY)
            for _ in range(1800):
                found = await engine.look(client, target, deep=True)
                if found.verdict is Verdict.READY:
                    break
                await asyncio.sleep(0.05)
            assert found.verdict is Verdict.READY, found
        numbered = zip(serve.adapters, found.loras, strict=True)
        yield port, tuple(LocalAdapter(name=item.name, weights=item.weights.name, id=n) for item, n in numbered)
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


@asynccontextmanager
async def real_rig(
    folder: Path, path: Path, model: str, *, pooling: str = "", projector: str = ""
) -> AsyncIterator[Rig]:
    """A gateway whose engine of `model` (of the rig's catalogue) is a real one with the weights at `path`. `pooling`: of an
    embedding model, or `rank`. `projector`: file that lets it see."""
    serve = Serve(
        engine="llama.cpp", model=model, weights=Weights(path=str(path)), context=2048, slots=2, pooling=pooling,
        embeddings=bool(pooling), projector=projector,
    )  # fmt: skip
    async with real_engine(serve) as (port, _), rig(folder) as it:
        replica = it.gateway.table.view.routes[model].model.replicas[0]
        it.publish((local_engine(replica, model, port),))
        await until(lambda: [seat.port for seat in it.gateway.table.view.routes[model].seats] == [port])
        yield it
