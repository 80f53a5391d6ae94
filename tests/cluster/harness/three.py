"""A small cluster whose models come and go: one node that is asked and decides, two that run engines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests import tiny
from tests.cluster.harness.cluster import Cluster
from tests.processes import fair, wait_for

LAYOUT = {"c1": "controller,edge,router", "i1": "inference", "i2": "inference"}
TIMES = {"LLMGW_SCALE_UP_AFTER": "2", "LLMGW_SCALE_DOWN_AFTER": "4", "LLMGW_FIRST_BYTE_TIMEOUT": "60"}


class Three(Cluster):
    """No model is there; a test makes those that it is about, and `mend` takes them away."""

    def __init__(self, **environ: str) -> None:
        super().__init__(**{**TIMES, **environ})

    def start(self) -> None:
        self.start_controller(LAYOUT["c1"])
        token = self.token(uses=len(LAYOUT))
        for name in ("i1", "i2"):
            node = self.add(name, LAYOUT[name])
            self.join(node, token)
            node.start(seconds=60)
        self.until_whole(seconds=60)

    def whole(self) -> bool:
        return (
            not any(node.missing() for node in self.nodes.values())
            and set(self.states().items()) == {(name, "online") for name in self.nodes}
            and not self.api().all("models")
        )

    def mend(self) -> None:
        self.links.mend()
        for node in self.nodes.values():
            node.thaw()
        for node in self.nodes.values():
            node.spawn()
        for node in self.nodes.values():
            node.until_ready()
        for row in self.api().all("models"):
            self.remove_model(row["name"])

    def chat(self, model: str = "tiny", *, via: str = "c1", **more: Any) -> Any:
        return super().chat(model, via=via, **more)

    def model(self, name: str, *, profile: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
        """Put a model into the catalogue and do not wait; by default a tiny one that runs on demand."""
        values = {
            "name": name,
            "replicas": 0,
            "max_replicas": 1,
            "weights_path": str(tiny.tiny_gguf(name=name)),
            "profile": {"name": "cpu", "context": 256, "slots": 2, "threads": 1, **(profile or {})},
            **fields,
        }
        made = dict(self.api().post("models", values))
        wait_for(lambda: name in self.models("c1"), seconds=fair(15), what=f"{name} to be known", every=0.05)
        return made

    def gone(self, name: str, *, seconds: float = 30) -> None:
        """Wait until no replica of a model is left."""
        wait_for(lambda: not self.replicas(name), seconds=fair(seconds), what=f"{name} to be at rest", every=0.1)


def running() -> Iterator[Three]:
    """A cluster for as long as the generator lives."""
    cluster = Three()
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.close()
