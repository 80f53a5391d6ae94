"""cluster.api.agent: signed heartbeats, over the real view."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from catalog.models import Event
from cluster import selectors
from cluster.domain import signing
from cluster.domain.modules import ModuleReport
from cluster.models import ClusterIdentity, ClusterSetup, Node, PublishedMap, Replica
from cluster.services import calls, identity, members, nodes
from cluster.wire import Wanted, from_dict, to_dict
from tests.cluster.rows import Machine, a_model_row, a_ready_replica, age, report, tick
from workers.agent.clients import Clients
from workers.agent.identity import Identity
from workers.agent.link import Link, LinkError
from workers.agent.node_map import NodeMap

pytestmark = pytest.mark.django_db
PATH = "/api/v1/agent/heartbeat"


@pytest.fixture
def machine() -> Machine:
    return Machine()


def body(machine: Machine, *reports: Any, **fields: Any) -> bytes:
    return orjson.dumps(to_dict(machine.beat(*reports, **fields)))


def code(response: Any) -> str:
    return str(json.loads(response.content)["error"]["code"])


def test_a_heartbeat_is_answered_with_what_the_node_shall_do_signed(client: Client, machine: Machine) -> None:
    machine.heartbeat()
    a_model_row()
    tick()
    response = machine.post(client, PATH, body(machine))
    assert response.status_code == 200
    assert machine.proves(response)
    wanted = from_dict(Wanted, json.loads(response.content))
    assert [item.serve.model for item in wanted.replicas] == ["small"]
    assert wanted.heartbeat == 30.0
    assert abs(wanted.server_time - selectors.database_now()) < 60


def test_an_answer_proves_nothing_about_another_call(client: Client, machine: Machine) -> None:
    first = machine.post(client, PATH, body(machine))
    machine.post(client, PATH, body(machine))
    assert not machine.proves(first)


def test_what_is_reported_is_written(client: Client) -> None:
    machine, row = a_ready_replica()
    response = machine.post(client, PATH, body(machine, report(row, "backoff", code="oom", message="no memory")))
    assert response.status_code == 200
    row.refresh_from_db()
    assert (row.state, row.code, row.message) == ("backoff", "oom", "no memory")


def test_a_node_that_is_not_enrolled_is_unknown(client: Client, machine: Machine) -> None:
    response = machine.post(client, PATH, body(machine), node="node_nobody")
    assert (response.status_code, code(response)) == (401, "node_unknown")


def test_a_removed_node_is_refused_at_once(client: Client, machine: Machine) -> None:
    nodes.remove(node_id=machine.node.id, actor="t")
    response = machine.post(client, PATH, body(machine))
    assert (response.status_code, code(response)) == (401, "node_removed")
    assert machine.proves(response)


def test_a_client_key_is_worth_nothing_here(client: Client) -> None:
    headers = {"x-llmgw-listener": "node", "authorization": "Bearer sk-llmgw-x"}
    response = client.post(PATH, b"{}", content_type="application/json", headers=headers)
    assert (response.status_code, code(response)) == (401, "node_signature_required")


def test_over_the_client_listener_there_is_nothing(client: Client, machine: Machine) -> None:
    content = body(machine)
    headers = machine.headers("POST", PATH, content)
    del headers["x-llmgw-listener"]
    response = client.post(PATH, content, content_type="application/json", headers=headers)
    assert (response.status_code, code(response)) == (404, "not_found")


def test_a_call_that_was_answered_is_not_answered_again(client: Client, machine: Machine) -> None:
    content = body(machine)
    headers = machine.headers("POST", PATH, content)
    answers = [client.post(PATH, content, content_type="application/json", headers=headers) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 401]
    assert code(answers[1]) == "call_repeated"


@pytest.mark.parametrize(
    ("tamper", "reason"),
    [
        (lambda headers: headers | {"x-llmgw-signature": "0" * 64}, "bad_signature"),
        (lambda headers: headers | {"x-llmgw-counter": "999"}, "bad_signature"),
        (lambda headers: headers | {"x-llmgw-boot": "other"}, "bad_signature"),
    ],
)
def test_a_call_that_somebody_changed_is_refused(client: Client, machine: Machine, tamper: Any, reason: str) -> None:
    content = body(machine)
    headers = tamper(machine.headers("POST", PATH, content))
    response = client.post(PATH, content, content_type="application/json", headers=headers)
    assert (response.status_code, code(response)) == (401, reason)
    assert Node.objects.get(id=machine.node.id).last_seen_at is None


def test_another_body_under_the_signature_is_refused(client: Client, machine: Machine) -> None:
    headers = machine.headers("POST", PATH, body(machine))
    response = client.post(PATH, b"{}", content_type="application/json", headers=headers)
    assert (response.status_code, code(response)) == (401, "body_changed")


def test_a_call_from_another_time_is_refused(client: Client, machine: Machine) -> None:
    response = machine.post(client, PATH, body(machine), now=selectors.database_now() - 121)
    assert (response.status_code, code(response)) == (401, "clock_skew")
    assert machine.proves(response)
    assert abs(json.loads(response.content)["server_time"] - selectors.database_now()) < 60


def test_nobody_gets_a_signed_refusal_for_a_wrong_signature(client: Client, machine: Machine) -> None:
    content = body(machine)
    headers = machine.headers("POST", PATH, content) | {"x-llmgw-counter": "999"}
    response = client.post(PATH, content, content_type="application/json", headers=headers)
    assert code(response) == "bad_signature"
    assert signing.SIGNATURE not in response.headers


@pytest.mark.parametrize("off", [3600.0, -3600.0])
def test_a_node_whose_clock_is_an_hour_off_gets_through_with_its_second_call(
    client: Client, machine: Machine, off: float
) -> None:
    """The agent's own link against the real view; only the wire between them is the test client's."""
    answers = []

    def ask(request: httpx.Request) -> httpx.Response:
        headers = {**request.headers, "x-llmgw-listener": "node"}
        path = request.url.raw_path.decode()
        response = client.post(path, request.content, content_type="application/json", headers=headers)
        answers.append(response.status_code)
        return httpx.Response(response.status_code, content=response.content, headers=dict(response.headers))

    async def beat_twice() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(sync_to_async(ask))) as http:
            link = Link(("http://c",), who, boot_id="b", clock=lambda: time.time() + off, clients=Clients(http))
            with pytest.raises(LinkError, match="clock_skew"):
                await link.heartbeat(machine.beat())
            wanted = await link.heartbeat(machine.beat())
            assert abs(link.cluster_time - wanted.server_time) < 60

    who = Identity(node_id=machine.node.id, private_key=machine.private, controller_public_key=machine.own.public_key)
    async_to_sync(beat_twice)()
    assert answers == [401, 200]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not json",
        b"[]",
        b"{}",
        b'{"node_id": 7}',
        b'{"node_id": "x", "boot_id": "b", "sent_at": "now"}',
        b'{"node_id": "x", "boot_id": "b", "sent_at": 1, "replicas": {}}',
        b'{"node_id": "x", "boot_id": "b", "sent_at": 1, "replicas": [{"replica_id": "r"}]}',
    ],
)
def test_a_message_that_cannot_be_read_is_a_400_and_changes_nothing(
    client: Client, machine: Machine, content: bytes
) -> None:
    response = machine.post(client, PATH, content)
    assert (response.status_code, code(response)) == (400, "bad_message")
    assert Node.objects.get(id=machine.node.id).last_seen_at is None


def test_a_node_speaks_for_itself_only(client: Client, machine: Machine) -> None:
    response = machine.post(client, PATH, body(Machine()))
    assert (response.status_code, code(response)) == (400, "bad_message")


def test_fields_of_a_newer_node_are_ignored(client: Client, machine: Machine) -> None:
    message = {**to_dict(machine.beat()), "v": 99, "mood": "fine"}
    assert machine.post(client, PATH, orjson.dumps(message)).status_code == 200


def test_a_body_over_the_bound_is_refused(client: Client, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_BODY", 100)
    response = machine.post(client, PATH, body(machine, problems=("x" * 100,)))
    assert (response.status_code, code(response)) == (413, "body_too_large")


def test_only_post_is_answered(client: Client, machine: Machine) -> None:
    assert machine.get(client, PATH).status_code == 404


def test_the_whole_call_costs_few_queries_however_many_replicas_there_are(
    client: Client, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        identity, "listened", lambda **more: None
    )  # two more, each two seconds: how slow we are is no matter
    machine.heartbeat()
    costs = []
    for number in (1, 30):
        for n in range(number):
            a_model_row(f"m{number}-{n}", profile={"memory": 1000})
        tick()
        content = body(machine, *(report(row, "ready") for row in Replica.objects.all()))
        machine.post(client, PATH, content)
        with CaptureQueriesContext(connection) as queries:
            assert machine.post(client, PATH, content).status_code == 200
        costs.append([item["sql"] for item in queries.captured_queries])
    assert len(costs[0]) == len(costs[1]) <= 11, costs[0]


def test_f05_processed_heartbeats_are_the_proof_that_somebody_listens(client: Client, machine: Machine) -> None:
    machine.post(client, PATH, body(machine))
    own = ClusterIdentity.objects.get()
    assert own.listening_at is not None
    assert own.listening_since is not None


# --- the map, roles, and several controllers on one database


def wanted_of(response: Any) -> Wanted:
    assert response.status_code == 200, response.content
    return from_dict(Wanted, json.loads(response.content))


def test_a_node_is_sent_the_map_where_it_holds_another_one(client: Client, machine: Machine) -> None:
    first = wanted_of(machine.post(client, PATH, body(machine)))
    assert first.map is not None
    assert first.map.version == first.map_version == members.published_version()
    assert first.map.node(machine.node.id) is not None
    again = wanted_of(machine.post(client, PATH, body(machine, map_version=first.map_version)))
    assert again.map_version == first.map_version
    assert again.map is None


def test_nodes_follow_a_database_that_was_restored_from_an_older_copy(
    client: Client, machine: Machine, tmp_path: Path
) -> None:
    """It counts versions of the map anew that they hold already: under another name, so that nobody waits for it to catch up."""
    held = NodeMap(tmp_path / "map.json", time.time)
    first = wanted_of(machine.post(client, PATH, body(machine)))
    copy = PublishedMap.objects.values().get()
    for _ in range(3):
        Machine()
        members.publish()
    held.take(wanted_of(machine.post(client, PATH, body(machine))).map, 0.0)
    PublishedMap.objects.update(**copy)
    Node.objects.exclude(id=machine.node.id).delete()
    now = wanted_of(machine.post(client, PATH, body(machine, map_version=held.version)))
    assert held.take(now.map, 0.0)
    assert held.version == now.map_version == members.publish().version
    assert held.map is not None
    assert [node.node_id for node in held.map.nodes] == [machine.node.id]
    assert now.map_version.partition(":")[0] != first.map_version.partition(":")[0]
    assert Event.objects.filter(kind="store_set_back").count() == 1
    assert wanted_of(machine.post(client, PATH, body(machine, map_version=now.map_version))).map is None


@pytest.mark.parametrize(
    "held", ["", ":", "e:7", "x" * 5000, "EPOCH:", "EPOCH:-1", "EPOCH:0", "EPOCH:x", "EPOCH:" + "9" * 5000]
)
def test_a_version_that_makes_no_sense_is_answered_with_the_present_map(
    client: Client, machine: Machine, held: str
) -> None:
    held = held.replace("EPOCH", identity.ensure_identity().epoch)
    answer = wanted_of(machine.post(client, PATH, body(machine, map_version=held)))
    assert answer.map is not None
    assert answer.map.version == answer.map_version == members.published_version()


def test_what_a_node_runs_and_holds_is_written(client: Client, machine: Machine) -> None:
    modules_ = (ModuleReport(name="cloud"), ModuleReport(name="data", state="unavailable", code="x", message="why"))
    machine.post(client, PATH, body(machine, modules=modules_, roles=("cloud", "data"), map_version="e:7"))
    node = Node.objects.get(id=machine.node.id)
    assert [module["name"] for module in node.modules] == ["cloud", "data"]
    assert (node.modules[1]["code"], node.modules[1]["message"]) == ("x", "why")
    assert (node.roles, node.map_version) == (["cloud", "data"], "e:7")


def test_a_node_hears_the_roles_that_the_setup_gives_it(client: Client, machine: Machine) -> None:
    assert wanted_of(machine.post(client, PATH, body(machine))).roles is None
    ClusterSetup.objects.create(nodes={machine.node.id: ["inference"]}, updated_by="t")
    assert wanted_of(machine.post(client, PATH, body(machine))).roles == ("inference",)


@pytest.fixture
def controllers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Several processes over one database: what one has answered, the other one cannot remember."""
    memories = {name: signing.Seen() for name in ("one", "other")}

    def switch(name: str) -> None:
        monkeypatch.setattr(calls, "_seen", memories[name])

    return switch


def send(client: Client, headers: dict[str, str], content: bytes) -> Any:
    return client.post(PATH, content, content_type="application/json", headers=headers)


def test_a_copy_of_a_heartbeat_is_refused_by_another_controller_too(
    client: Client, machine: Machine, controllers: Any
) -> None:
    content = body(machine)
    first, second = (machine.headers("POST", PATH, content) for _ in range(2))
    controllers("one")
    assert send(client, first, content).status_code == 200
    assert send(client, second, content).status_code == 200
    controllers("other")
    for headers in (first, second):
        response = send(client, headers, content)
        assert (response.status_code, code(response)) == (401, "call_repeated")


def test_an_old_heartbeat_that_comes_late_changes_nothing(client: Client, machine: Machine, controllers: Any) -> None:
    late_body, newer_body = body(machine, version="old"), body(machine, version="new")
    late, newer = machine.headers("POST", PATH, late_body), machine.headers("POST", PATH, newer_body)
    controllers("one")
    assert send(client, newer, newer_body).status_code == 200
    controllers("other")
    assert code(send(client, late, late_body)) == "call_repeated"
    assert Node.objects.get(id=machine.node.id).version == "new"


def test_a_heartbeat_of_an_earlier_boot_is_refused_everywhere(
    client: Client, machine: Machine, controllers: Any
) -> None:
    content = body(machine)
    earlier = machine.headers("POST", PATH, content, now=selectors.database_now() - 5)
    controllers("one")
    assert send(client, earlier, content).status_code == 200
    machine.boot, machine.counter = "after the restart", iter(range(1, 100))
    assert send(client, machine.headers("POST", PATH, content), content).status_code == 200
    controllers("other")
    response = send(client, earlier, content)
    assert (response.status_code, code(response)) == (401, "call_repeated")
    assert (
        abs(json.loads(response.content)["server_time"] - selectors.database_now()) < 60
    )  # a slow clock learns from it
    assert send(client, machine.headers("POST", PATH, content), content).status_code == 200


def test_a_restarted_agent_is_heard_though_its_counter_begins_anew(client: Client, machine: Machine) -> None:
    for boot in ("a", "b", "c"):
        machine.boot, machine.counter = boot, iter(range(1, 10))
        assert machine.post(client, PATH, body(machine)).status_code == 200
    assert Node.objects.get(id=machine.node.id).boot_id == "c"


@pytest.mark.parametrize("fraction", ["", ".123", ".1234", ".1236", ".9999"])
def test_a_call_of_the_very_moment_of_the_last_one_is_heard_after_a_restart(
    client: Client, machine: Machine, monkeypatch: pytest.MonkeyPatch, fraction: str
) -> None:
    """A call's time is rounded to milliseconds, the last heartbeat's is not."""
    monkeypatch.setitem(selectors.NOW, connection.vendor, f"1800000000{fraction}")
    content, earlier = body(machine), []
    for boot in ("a", "b"):
        machine.boot, machine.counter = boot, iter(range(1, 10))
        assert machine.post(client, PATH, content).status_code == 200
        earlier.append(machine.headers("POST", PATH, content, now=selectors.database_now() - 0.005))
    response = send(client, earlier[0], content)
    assert (response.status_code, code(response)) == (401, "call_repeated")
    assert Node.objects.get(id=machine.node.id).boot_id == "b"


def test_a_clock_of_the_database_that_was_set_back_locks_nobody_out(client: Client, machine: Machine) -> None:
    age(machine.node, -3600)
    machine.boot = "new"
    assert machine.post(client, PATH, body(machine)).status_code == 200


def test_a_node_removed_on_one_controller_is_refused_by_the_other_at_once(
    client: Client, machine: Machine, controllers: Any
) -> None:
    controllers("one")
    assert machine.post(client, PATH, body(machine)).status_code == 200
    nodes.remove(node_id=machine.node.id, actor="t")
    controllers("other")
    assert code(machine.post(client, PATH, body(machine))) == "node_removed"


@pytest.mark.parametrize("path", ["/api/v1/agent/usage", "/api/v1/agent/heartbeat?x=1", "/api/v1/agent/certificate"])
def test_f18_a_signature_is_worth_nothing_for_another_path(client: Client, machine: Machine, path: str) -> None:
    content = body(machine)
    headers = machine.headers("POST", PATH, content)
    response = client.post(path, content, content_type="application/json", headers=headers)
    assert (response.status_code, code(response)) == (401, "bad_signature")


def test_f18_a_call_signed_with_another_key_or_not_at_all_is_refused(client: Client, machine: Machine) -> None:
    content, stranger = body(machine), Machine()
    forged = stranger.headers("POST", PATH, content, node=machine.node.id)
    assert code(send(client, forged, content)) == "bad_signature"
    unsigned = {"x-llmgw-listener": "node", "x-llmgw-node": machine.node.id}
    assert code(send(client, unsigned, content)) == "node_signature_required"
    streamed = {**machine.headers("POST", PATH, None)}
    assert code(send(client, streamed, content)) == "body_unsigned"
    assert Node.objects.get(id=machine.node.id).last_seen_at is None


def test_f18_a_counter_that_no_column_holds_is_no_signature(client: Client, machine: Machine) -> None:
    content = body(machine)
    headers = machine.headers("POST", PATH, content, counter=2**70)
    assert code(send(client, headers, content)) == "node_signature_required"
