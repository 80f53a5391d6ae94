"""/api/v1/nodes, replicas, jobs: what is answered to whom."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.utils import timezone

from catalog.models import Event
from cluster.domain.states import JobState
from cluster.models import Job
from cluster.selectors import database_now
from cluster.services import identity, jobs
from tests.cluster.rows import Machine, a_ready_replica, age, report

pytestmark = pytest.mark.django_db
SERVE = {"kind": "serve", "args": {"name": "m", "path": "/models/m.gguf"}}


def post(client: Client, path: str, body: Any = None) -> Any:
    return client.post(path, body, content_type="application/json")


@pytest.fixture
def reader(client: Client) -> Client:
    """Somebody who may look at nodes, replicas and jobs, and do nothing."""
    user = User.objects.create_user("reader", password="x")
    user.user_permissions.set(Permission.objects.filter(codename__in=["view_node", "view_replica", "view_job"]))
    client.force_login(user)
    return client


PATHS = [
    "/api/v1/nodes",
    "/api/v1/replicas",
    "/api/v1/jobs",
    "/api/v1/status",
    "/api/v1/usage",
    "/api/v1/usage/summary",
]


@pytest.mark.parametrize("path", PATHS)
def test_nobody_sees_nothing(client: Client, path: str) -> None:
    assert client.get(path).status_code == 401


@pytest.mark.parametrize("path", PATHS)
def test_somebody_without_the_permission_is_forbidden(client: Client, path: str) -> None:
    client.force_login(User.objects.create_user("nobody", password="x"))
    response = client.get(path)
    assert response.status_code == 403
    assert response.json()["error"]["code"] == "permission_denied"


@pytest.mark.parametrize("path", PATHS)
def test_an_administrator_sees_everything(admin_client: Client, path: str) -> None:
    a_ready_replica()
    assert admin_client.get(path).status_code == 200


def test_a_reader_reads_and_changes_nothing(reader: Client) -> None:
    machine, row = a_ready_replica()
    assert reader.get("/api/v1/nodes").json()["count"] == 1
    assert reader.get(f"/api/v1/replicas/{row.id}").json()["state"] == "ready"
    assert post(reader, "/api/v1/jobs", SERVE).status_code == 403
    assert reader.delete(f"/api/v1/nodes/{machine.node.id}").status_code == 403
    job = jobs.open(kind="serve", subject="m", args={}, actor="t")
    assert post(reader, f"/api/v1/jobs/{job.id}/cancel").status_code == 403


def test_a_node_is_shown_by_id_and_by_name_with_its_state(admin_client: Client) -> None:
    machine = Machine("alpha")
    machine.heartbeat()
    for ref in ("alpha", machine.node.id):
        shown = admin_client.get(f"/api/v1/nodes/{ref}").json()
        assert (shown["name"], shown["state"], shown["hardware"]["cores"]) == ("alpha", "online", 4)
    assert "public_key" not in shown


def test_a_silent_node_is_stale_then_offline_to_everybody(admin_client: Client) -> None:
    machine = Machine("alpha")
    machine.heartbeat()
    own = identity.ensure_identity()
    own.listening_since = timezone.now() - timedelta(hours=1)
    own.save()
    for seconds, state in ((10, "online"), (100, "stale"), (400, "offline")):
        age(machine.node, seconds)
        assert admin_client.get("/api/v1/nodes/alpha").json()["state"] == state
    assert database_now() > 0


def test_a_node_that_is_taken_out_is_gone_from_the_list(admin_client: Client) -> None:
    machine = Machine("alpha")
    assert admin_client.delete("/api/v1/nodes/alpha?reason=sold").status_code == 204
    assert Event.objects.get(kind="node_removed").why == "sold"
    assert admin_client.get("/api/v1/nodes").json()["count"] == 0
    assert admin_client.delete(f"/api/v1/nodes/{machine.node.id}").status_code == 404


def test_replicas_are_filtered(admin_client: Client) -> None:
    machine, row = a_ready_replica()
    for query, count in (("model=small", 1), ("model=other", 0), ("state=ready", 1), (f"node={machine.node.name}", 1)):
        assert admin_client.get(f"/api/v1/replicas?{query}").json()["count"] == count
    assert "log_tail" not in admin_client.get("/api/v1/replicas").json()["results"][0]
    machine.heartbeat(report(row, "failed", log_tail="the end"))
    assert admin_client.get(f"/api/v1/replicas/{row.id}").json()["log_tail"] == "the end"


def test_a_job_is_opened_listed_and_cancelled(admin_client: Client) -> None:
    opened = post(admin_client, "/api/v1/jobs", SERVE)
    assert opened.status_code == 201
    job = opened.json()
    assert (job["subject"], job["state"], job["actor"], len(job["steps"])) == ("m", "queued", "user:admin", 6)
    assert admin_client.get("/api/v1/jobs?kind=serve&subject=m").json()["count"] == 1
    assert admin_client.get("/api/v1/jobs?state=done").json()["count"] == 0
    again = post(admin_client, "/api/v1/jobs", SERVE)
    assert (again.status_code, again.json()["error"]["code"]) == (409, "job_already_open")
    assert again.json()["error"]["extra"] == {"job_id": job["id"]}
    assert post(admin_client, f"/api/v1/jobs/{job['id']}/cancel").json()["cancel_requested"]


def test_the_quickstart_model_needs_no_name(admin_client: Client) -> None:
    job = post(admin_client, "/api/v1/jobs", {"kind": "serve", "args": {}}).json()
    assert (job["subject"], job["args"]["path"]) == ("smollm2-135m-instruct", "quickstart")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "kind"),
        ({"kind": "teleport", "args": {}}, "kind"),
        ({"kind": "serve"}, "args"),
        ({"kind": "serve", "args": {"path": "/x.gguf"}}, "args.name"),
        ({"kind": "serve", "args": {"name": "m", "colour": "red"}}, "args.colour"),
        ({"kind": "serve", "args": {"name": "m", "sha256": "short"}}, "args.sha256"),
        ({"kind": "serve", "args": {"name": "m", "replicas": 0}}, "args.replicas"),
        ({"kind": "serve", "args": [], "more": 1}, "more"),
        ({"kind": "serve", "args": {"name": "a b"}}, "args.name"),
        ({"kind": "serve", "args": {"name": "m", "profile": {"args": ["\x00"]}}}, "args.profile"),
        ({"kind": "serve", "args": {"name": "m", "profile": {"colour": 1}}}, "colour"),
        ({"kind": "serve", "args": {"name": "m", "profile": {"args": ["--log-file", "/etc/x"]}}}, "args"),
        ({"kind": "serve", "args": {"name": "m", "path": "../m.gguf"}}, "weights_path"),
    ],
)
def test_a_wrong_job_is_refused_with_the_field_at_fault(admin_client: Client, body: Any, param: str) -> None:
    response = post(admin_client, "/api/v1/jobs", body)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert not Job.objects.exists()


@pytest.mark.parametrize("path", ["nodes/%00", "replicas/%00", "jobs/%00", "jobs/%00/cancel", "jobs/job_none/retry"])
def test_an_id_that_cannot_be_is_not_found(admin_client: Client, path: str) -> None:
    call = admin_client.post if path.endswith(("cancel", "retry")) else admin_client.get
    assert call(f"/api/v1/{path}").status_code == 404


def test_a_failed_job_is_tried_again(admin_client: Client) -> None:
    job = jobs.open(kind="serve", subject="m", args={}, actor="t")
    jobs.claim(job_id=job.id, worker="w")
    jobs.close(job_id=job.id, worker="w", state=JobState.FAILED, message="no")
    assert admin_client.get(f"/api/v1/jobs/{job.id}").json()["message"] == "no"
    assert post(admin_client, f"/api/v1/jobs/{job.id}/retry").json()["state"] == "queued"
    response = post(admin_client, f"/api/v1/jobs/{job.id}/retry")
    assert (response.status_code, response.json()["error"]["code"]) == (409, "job_not_failed")


def test_a_list_costs_the_same_queries_however_long_it_is(
    admin_client: Client, django_assert_max_num_queries: Any
) -> None:
    for number in range(8):
        a_ready_replica(f"m{number}")
        jobs.open(kind="serve", subject=f"m{number}", args={}, actor="t")
    for path in ("nodes", "replicas", "jobs"):
        with django_assert_max_num_queries(7):
            assert admin_client.get(f"/api/v1/{path}").json()["count"] == 8


def test_the_status_counts_a_model_against_what_it_should_have_now(admin_client: Client) -> None:
    machine, row = a_ready_replica()
    machine.heartbeat(report(row, "ready", in_flight=3))
    found = admin_client.get("/api/v1/status").json()
    assert found["nodes"] == {"online": 1, "stale": 0, "offline": 0}
    assert [(m["name"], m["ready"], m["wanted"], m["in_flight"]) for m in found["models"]] == [("small", 1, 1, 3)]
    assert (found["short"], found["requests_now"]) == ([], 3)
    assert found["problems"] == []
    said = ("usage records cannot be written", "the disk is short")
    machine.heartbeat(report(row, "failed", code="oom", message="no memory"), problems=said)
    found = admin_client.get("/api/v1/status").json()
    assert found["problems"] == [{"node": machine.node.name, "problem": text} for text in said]
    assert found["short"] == ["small"]
    assert found["models"][0]["code"] == "oom"
    assert "no memory" in found["models"][0]["reason"]
