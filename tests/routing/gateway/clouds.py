"""What tests of the cloud module share: a gateway whose node runs `cloud` and has been told of one provider."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from cluster.domain import signing
from cluster.domain.modules import Module, ModuleReport, ModulesFile
from cluster.wire import to_dict
from llmgw_site.lib.config import Config
from llmgw_site.lib.files import private_folder, write_json
from llmgw_site.lib.sealing import seal
from routing.domain.snapshot import External, ModelEntry, ProviderEntry
from tests.routing.gateway.rig import Rig, rig, snapshot

PROVIDER_KEY = "sk-provider-51f0c2"
OURS, THEIRS = "far", "gpt-9"
VECTORS_OURS = "far-vectors"
NODE = "node_cloud"
PRIVATE, CONTROLLERS = "11" * 32, "22" * 32
PAIRWISE = signing.pairwise_key(CONTROLLERS, signing.public_hex(PRIVATE))


def provider_entry(url: str, *, key: str = PROVIDER_KEY, sealed_to: bytes = PAIRWISE, **other: Any) -> ProviderEntry:
    sealed = seal(key, secret=sealed_to, about="prov_1") if key else ""
    fields = {"sealed_key": sealed, "key_digest": "d1" if key else "", **other}
    return ProviderEntry(provider_id="prov_1", name="acme", url=url, **fields)


def write_identity(config: Config) -> None:
    private_folder(config.node_file.parent)
    identity = {
        "node_id": NODE, "private_key": PRIVATE, "controller_public_key": signing.public_hex(CONTROLLERS), "address": "",
    }  # fmt: skip
    config.node_file.write_text(json.dumps(identity))


def write_modules(config: Config, *modules: str) -> None:
    reports = tuple(ModuleReport(name=name) for name in modules)
    write_json(config.modules_file, to_dict(ModulesFile(modules=reports)))


def write_snapshot(config: Config, *providers: ProviderEntry, version: str = "e1:1.c", **model: Any) -> None:
    external = External(provider_id="prov_1", model=THEIRS)
    models = (
        ModelEntry(name=OURS, created=1, external=external, **model),
        ModelEntry(name=VECTORS_OURS, created=2, external=external, embeddings=True),
    )
    config.snapshot_file.write_bytes(orjson.dumps(to_dict(snapshot(version, models=models, providers=providers))))


@asynccontextmanager
async def cloud_rig(
    folder: Path,
    *providers: ProviderEntry,
    modules: tuple[str, ...] = (Module.EDGE, Module.ROUTER, Module.CLOUD),
    model: dict[str, Any] | None = None,
    prepare: Callable[[Config], None] | None = None,
    **changes: Any,
) -> AsyncIterator[Rig]:
    def written(config: Config) -> None:
        write_identity(config)
        write_modules(config, *modules)
        write_snapshot(config, *providers, **(model or {}))
        if prepare is not None:
            prepare(config)

    async with rig(folder, prepare=written, **changes) as gateway:
        yield gateway
