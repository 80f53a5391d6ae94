"""What the tests of serving from a registry share: the job, and a node that fetches and keeps weights."""

from __future__ import annotations

from typing import Any

from catalog.models import Version
from cluster.domain.modules import ModuleReport
from cluster.models import Job
from cluster.services import jobs as rows
from cluster.wire import Heartbeat, ReplicaReport, WeightsReport
from tests.cluster.rows import Machine


def opened(source: str = "org/tiny-GGUF", **args: Any) -> Job:
    args = {"name": "m", "source": [source], **args}
    return rows.open(kind="serve", subject=args["name"], args=args, actor="user:x")


def whole(machine: Machine, version: Version) -> None:
    """As the node reports a version that it has fetched."""
    machine.heartbeat(weights_mark=f"mark {version.pk}", weights=(WeightsReport(path=version.pk, size=version.size),))


class Keeper(Machine):
    """A node that runs engines, and fetches and keeps weights."""

    def beat(self, *reports: ReplicaReport, **fields: Any) -> Heartbeat:
        modules = tuple(ModuleReport(name=name) for name in ("inference", "data", "edge", "router"))
        return super().beat(*reports, **{"modules": modules, "fetches": (), "address": "http://one", **fields})
