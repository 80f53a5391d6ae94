"""The whole agent as a process: it fetches what a replica needs, and then the real engine answers from its store."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.domain.manifests import Manifest
from catalog.domain.repository import Format
from cluster.wire import FetchOrder, Weights
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.hub.serve import running
from tests.processes import wait_for
from tests.routing.gateway.stored import VERSION, manifest_of
from tests.tiny import TEXT, tiny_gguf
from tests.workers.agent.node import Node, chat, serve_tiny

pytestmark = pytest.mark.slow

NAME, MORE = "tiny-F16.gguf", "notes.txt"


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with running() as hub:
        hub.add(Repo("org/tiny")).commit({MORE: bytes(range(256)) * 80_000, NAME: tiny_gguf().read_bytes()})
        yield hub


def known(hub: Hub) -> Manifest:
    repo = hub.repos["org/tiny"]
    files = manifest_of({MORE: bytes(range(256)) * 80_000, NAME: tiny_gguf().read_bytes()}).files
    return Manifest(
        id=VERSION,
        format=Format.GGUF,
        first=NAME,
        files=files,
        registry=hub.base,
        repository="org/tiny",
        commit=repo.head,
    )


def test_f11_a_replica_begins_when_its_weights_are_whole_also_over_a_kill_of_the_agent(node: Node, hub: Hub) -> None:
    manifest = known(hub)
    hub.faults.reset()
    hub.faults.hold_from = 10 << 20  # the larger file does not become whole before the agent is killed
    node.controller.manifests[VERSION] = manifest
    serve = replace(serve_tiny(), weights=Weights(path=NAME, size=manifest.size, version=VERSION))
    node.want(serve=serve)
    settings = {"HF_ENDPOINT": hub.base, "LLMGW_PRIVATE_ADDRESSES": "1", "LLMGW_ROLES": "inference,data"}
    node.start_agent(**settings)
    report = node.report(lambda r: r.state == "fetching")
    assert (report.pid, report.attempt) == (None, 1)
    node.controller.fetches = (FetchOrder(version=VERSION, registry=True),)
    node.report(lambda r: "gets" in r.message, what="words of how far it is")
    told = wait_for(lambda: (found := node.controller.beats[-1].fetches) and found[0].there and found[0])
    assert (told.version, told.size, told.source) == (VERSION, manifest.size, "registry")
    wait_for(lambda: list((node.data / "weights" / VERSION / "files").glob("*.map")), what="a file on its way")
    node.end_agent(signal.SIGKILL)
    hub.faults.reset()
    node.start_agent(**settings)
    engine = node.wait_ready()
    assert chat(engine) == TEXT
    node.controller.fetches = ()
    assert wait_for(lambda: node.controller.beats[-1].fetches == ())
    argv = Path(f"/proc/{node.pids()[0]}/cmdline").read_bytes().decode().split("\0")
    assert argv[argv.index("--model") + 1] == str(node.data / "weights" / VERSION / "files" / NAME)
    # an agent that begins anew leaves the engine and its weights alone, whoever names them
    node.controller.kept = ()
    node.end_agent(signal.SIGKILL)
    node.start_agent(**settings)
    node.report(lambda r: r.state == "ready")
    assert node.wait_ready().port == engine.port
    assert node.controller.refused == []


def test_an_agent_ends_at_once_while_what_it_fetches_from_is_silent(node: Node, hub: Hub) -> None:
    hub.faults.reset()
    hub.seen.clear()
    hub.faults.stall_after = 1 << 20
    node.controller.manifests[VERSION] = known(hub)
    node.controller.fetches = (FetchOrder(version=VERSION, registry=True),)
    node.start_agent(HF_ENDPOINT=hub.base, LLMGW_PRIVATE_ADDRESSES="1")
    wait_for(lambda: hub.sent() >= 1 << 20)
    began = time.monotonic()
    assert node.end_agent() == 0
    assert time.monotonic() - began < 25  # it would hear after half a minute that nothing comes
    hub.faults.reset()
