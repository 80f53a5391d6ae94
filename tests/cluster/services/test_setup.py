"""cluster.services.setup: one row, checked as a whole, recorded, and changed by one at a time."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from django.db import connection

from catalog.models import Event
from cluster import signals
from cluster.domain.modules import ModuleReport
from cluster.models import ClusterSetup, Node
from cluster.selectors import world
from cluster.services import nodes, setup
from llmgw_site.lib.errors import Refused
from tests.cluster.rows import ACTOR, Machine

pytestmark = pytest.mark.django_db
HEAD = ("controller", "router", "edge", "inference", "data")


def a_member(name: str, *modules: str, **fields: Any) -> Machine:
    """A node that has reported these modules as running."""
    machine = Machine(name)
    machine.heartbeat(modules=tuple(ModuleReport(name=item) for item in modules), **fields)
    machine.node.refresh_from_db()
    return machine


@pytest.fixture
def head() -> Machine:
    return a_member("head", *HEAD)


def put(**fields: Any) -> setup.SetupView:
    return setup.put(**{"actor": ACTOR, "controller_tier": [], "nodes": {}, **fields})


def test_without_a_setup_every_node_goes_by_its_own_roles(head: Machine) -> None:
    assert setup.get() == setup.SetupView(controller_tier=(), nodes={}, version=0)
    assert setup.roles_for(head.node) is None


def test_a_setup_names_nodes_by_name_or_id_and_shows_them_by_name(head: Machine) -> None:
    worker = a_member("worker", "inference")
    view = put(nodes={"worker": ["data", "inference", "data"], head.node.id: list(HEAD)})
    assert view.nodes == {
        "head": ("controller", "edge", "router", "inference", "data"),
        "worker": ("inference", "data"),
    }
    assert (view.version, view.updated_by) == (1, ACTOR)
    assert setup.roles_for(worker.node) == ("inference", "data")
    assert setup.get() == view


def test_every_controller_runs_the_tier(head: Machine) -> None:
    worker = a_member("worker", "inference", roles=("inference",))
    put(controller_tier=["cloud"])
    assert setup.roles_for(head.node) == ("controller", "edge", "router", "inference", "cloud", "data")
    assert setup.roles_for(worker.node) is None


def test_an_empty_setup_clears_it_and_the_version_still_rises(head: Machine) -> None:
    put(nodes={"head": list(HEAD)})
    assert put().version == 2
    assert setup.roles_for(head.node) is None
    assert [e.message for e in Event.objects.filter(kind="cluster_setup_changed").order_by("at", "id")] == [
        "the cluster setup was changed",
        "the cluster setup was cleared",
    ]


@pytest.mark.usefixtures("head")
def test_a_change_is_recorded_from_what_to_what() -> None:
    put(nodes={"head": list(HEAD)}, why="more edges")
    event = Event.objects.get(kind="cluster_setup_changed")
    assert (event.actor, event.why) == (ACTOR, "more edges")
    assert event.before == {"controller_tier": [], "nodes": {}, "version": 0}
    assert event.after
    assert event.after["nodes"] == {"head": ["controller", "edge", "router", "inference", "data"]}


@pytest.mark.usefixtures("head")
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"controller_tier": ["king"]}, "unknown_role"),
        ({"nodes": {"nobody": ["edge"]}}, "unknown_node"),
        ({"nodes": {"head": ["inference"]}}, "setup_without_controller"),
        ({"nodes": {"head": ["controller", "edge"]}}, "edge_without_upstream"),
        ({"nodes": {"head": list(HEAD)}, "version": 7}, "setup_changed"),
    ],
)
def test_what_is_refused_changes_nothing(fields: dict[str, Any], code: str) -> None:
    put(nodes={"head": list(HEAD)})
    before = ClusterSetup.objects.values().get()
    with pytest.raises(Refused) as refused:
        put(**fields)
    assert refused.value.code == code
    assert ClusterSetup.objects.values().get() == before
    assert Event.objects.filter(kind="cluster_setup_changed").count() == 1


def test_a_joined_node_without_the_cluster_s_stores_is_no_controller(head: Machine) -> None:
    joined = Machine("joined")
    why = ModuleReport(name="controller", state="unavailable", code="store_not_shared", message="no database")
    joined.heartbeat(modules=(why, ModuleReport(name="inference")))
    with pytest.raises(Refused, match="joined has no way to the cluster's stores"):
        put(nodes={"head": ["router"], "joined": ["controller"]})


def test_a_node_that_stands_twice_is_refused(head: Machine) -> None:
    with pytest.raises(Refused, match="stands twice"):
        put(nodes={"head": list(HEAD), head.node.id: list(HEAD)})


def test_a_removed_node_is_out_of_the_setup(head: Machine) -> None:
    worker = a_member("worker", "inference")
    put(nodes={"worker": ["inference"]})
    nodes.remove(node_id=worker.node.id, actor=ACTOR)
    assert setup.get().nodes == {}
    put(version=1)  # and nobody has to name it to change the rest


def test_placement_knows_at_once_what_the_setup_switches_off(head: Machine) -> None:
    worker = a_member("worker", "inference")
    assert {n.name for n in world().nodes if "inference" in n.modules} == {"head", "worker"}
    put(nodes={"worker": ["data"]})
    assert {n.name for n in world().nodes if "inference" in n.modules} == {"head"}
    worker.heartbeat(modules=())  # it has restarted and lists nothing
    put(nodes={"worker": []})
    assert {n.name for n in world().nodes if "inference" in n.modules} == {"head"}


def test_a_node_of_before_modules_runs_inference() -> None:
    Machine("old").heartbeat()
    assert [sorted(node.modules) for node in world().nodes] == [["edge", "inference", "router"]]


@pytest.mark.django_db(transaction=True)
def test_those_who_should_know_are_told_after_the_commit() -> None:
    a_member("head", *HEAD)
    heard: list[int] = []

    def listen(**kwargs: Any) -> None:
        heard.append(setup.get().version)

    signals.setup_changed.connect(listen)
    try:
        put(nodes={"head": list(HEAD)})
    finally:
        signals.setup_changed.disconnect(listen)
    assert heard == [1]


@pytest.mark.django_db(transaction=True)
def test_of_many_changes_from_the_same_version_one_comes_through() -> None:
    a_member("head", *HEAD)
    put()
    gate = threading.Barrier(4)
    outcomes: list[str] = []

    def change(number: int) -> None:
        try:
            gate.wait()
            put(nodes={"head": list(HEAD)}, version=1, actor=f"user:{number}")
            outcomes.append("done")
        except Refused as refused:
            outcomes.append(refused.code)
        finally:
            connection.close()

    threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["done", "setup_changed", "setup_changed", "setup_changed"]
    assert setup.get().version == 2
    assert Event.objects.filter(kind="cluster_setup_changed").count() == 2
    assert Node.objects.count() == 1
