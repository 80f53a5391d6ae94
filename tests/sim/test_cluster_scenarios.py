"""Named scenarios in the simulated cluster: what an administrator is promised, played step by step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from cluster.domain.states import NodeState
from cluster.domain.types import ModelView, ProfileView
from llmgw_site.lib.units import GIB
from tests.sim.clock import Clock
from tests.sim.cluster import OFFLINE_AFTER, READY, STALE_AFTER, Cluster
from tests.sim.node import Node


@pytest.fixture
def cluster() -> Cluster:
    """Three nodes and one model with one replica, at rest."""
    cluster = Cluster(Clock(1))
    for name in ("a", "b", "c"):
        cluster.add_node(name)
    profile = ProfileView(id="prof", name="cpu", engine="llama.cpp", digest="1", memory=GIB)
    cluster.models["m"] = ModelView(id="m", name="m", base=1, profiles=(profile,))
    cluster.clock.run(40.0)
    assert where(cluster) == ["a"]
    return cluster


def where(cluster: Cluster) -> list[str]:
    """The nodes of replicas that shall run and are ready, as rows have it."""
    world = cluster.world()
    return sorted(r.node_id for r in world.replicas if r.run and world.state(r) is READY)


def engines(cluster: Cluster) -> dict[str, int]:
    """How many engines truly run, by node."""
    return {name: len(node.engines) for name, node in cluster.nodes.items() if node.engines}


def state(cluster: Cluster, name: str) -> NodeState:
    node = cluster.world().node(name)
    assert node is not None
    return node.state


def cut(cluster: Cluster, name: str, how: bool) -> None:
    for controller in cluster.names:
        cluster.links[name, controller].cut = how


def watch(cluster: Cluster, seconds: float, holds: Callable[[], bool]) -> None:
    """Let time go by in which something always holds."""
    for _ in range(int(seconds)):
        cluster.clock.run(1.0)
        assert holds(), "\n".join(cluster.log[-20:])


def test_f66_a_partitioned_node_is_replaced_and_its_surplus_stopped_when_it_returns(cluster: Cluster) -> None:
    cut(cluster, "a", True)
    cluster.clock.run(STALE_AFTER + 11)
    assert state(cluster, "a") is NodeState.STALE
    assert engines(cluster) == {"a": 1}  # stale removes nothing and places nothing
    cluster.clock.run(OFFLINE_AFTER - STALE_AFTER + 20)
    assert where(cluster) == ["b"]
    assert engines(cluster) == {"a": 1, "b": 1}  # a cut-off node serves on
    cut(cluster, "a", False)
    cluster.clock.run(40.0)
    assert state(cluster, "a") is NodeState.ONLINE
    assert engines(cluster) == {"b": 1}
    cluster.models["m"] = replace(cluster.models["m"], base=3)
    cluster.clock.run(30.0)
    assert where(cluster) == ["a", "b", "c"]  # and new ones can start there


def test_a_node_that_returns_before_the_other_is_ready_keeps_its_engine(cluster: Cluster) -> None:
    cluster.nodes["b"].slow_load = 60.0
    cut(cluster, "a", True)
    cluster.clock.run(OFFLINE_AFTER + 20)
    assert engines(cluster) == {"a": 1, "b": 1}
    (pid,) = cluster.nodes["a"].engines
    cut(cluster, "a", False)
    cluster.clock.run(60.0)
    assert engines(cluster) == {"a": 1}
    assert list(cluster.nodes["a"].engines) == [pid]  # the very engine: adopted, not started anew


def test_f05_after_a_stall_of_all_controllers_nobody_is_dead_and_nothing_moved(cluster: Cluster) -> None:
    for name in cluster.names:
        cluster.stall(name, 600.0)
    cluster.clock.run(600.0)
    (pid,) = cluster.nodes["a"].engines
    watch(cluster, 120, lambda: all(state(cluster, name) is NodeState.ONLINE for name in "abc"))
    assert list(cluster.nodes["a"].engines) == [pid]
    assert where(cluster) == ["a"]
    assert len(cluster.replicas) == 1


def test_with_one_of_two_controllers_stalled_nodes_report_to_the_other(cluster: Cluster) -> None:
    cluster.stall("c1", 600.0)
    watch(cluster, 500, lambda: all(state(cluster, name) is not NodeState.OFFLINE for name in "abc"))
    cluster.models["m"] = replace(cluster.models["m"], base=2)
    cluster.clock.run(40.0)
    assert len(where(cluster)) == 2


def test_the_clock_of_the_database_jumps_and_nobody_is_dead(cluster: Cluster) -> None:
    for step in (3600.0, -3600.0, 86_400.0):
        cluster.set_database_clock(step)
        watch(cluster, 100, lambda: all(state(cluster, name) is NodeState.ONLINE for name in "abc"))
    assert where(cluster) == ["a"]
    assert len(cluster.replicas) == 1


def test_an_agent_that_is_killed_and_started_again_costs_no_engine(cluster: Cluster) -> None:
    (pid,) = cluster.nodes["a"].engines
    for pause in (1.0, 20.0, 50.0):
        cluster.nodes["a"].kill_agent()
        cluster.clock.run(pause)
        cluster.nodes["a"].start_agent()
        cluster.clock.run(30.0)
        assert list(cluster.nodes["a"].engines) == [pid]
        assert where(cluster) == ["a"]


def test_a_node_that_loses_power_is_replaced_and_comes_back_empty(cluster: Cluster) -> None:
    cluster.nodes["a"].power_off()
    cluster.clock.run(OFFLINE_AFTER + 30)
    assert where(cluster) == ["b"]
    cluster.nodes["a"].power_on()
    cluster.clock.run(60.0)
    assert engines(cluster) == {"b": 1}
    assert len(cluster.replicas) == 1


def test_a_node_that_was_removed_stops_its_engines(cluster: Cluster) -> None:
    cluster.remove_node("a")
    cluster.clock.run(40.0)
    assert engines(cluster) == {"b": 1}
    assert cluster.nodes["a"].removed


def test_a_drained_node_is_left_without_a_moment_in_which_nobody_serves(cluster: Cluster) -> None:
    cluster.change_node("a", maintenance="drained", maintenance_why="disk")
    watch(cluster, 60, lambda: len(where(cluster)) >= 1)
    assert engines(cluster) == {"b": 1}
    cluster.change_node("b", maintenance="drained")
    cluster.change_node("c", maintenance="cordoned")
    watch(cluster, 60, lambda: where(cluster) == ["b"])  # nowhere to go: it serves on
    cluster.change_node("c", maintenance="")
    watch(cluster, 60, lambda: len(where(cluster)) >= 1)
    assert engines(cluster) == {"c": 1}


def on_cards(*cards: str, memory: int = 8 * GIB) -> tuple[Cluster, Node]:
    """One node, and one model whose replica uses one card."""
    cluster = Cluster(Clock(2))
    node = cluster.add_node("gpu", memory=memory, cards=cards)
    profile = ProfileView(
        id="prof", name="gpu", engine="llama.cpp", digest="1", memory=GIB, cards=1, card_memory=10 * GIB
    )
    cluster.models["m"] = ModelView(id="m", name="m", profiles=(profile,))
    cluster.clock.run(30.0)
    return cluster, node


def test_a_drained_card_is_left_without_a_moment_in_which_nobody_serves() -> None:
    cluster, node = on_cards("x", "y")
    assert [engine.serve.cards for engine in node.engines.values()] == [("x",)]
    cluster.change_card("gpu", "x", maintenance="drained")
    watch(cluster, 60, lambda: where(cluster) != [])
    assert [engine.serve.cards for engine in node.engines.values()] == [("y",)]


def test_a_drained_card_is_given_up_by_an_engine_that_starts_anew_where_there_is_no_room_for_two() -> None:
    cluster, node = on_cards("x", "y", memory=int(1.7 * GIB))
    cluster.change_card("gpu", "x", maintenance="drained")
    cluster.clock.run(60.0)
    assert where(cluster) == ["gpu"]
    assert [engine.serve.cards for engine in node.engines.values()] == [("y",)]


def test_a_start_that_fails_for_good_is_tried_elsewhere_and_the_failed_one_goes(cluster: Cluster) -> None:
    cluster.nodes["a"].refuses["m"] = True
    cluster.nodes["a"].crash(next(iter(cluster.nodes["a"].engines.values())))
    cluster.clock.run(60.0)
    assert where(cluster) == ["b"]
    assert [r.node_id for r in cluster.replicas.values()] == ["b"]


def test_a_node_whose_inference_module_is_switched_off_is_left_and_used_again(cluster: Cluster) -> None:
    cluster.nodes["a"].switch_inference(False)
    cluster.clock.run(40.0)
    assert engines(cluster) == {"b": 1}
    cluster.nodes["a"].switch_inference(True)
    cluster.clock.run(5.0)
    cluster.models["m"] = replace(cluster.models["m"], base=3)
    cluster.clock.run(40.0)
    assert where(cluster) == ["a", "b", "c"]
