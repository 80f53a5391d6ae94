"""A whole gateway on real sockets in the test's event loop: real files, real uvicorn, real protocol, scripted engines."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import orjson

from catalog.domain import keys
from cluster.wire import EnginesFile, LocalEngine, StartingReplica, from_dict, to_dict
from llmgw_site.lib.config import Config, load
from llmgw_site.lib.files import private_folder, write_json
from routing.domain.records import UsageRecord
from routing.domain.snapshot import KeyEntry, ModelEntry, Snapshot
from routing.gateway import lifespan
from tests.fakes.scripted_engine import ScriptedEngine
from tests.routing.gateway.listening import listening
from tests.routing.gateway.scripted import until

KEY = keys.make(keys.KEY_PREFIX, entropy=b"a" * 32)
NARROW = keys.make(keys.KEY_PREFIX, entropy=b"b" * 32)  # may use `tiny` only
EXPIRED = keys.make(keys.KEY_PREFIX, entropy=b"c" * 32)
UNKNOWN = keys.make(keys.KEY_PREFIX, entropy=b"d" * 32)
ENGINE_KEY = "engine-key-9f2c71"
TINY, SECOND, VECTORS, OFF, COLD = "tiny", "org/second:v1", "vectors", "switched-off", "cold"


def key_entry(secret: keys.NewSecret, name: str, **other: Any) -> KeyEntry:
    return KeyEntry(key_id=f"key_{name}", sha256=secret.sha256, prefix=secret.prefix, project_id="proj_1", **other)


def snapshot(version: str = "e1:1", **other: Any) -> Snapshot:
    every = {
        "keys": (
            key_entry(KEY, "all"),
            key_entry(NARROW, "narrow", models=(TINY,)),
            key_entry(EXPIRED, "old", expires_at=1000.0),
        ),
        "models": (
            ModelEntry(name=TINY, created=1, replicas=("rep_1", "rep_1b")),
            ModelEntry(name=SECOND, created=2, replicas=("rep_2",)),
            ModelEntry(name=VECTORS, created=3, replicas=("rep_3",), embeddings=True),
            ModelEntry(name=OFF, created=4, enabled=False, code="maintenance", reason="maintenance until Monday"),
            ModelEntry(name=COLD, created=5, replicas=("rep_5",)),
        ),
    }
    return Snapshot(version=version, made_at=0.0, **{**every, **other})


def local_engine(replica_id: str, model: str, port: int, **other: Any) -> LocalEngine:
    fields = {"engine": "llama.cpp", "state": "ready", "host": "127.0.0.1", "key": ENGINE_KEY, "slots": 2, **other}
    return LocalEngine(replica_id=replica_id, model=model, port=port, **fields)


class Rig:
    """A running gateway; `client` talks to its client listener with KEY."""

    def __init__(self, config: Config, engine: ScriptedEngine, gateway: lifespan.Gateway) -> None:
        self.config = config
        self.engine = engine
        self.gateway = gateway
        self.port = 0
        self.client: httpx.AsyncClient

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def chat(self, script: Any = "hello", *, model: str = TINY, **fields: Any) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json=ask(script, model=model, **fields))

    def records(self, op: str = "close") -> list[UsageRecord]:
        lines = [json.loads(line) for path in sorted(self.config.usage.glob("*.jsonl")) for line in path.open()]
        return [from_dict(UsageRecord, line["record"]) for line in lines if line["op"] == op]

    async def record(self, count: int = 1) -> UsageRecord:
        """The last usage record, once there are `count`."""
        await until(lambda: len(self.records()) >= count)
        found = self.records()
        assert len(found) == count
        return found[-1]

    def publish(self, engines: tuple[LocalEngine, ...], starting: tuple[StartingReplica, ...] = ()) -> None:
        write_json(self.config.engines_file, to_dict(EnginesFile(written_at=0.0, engines=engines, starting=starting)))

    async def idle(self) -> None:
        """Nothing under way: in-flight counts are back to zero."""
        await until(lambda: not self.gateway.flights.counts and not self.gateway.app.active)


def ask(script: Any = "hello", *, model: str = TINY, **fields: Any) -> dict[str, Any]:
    text = script if isinstance(script, str) else json.dumps(script)
    return {"model": model, "messages": [{"role": "user", "content": text}], **fields}


def config_for(folder: Path, **changes: Any) -> Config:
    config = load({"LLMGW_DATA": str(folder / "data"), "LLMGW_LOG_LEVEL": "info"})
    return replace(config, **changes)


@asynccontextmanager
async def rig(folder: Path, *, prepare: Callable[[Config], None] | None = None, **changes: Any) -> AsyncIterator[Rig]:
    """A gateway with one scripted engine that serves `tiny`, `org/second:v1` and `vectors`."""
    config = config_for(folder, **({"connect_timeout": 30.0} | changes))  # see hops.SETTINGS
    private_folder(config.snapshot_file.parent)
    private_folder(config.run)
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(ScriptedEngine())
        config.snapshot_file.write_bytes(orjson.dumps(to_dict(snapshot())))
        gateway = lifespan.build(config)
        it = Rig(config, engine, gateway)
        it.publish(
            (
                local_engine("rep_1", TINY, engine.port),
                local_engine("rep_2", SECOND, engine.port, served_name="second-inside"),
                local_engine("rep_3", VECTORS, engine.port),
            ),
            (StartingReplica(replica_id="rep_5", model=COLD, state="starting", message="loading 3 of 9 GiB"),),
        )
        if prepare is not None:
            prepare(config)
        await gateway.start()
        stack.push_async_callback(gateway.stop)
        it.port = await stack.enter_async_context(listening(gateway.app, config))
        it.client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=it.url, headers={"authorization": f"Bearer {KEY.text}"}, timeout=60)
        )
        yield it
