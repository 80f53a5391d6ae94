"""Rows for tests of services, selectors and endpoints, made by the services themselves where there is one."""

from __future__ import annotations

import secrets
from datetime import timedelta
from itertools import count
from typing import Any

from django.test import Client
from django.utils import timezone

from catalog.models import Model, Profile
from cluster import selectors
from cluster.domain import signing
from cluster.models import Node, Replica
from cluster.services import apply, identity, nodes
from cluster.wire import EngineBuild, Hardware, Heartbeat, ReplicaReport, WantedReplica, from_dict, to_dict
from llmgw_site.lib.units import GIB

ACTOR = "test"
HARDWARE = Hardware(cores=4, memory_total=8 * GIB, memory_available=8 * GIB)
ENGINES = (EngineBuild(kind="llama.cpp", version="1"),)
_numbers = count(1)


def a_model_row(name: str = "small", *, profile: dict[str, Any] | None = None, **fields: Any) -> Model:
    """A model with one profile, without a look at its weights."""
    model = Model.objects.create(name=name, **{"weights_path": f"/models/{name}.gguf", "weights_size": 1000, **fields})
    Profile.objects.create(model=model, **{"name": "default", "memory": GIB, **(profile or {})})
    return model


class Machine:
    """A node as the controllers meet it: it signs calls with its own key and knows its counter."""

    def __init__(self, name: str | None = None) -> None:
        self.own = identity.ensure_identity()
        self.private = secrets.token_hex(32)
        self.node = nodes.enrol(
            name=name or f"node{next(_numbers)}",
            public_key=signing.public_hex(self.private),
            address="http://127.0.0.1:1",
            actor=ACTOR,
        )
        self.key = signing.pairwise_key(self.private, self.own.public_key)
        self.counter = count(1)
        self.boot = secrets.token_hex(4)
        self.nonce = ""

    def beat(self, *reports: ReplicaReport, **fields: Any) -> Heartbeat:
        values = {"hardware": HARDWARE, "engines": ENGINES, "sent_at": 0.0, "boot_id": self.boot, **fields}
        return Heartbeat(node_id=self.node.id, replicas=reports, **values)

    def heartbeat(self, *reports: ReplicaReport, **fields: Any) -> list[WantedReplica]:
        """A heartbeat straight into the service; what the node shall do."""
        wanted = nodes.heartbeat(node=self.node, beat=self.beat(*reports, **fields), now=selectors.database_now())
        return list(wanted.replicas)

    def headers(self, method: str, path: str, body: bytes | None, **wrong: Any) -> dict[str, str]:
        claims = {"node": self.node.id, "counter": next(self.counter), **wrong}
        if "now" not in claims:
            claims["now"] = selectors.database_now()
        signed = signing.sign(self.key, method=method, path=path, boot=self.boot, body=body, **claims)
        self.nonce = signed[signing.SIGNATURE]
        return {"x-llmgw-listener": "node", **signed}

    def post(self, client: Client, path: str, body: bytes, **wrong: Any) -> Any:
        return client.post(
            path, body, content_type="application/json", headers=self.headers("POST", path, body, **wrong)
        )

    def get(self, client: Client, path: str) -> Any:
        return client.get(path, headers=self.headers("GET", path, b""))

    def proves(self, response: Any) -> bool:
        """Whether the last answer is the controllers' answer to our last call."""
        return signing.verify_answer(
            self.key,
            response.headers.get(signing.SIGNATURE, ""),
            nonce=self.nonce,
            status=response.status_code,
            body=response.content,
        )


def tick() -> apply.Applied:
    """One look of the reconciler."""
    now = selectors.database_now()
    plan, _ = selectors.statuses(selectors.world(now), now)
    return apply.commit(plan)


def report(row: Replica, state: str, **fields: Any) -> ReplicaReport:
    return ReplicaReport(replica_id=row.id, generation=row.generation, state=state, **fields)


def a_ready_replica(name: str = "small") -> tuple[Machine, Replica]:
    """A model placed on a node that says it is ready."""
    a_model_row(name)
    machine = Machine()
    machine.heartbeat()
    tick()
    row = Replica.objects.get(model__name=name)
    machine.heartbeat(report(row, "ready", port=1234, pid=42))
    row.refresh_from_db()
    return machine, row


def age(node: Node, seconds: float) -> None:
    """Let a node's last heartbeat be so long ago."""
    Node.objects.filter(id=node.id).update(last_seen_at=timezone.now() - timedelta(seconds=seconds))


__all__ = ["ACTOR", "Machine", "a_model_row", "a_ready_replica", "age", "from_dict", "report", "tick", "to_dict"]
