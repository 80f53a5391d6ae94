"""Two machines that speak TLS: the first fetches a model from the hub, the second takes it from the first, and both serve it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmgw_site.lib import files
from tests import tiny
from tests.e2e.test_second_node import llmgw, run_printed
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.hub.serve import running
from tests.processes import fair, wait_for
from tests.stack import Stack

pytestmark = [pytest.mark.prove, pytest.mark.slow, pytest.mark.live("up"), pytest.mark.timeout(300)]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as hub:
        hub.add(Repo("org/small-GGUF")).commit({"small-F16.gguf": tiny.tiny_gguf().read_bytes(), "README.md": b"#"})
        yield hub


def machine(folder: Path, **settings: str) -> Stack:
    stack = Stack(folder / "d", LLMGW_HEARTBEAT="1", LLMGW_RECONCILE="1", LLMGW_QUICKSTART="0", **settings)
    for name in ("LLMGW_QUICKSTART_MODEL", "LLMGW_QUICKSTART_WEIGHTS"):
        stack.environ.pop(name)
    return stack


@pytest.fixture
def machines(hub: Hub) -> Iterator[tuple[Stack, Stack]]:
    """The second one keeps no mirror, and knows of no registry that answers."""
    folders = [Path(tempfile.mkdtemp(prefix="llmgw-up-")) for _ in range(2)]
    first = machine(folders[0], HF_ENDPOINT=hub.base, LLMGW_PRIVATE_ADDRESSES="1")
    second = machine(
        folders[1], HF_ENDPOINT="http://127.0.0.1:1", LLMGW_NODE_NAME="second", LLMGW_ROLES="inference,router,edge"
    )
    for stack in (first, second):
        stack.environ["LLMGW_NODE_ADDRESS"] = f"https://127.0.0.1:{stack.node_port}"
    try:
        yield first, second
    finally:
        for stack in (second, first):
            stack.destroy()
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def engine(stack: Stack, model: str) -> Any:
    found = files.read_json(stack.data / "cluster" / "engines.json") or {}
    return next((item for item in found.get("engines", ()) if (item["model"], item["state"]) == (model, "ready")), None)


def whole(stack: Stack) -> list[Path]:
    """Folders of whole versions."""
    return [mark.parent for mark in (stack.data / "weights").glob("*/whole")]


def test_a_second_machine_takes_weights_from_the_first(machines: tuple[Stack, Stack], hub: Hub) -> None:
    first, second = machines
    first.start()
    run_printed(llmgw(first, "node", "token").strip(), second)
    wait_for(
        lambda: [row for row in first.api().all("nodes") if (row["name"], row["state"]) == ("second", "online")],
        seconds=fair(40), what=f"the second node: {second.tail()}", every=0.2,
    )  # fmt: skip
    args = {"source": ["org/small-GGUF"], "name": "small", "way": "processor"}
    job = first.api().post("jobs", {"kind": "serve", "args": args})
    wait_for(
        lambda: first.api().get(f"jobs/{job['id']}")["state"] == "done", seconds=fair(90), every=0.2,
        what=f"the model to be served: {first.tail()}",
    )  # fmt: skip
    fetched = hub.sent()
    row = first.api().find("models", "small", noun="model")
    first.api().patch(f"models/{row['id']}", {"replicas": 2})
    wait_for(lambda: engine(second, "small"), seconds=fair(60), what=f"an engine there: {second.tail()}", every=0.2)
    assert hub.sent() == fetched
    (mine,), (theirs,) = whole(second), whole(first)
    assert mine.name == theirs.name
    assert (mine / "files" / "small-F16.gguf").read_bytes() == tiny.tiny_gguf().read_bytes()
    assert first.chat(model="small").json()["choices"][0]["message"]["content"].strip() == tiny.TEXT
