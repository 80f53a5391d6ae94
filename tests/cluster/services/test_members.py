"""cluster.services.members: what the module map says, and when it is a new one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from cluster import selectors
from cluster.domain.modules import ModuleReport
from cluster.models import Certificate, Node, PublishedMap
from cluster.services import authority, identity, members, nodes
from cluster.services.locks import plan_lock
from tests.cluster.rows import Machine, age
from tests.cluster.services.test_joining import a_csr

pytestmark = pytest.mark.django_db
RUNNING = (ModuleReport(name="inference"), ModuleReport(name="router"))


def test_the_map_says_what_others_need_to_know_of_a_node() -> None:
    machine = Machine("alpha")
    machine.heartbeat(modules=RUNNING, address="http://10.0.0.1:8880")
    version = members.publish().version
    found = members.current_map()
    assert (found.version, version) == (version, f"{identity.ensure_identity().epoch}:1")
    (node,) = found.nodes
    assert (node.node_id, node.name, node.address) == (machine.node.id, "alpha", "http://10.0.0.1:8880")
    assert (node.public_key, node.state, node.modules) == (machine.node.public_key, "online", RUNNING)
    assert abs((node.last_seen_at or 0) - selectors.database_now()) < 60


def test_the_same_map_keeps_its_version_and_its_times_are_refreshed_now_and_then() -> None:
    machine = Machine()
    machine.heartbeat(modules=RUNNING)
    first = members.publish()
    machine.heartbeat(modules=RUNNING)
    assert members.publish() == members.Published(first.version, news=False)
    PublishedMap.objects.update(made_at=PublishedMap.objects.get().made_at - timedelta(seconds=31))
    later = members.publish()
    assert later.version != first.version
    assert not later.news


@pytest.mark.parametrize(("count", "seconds"), [(1, 30.0), (100, 30.0), (500, 150.0), (1000, 300.0), (9999, 300.0)])
def test_large_clusters_refresh_more_seldom(count: int, seconds: float) -> None:
    assert members.refresh_after(count) == seconds


def test_everything_that_nodes_act_on_makes_a_new_version() -> None:
    machine, other = Machine("alpha"), Machine("beta")
    for each in (machine, other):
        each.heartbeat(modules=RUNNING)
    versions = [members.publish().version]

    def changed() -> bool:
        versions.append(members.publish().version)
        return versions[-1] != versions[-2]

    machine.heartbeat(modules=RUNNING, address="http://10.0.0.7:8880")
    assert changed()
    machine.heartbeat(modules=RUNNING[:1])
    assert changed()
    machine.heartbeat(modules=(ModuleReport(name="inference", state="stopped"),))
    assert changed()
    Node.objects.filter(id=machine.node.id).update(maintenance="cordoned", maintenance_why="new fans")
    assert changed()
    Machine("gamma")
    assert changed()
    nodes.remove(node_id=other.node.id, actor="t")
    assert changed()
    assert not changed()


def test_a_removed_node_leaves_the_map_and_its_certificate_is_on_the_list_that_every_node_holds() -> None:
    machine = Machine()
    machine.heartbeat()
    authority.issue(csr=a_csr(), node=machine.node, now=selectors.database_now())
    authority.issue(csr=a_csr(), node=machine.node, now=selectors.database_now() - 2 * 366 * 86400)  # long expired
    members.publish()
    nodes.remove(node_id=machine.node.id, actor="t")
    members.publish()
    found = members.current_map()
    assert found.nodes == ()
    assert found.removed == (machine.node.id,)
    assert len(found.revoked) == 1
    assert machine.node.public_key not in PublishedMap.objects.get().payload


def test_a_node_that_never_reported_is_offline_and_runs_nothing() -> None:
    Machine()
    members.publish()
    (node,) = members.current_map().nodes
    assert (node.state, node.modules) == ("offline", ())


def test_a_node_of_before_modules_runs_what_all_nodes_ran_then() -> None:
    Machine().heartbeat()
    members.publish()
    (node,) = members.current_map().nodes
    assert [module.name for module in node.modules] == ["inference", "router", "edge"]


def test_a_node_that_knows_modules_and_reports_none_runs_none() -> None:
    """Such as one that the setup gives an empty list, after its next start: what was stopped is listed no more."""
    Machine().heartbeat(roles=("inference",), modules=())
    members.publish()
    (node,) = members.current_map().nodes
    assert node.modules == ()
    (view,) = selectors.world().nodes
    assert view.modules == frozenset()


def test_a_certificate_that_was_issued_while_its_node_was_taken_out_is_on_the_list() -> None:
    machine = Machine()
    nodes.remove(node_id=machine.node.id, actor="t")
    authority.issue(csr=a_csr(), node=machine.node, now=selectors.database_now())  # read before, written after
    members.publish()
    assert members.current_map().revoked == tuple(Certificate.objects.values_list("serial", flat=True))


def test_reported_modules_are_bounded() -> None:
    machine = Machine()
    machine.heartbeat(modules=tuple(ModuleReport(name="m" * 500, message="x" * 9999) for _ in range(500)))
    (node,) = Node.objects.all()
    assert len(node.modules) == members.MOST_MODULES
    assert len(str(node.modules)) < 100_000


def test_a_database_that_was_made_anew_starts_a_new_row_of_versions() -> None:
    Machine().heartbeat()
    before = members.publish().version
    PublishedMap.objects.update(epoch="epoch_of_another_store")
    again = members.publish()
    assert again == members.Published(before, news=True)


def test_who_publishes_while_the_store_gets_another_name_counts_under_the_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """He read the old name before he waited for the lock. Else the map of the new name would be followed by one of the old."""
    Machine().heartbeat()
    before = identity.ensure_identity().epoch

    @contextmanager
    def renamed_first() -> Iterator[None]:
        identity.begin_epoch(after=before)
        with plan_lock():
            yield

    monkeypatch.setattr(members, "plan_lock", renamed_first)
    version = members.publish().version
    assert version == f"{identity.ensure_identity().epoch}:1"
    assert not version.startswith(f"{before}:")


def test_the_map_of_many_nodes_costs_as_many_queries_as_that_of_one() -> None:
    costs = []
    for number in (1, 30):
        for _ in range(number):
            Machine().heartbeat(modules=RUNNING)
        members.publish()
        with CaptureQueriesContext(connection) as queries:
            members.publish()
        costs.append(len(queries))
    assert costs[0] == costs[1] <= 6


def test_a_map_is_published_where_there_is_none_and_remembered_by_its_version() -> None:
    machine = Machine()
    assert members.published_version() == ""
    assert members.current_map().node(machine.node.id) is not None
    version = members.published_version()
    assert members.payload(version) is members.payload(version)
    age(machine.node, 0)
    newer = members.publish().version
    assert members.payload("epoch:0")[0] == newer
