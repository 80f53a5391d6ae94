"""The same fleet as rows of a database, to see what reading it costs beside deciding."""

from __future__ import annotations

import logging
import os
import time
from dataclasses import asdict
from typing import Any

from cluster.domain.types import NodeView, ReplicaView, World

RUNS = 2
BATCH = 500


def read_rows(world: World) -> dict[str, Any]:
    """Fill an SQLite database with this world's nodes and replicas, and as many models; read it as the reconciler does.

    CPU and wall seconds of the fastest of some runs; `queries`: how many it takes.
    """
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import django

    django.setup()
    logging.disable(logging.CRITICAL)  # there is no broker, and nobody to wake up
    from django.core.management import call_command
    from django.db import connection
    from django.test.utils import CaptureQueriesContext

    from cluster import selectors

    call_command("migrate", verbosity=0)
    call_command("flush", verbosity=0, interactive=False)
    _fill(world)
    best = {"cpu": float("inf"), "wall": float("inf")}
    for _ in range(RUNS):
        cpu, wall = time.process_time(), time.perf_counter()
        read = selectors.world()
        best = {
            "cpu": min(best["cpu"], time.process_time() - cpu),
            "wall": min(best["wall"], time.perf_counter() - wall),
        }
        assert len(read.nodes) == len(world.nodes)
        assert len(read.replicas) == len(world.replicas)
    with CaptureQueriesContext(connection) as queries:
        selectors.world()
    return {**best, "queries": len(queries)}


def _fill(world: World) -> None:
    from cluster.models import Node, Replica
    from tests.rows import a_model

    profiles = {}
    for model in world.models:  # before the nodes: a model that is added is looked at against all that are there
        row = a_model(model.name, replicas=0)
        profiles[model.id] = row.profiles.get()
    Node.objects.bulk_create([Node(**_node(item)) for item in world.nodes], batch_size=BATCH)
    Replica.objects.bulk_create(
        [_replica(Replica, item, profiles[item.model_id]) for item in world.replicas], batch_size=BATCH
    )


def _node(node: NodeView) -> dict[str, Any]:
    cards = [
        {"uuid": card.uuid, "name": card.klass, "memory_total": card.memory_total, "memory_foreign": card.foreign}
        for card in node.cards
    ]
    return {
        "id": node.id,
        "name": node.name,
        "public_key": node.id,
        "hardware": {
            "cores": node.cores,
            "memory_total": node.memory_total,
            "memory_available": node.memory_available,
            "cards": cards,
        },
        "engines": [{"kind": kind, "problem": problem} for kind, problem in node.engines.items()],
        "labels": dict(node.labels),
        "fabric": node.fabric,
    }


def _replica(row: Any, replica: ReplicaView, profile: Any) -> Any:
    return row(
        id=replica.id,
        model_id=profile.model_id,
        profile=profile,
        node_id=replica.node_id,
        slot=replica.slot,
        serve={},
        digest=replica.digest,
        shares=[asdict(share) for share in replica.shares],
        state=replica.state.value,
    )
