"""kill -9 of one of three inference nodes under load: what it had not accepted succeeds, what it had ends once."""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass

import pytest

from tests.cluster.harness.cluster import MODEL, REFRESH, Cluster
from tests.cluster.harness.load import MOST, Ending, load, tally
from tests.cluster.live.test_chat import INFERENCE, ROUTERS
from tests.processes import fair, wait_for

RATE = 100
"""Requests a second."""
SLOW = 4000
"""Bytes a second of each answer of the node that will die."""


@dataclass
class Kill:
    """A node's gateway killed in the middle of it all, and what the model list did."""

    cluster: Cluster
    node: str
    alone: str = ""  # a model that only this node serves
    left_list_s: float = 0.0

    def __call__(self) -> None:
        self.cluster[self.node].kill("gateway")
        began = time.monotonic()
        wait_for(
            lambda: self.alone not in self.cluster.models(),
            seconds=fair(4 * REFRESH),
            what="the model to leave the list",
            every=0.1,
        )
        self.left_list_s = time.monotonic() - began


async def show(cluster: Cluster, *, seconds: float, kills: tuple[str, ...]) -> None:
    """The load with one kill after the other; asserts all of it and prints the figures."""
    began = time.monotonic()
    endings: list[Ending] = []
    left: list[float] = []
    sending = 0.0  # seconds
    for node in kills:
        cluster[node].link.slow(rate=SLOW)  # so that much is under way when it dies
        kill = Kill(cluster, node, alone=f"tiny-on-{node}")
        found = await load(
            cluster["e1"], cluster.key, rate=RATE, seconds=seconds, model=MODEL, meanwhile=kill, at=seconds / 2
        )
        endings += found
        sending += max(item.started_s for item in found)
        left.append(kill.left_list_s)
        cluster[node].link.slow()
        cluster[node].start("gateway")
        wait_for(
            lambda kill=kill: kill.alone in cluster.models(),  # type: ignore[misc]
            seconds=fair(4 * REFRESH),
            what="the model to be back in the list",
            every=0.1,
        )
    took = time.monotonic() - began

    reached = {
        item.request_id: [node for node in cluster.went(item.request_id) if node in INFERENCE] for item in endings
    }
    logged = Counter(
        line["request_id"]
        for name in INFERENCE
        for line in cluster[name].logged("gateway")
        if line.get("logger") == "access" and "request_id" in line
    )
    failed = [item for item in endings if not item.succeeded]
    other = [item for item in failed if not item.lost]
    print(f"\nkill -9 of {len(kills)} gateway(s) in {took:.0f} s on a machine with load {os.getloadavg()[0]:.0f}")  # noqa: T201
    print(f"  {len(endings) / sending:.0f} requests/s were sent, {RATE} were meant")  # noqa: T201
    print(f"  {len(endings)} requests: {tally(endings)}")  # noqa: T201
    print(f"  accepted and lost: {len(failed)}; reached two nodes: {sum(len(nodes) > 1 for nodes in reached.values())}")  # noqa: T201
    print(f"  the model list followed within {', '.join(f'{one:.1f}' for one in left)} s (refresh each {REFRESH} s)")  # noqa: T201
    print(f"  requests by node: {dict(Counter(node for nodes in reached.values() for node in nodes))}")  # noqa: T201

    assert not other, _who(other, reached)
    assert {name: nodes for name, nodes in reached.items() if len(nodes) > 1} == {}, "no request reached two nodes"
    assert [item for item in endings if item.succeeded and not reached[item.request_id]] == []
    assert max(logged[name] for name in reached) == 1, "nor do the nodes' own logs say so"
    assert {node for item in failed for node in reached[item.request_id]} <= set(kills), (
        "a node that lives loses nothing"
    )
    assert len(failed) <= len(kills) * MOST, "no more than what was under way"
    assert failed, "no kill hit a running request: this showed nothing"
    assert max(left) <= fair(REFRESH + 1)


def _who(endings: list[Ending], reached: dict[str, list[str]]) -> str:
    """Failures that no kill explains: code and node, how many, when within their load, how long they took."""
    kinds: dict[tuple[str, str], list[Ending]] = {}
    for item in endings:
        kinds.setdefault((item.code or str(item.status), ",".join(reached[item.request_id])), []).append(item)
    return "\n".join(
        f"{len(found)} {code} at {node or 'no node'}, sent {min(item.started_s for item in found):.0f} to "
        f"{max(item.started_s for item in found):.0f} s, ended after {max(item.took_s for item in found):.0f} s at most"
        for (code, node), found in kinds.items()
    )


@pytest.fixture
def pinned(cluster: Cluster) -> Cluster:
    """A model on each inference node alone, to see the list follow. Nodes are chosen in turn: also the slow one is."""
    for router in ROUTERS:
        put = cluster.admin("PUT", "/api/v1/router/strategy", via=router, json={"strategy": "round_robin"})
        assert put.status_code == 200
    for node in sorted(INFERENCE):
        cluster.serve(f"tiny-on-{node}", profile={"nodes": [node]})
    wait_for(
        lambda: {f"tiny-on-{node}" for node in INFERENCE} <= set(cluster.models()),
        seconds=fair(4 * REFRESH),
        what="all in the list",
    )
    return cluster


@pytest.mark.prove
async def test_what_a_killed_node_had_not_accepted_succeeds_and_what_it_had_ends_exactly_once(pinned: Cluster) -> None:
    await show(pinned, seconds=8, kills=("i2",))


@pytest.mark.prove
@pytest.mark.timeout(600)
async def test_the_same_for_each_of_the_three_nodes_and_6000_requests(pinned: Cluster) -> None:
    await show(pinned, seconds=20, kills=tuple(sorted(INFERENCE)))
