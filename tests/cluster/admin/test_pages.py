"""Console pages of nodes, replicas, jobs and usage: they open, show what matters, and actions call the services."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from cluster.domain.modules import ModuleReport
from cluster.domain.states import JobState
from cluster.models import Job, JoinToken, Node, Replica
from cluster.services import jobs, joining, maintenance, setup
from routing import services
from tests.cluster.rows import Machine, a_ready_replica, report
from tests.routing.test_services import a_record
from tests.rows import a_user

pytestmark = pytest.mark.django_db
LISTS = [
    "cluster/node", "cluster/replica", "cluster/job", "routing/usagerecord", "cluster/jointoken", "cluster/clustersetup",
]  # fmt: skip


@pytest.fixture
def world() -> Any:
    machine, row = a_ready_replica()
    machine.heartbeat(
        report(row, "failed", code="oom", message="no <memory>", log_tail="<b>boom</b>"), problems=("disk",)
    )
    services.store_usage(node_id=machine.node.id, records=[a_record("rec_a", model_asked="small")])
    job = jobs.open(kind="serve", subject="m", args={"name": "m"}, actor="t")
    running = [{"name": name, "state": "running", "code": "", "message": ""} for name in ("controller", "router")]
    Node.objects.filter(id=machine.node.id).update(modules=running)
    setup.put(actor="user:ann", controller_tier=["controller"], nodes={machine.node.id: ["controller", "router"]})
    return {
        "cluster/node": machine.node.id,
        "cluster/replica": row.id,
        "cluster/job": job.id,
        "routing/usagerecord": "rec_a",
        "cluster/jointoken": joining.issue(actor="user:ann").token.id,
        "cluster/clustersetup": "setup",
    }


@pytest.mark.parametrize("path", LISTS)
def test_lists_and_pages_open(admin_client: Client, world: Any, path: str) -> None:
    assert admin_client.get(f"/admin/{path}/").status_code == 200
    assert admin_client.get(f"/admin/{path}/{world[path]}/change/").status_code == 200


@pytest.mark.parametrize("path", LISTS)
def test_nothing_can_be_written_by_hand(admin_client: Client, world: Any, path: str) -> None:
    assert admin_client.get(f"/admin/{path}/add/").status_code == 403
    assert admin_client.post(f"/admin/{path}/{world[path]}/delete/", {"post": "yes"}).status_code == 403
    assert admin_client.post(f"/admin/{path}/{world[path]}/change/", {}).status_code == 403


def test_a_replica_says_why_it_is_here_and_what_its_engine_said_last(admin_client: Client, world: Any) -> None:
    page = admin_client.get(f"/admin/cluster/replica/{world['cluster/replica']}/change/").content.decode()
    assert "profile default needs 1.0 GiB" in page
    assert "no &lt;memory&gt;" in page
    assert "&lt;b&gt;boom&lt;/b&gt;" in page
    assert "<b>boom</b>" not in page


def test_a_node_shows_state_memory_and_problems(admin_client: Client, world: Any) -> None:
    page = admin_client.get("/admin/cluster/node/").content.decode()
    for text in ("online", "8.0 GiB of 8.0 GiB", "disk"):
        assert text in page


def test_a_node_shows_what_it_runs_and_its_maintenance(admin_client: Client, world: Any) -> None:
    maintenance.cordon(actor="user:ann", node_id=world["cluster/node"], why="new disk")
    page = admin_client.get("/admin/cluster/node/").content.decode()
    assert "controller, router" in page
    assert "cordoned" in page
    page = admin_client.get(f"/admin/cluster/node/{world['cluster/node']}/change/").content.decode()
    assert "new disk" in page
    assert "user:ann" in page


def test_join_tokens_are_shown_without_their_secret_and_revoked_by_an_action(admin_client: Client, world: Any) -> None:
    token = JoinToken.objects.get()
    for path in ("/admin/cluster/jointoken/", f"/admin/cluster/jointoken/{token.id}/change/"):
        page = admin_client.get(path).content.decode()
        assert "open" in page
        assert token.sealed_secret not in page
    act(admin_client, "cluster/jointoken", "revoke_selected", token.id)
    token.refresh_from_db()
    assert token.revoked_at is not None
    assert "revoked" in admin_client.get("/admin/cluster/jointoken/").content.decode()


def test_the_setup_is_shown_with_nodes_by_name(admin_client: Client, world: Any) -> None:
    name = Node.objects.get().name
    assert (
        f"{name}: controller, router" in admin_client.get("/admin/cluster/clustersetup/setup/change/").content.decode()
    )


def act(client: Client, path: str, action: str, row: str) -> Any:
    return client.post(f"/admin/{path}/", {"action": action, "_selected_action": [row]}, follow=True)


def test_a_node_is_taken_out_by_an_action(admin_client: Client, world: Any) -> None:
    node = world["cluster/node"]
    assert "is the only controller that works" in act(admin_client, "cluster/node", "take_out", node).content.decode()
    other = Machine("other")
    other.heartbeat(modules=(ModuleReport(name="controller"),))
    act(admin_client, "cluster/node", "take_out", node)
    assert Node.objects.get(id=node).removed_at is not None


def test_a_job_is_cancelled_and_tried_again_by_actions_and_refusals_are_said(admin_client: Client, world: Any) -> None:
    job = world["cluster/job"]
    assert "only a failed job" in act(admin_client, "cluster/job", "retry", job).content.decode()
    act(admin_client, "cluster/job", "cancel", job)
    assert Job.objects.get().cancel_requested
    jobs.claim(job_id=job, worker="w")
    jobs.close(job_id=job, worker="w", state=JobState.FAILED)
    act(admin_client, "cluster/job", "retry", job)
    assert Job.objects.get().state == "queued"


def test_who_may_only_look_is_offered_no_action(client: Client, world: Any) -> None:
    client.force_login(a_user("reader", "cluster.view_node", "cluster.view_job", "cluster.view_jointoken"))
    act(client, "cluster/jointoken", "revoke_selected", world["cluster/jointoken"])
    assert JoinToken.objects.get().revoked_at is None
    act(client, "cluster/node", "take_out", world["cluster/node"])
    act(client, "cluster/job", "cancel", world["cluster/job"])
    assert Node.objects.get().removed_at is None
    assert not Job.objects.get().cancel_requested


def test_a_list_costs_the_same_queries_however_long_it_is(
    admin_client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(6):
        a_ready_replica(f"m{number}")
        jobs.open(kind="serve", subject=f"m{number}", args={}, actor="t")
    for path in LISTS[:3]:
        with django_assert_max_num_queries(16):
            admin_client.get(f"/admin/{path}/")


def test_a_replica_that_takes_more_than_it_holds_says_so_and_names_its_cards(admin_client: Client) -> None:
    _, row = a_ready_replica()
    shares = [{"node_id": row.node_id, "memory": 1 << 30, "cores": 0, "cards": [["GPU-1", 3 << 30]]}]
    Replica.objects.filter(id=row.id).update(memory=2 << 30, reserved=1 << 30, shares=shares, card_memory=4 << 30)
    page = admin_client.get(f"/admin/cluster/replica/{row.id}/change/").content.decode()
    assert "it takes 2.0 GiB and holds 1.0 GiB" in page
    assert "GPU-1: 3.0 GiB: it takes 4.0 GiB of its cards and holds 3.0 GiB" in page
