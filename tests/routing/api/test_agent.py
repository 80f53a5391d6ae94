"""routing.api.agent: snapshot and usage, signed."""

from __future__ import annotations

import json

import orjson
import pytest
from django.test import Client

from catalog.models import Model
from cluster.wire import from_dict
from routing import services
from routing.domain.snapshot import Snapshot
from routing.models import UsageRecord
from tests.cluster.rows import Machine, a_ready_replica
from tests.routing.test_services import a_record

pytestmark = pytest.mark.django_db
SNAPSHOT, USAGE = "/api/v1/agent/snapshot", "/api/v1/agent/usage"


@pytest.fixture
def machine() -> Machine:
    return a_ready_replica()[0]


def batch(machine: Machine, *records: object) -> bytes:
    return orjson.dumps({"node_id": machine.node.id, "records": records})


def test_a_node_that_has_nothing_is_given_the_snapshot(client: Client, machine: Machine) -> None:
    response = machine.get(client, f"{SNAPSHOT}?have=")
    assert response.status_code == 200
    assert machine.proves(response)
    snapshot = from_dict(Snapshot, json.loads(response.content))
    assert [model.name for model in snapshot.models] == ["small"]
    assert snapshot.version == services.publish()


def test_a_node_that_has_it_is_told_so_signed(client: Client, machine: Machine) -> None:
    version = services.publish()
    response = machine.get(client, f"{SNAPSHOT}?have={version}")
    assert (response.status_code, response.content) == (304, b"")
    assert machine.proves(response)


def test_a_node_that_has_an_older_one_is_given_the_newer(client: Client, machine: Machine) -> None:
    old = services.publish()
    Model.objects.update(enabled=False)
    new = services.publish()
    response = machine.get(client, f"{SNAPSHOT}?have={old}")
    assert from_dict(Snapshot, json.loads(response.content)).version == new


@pytest.mark.parametrize("path", [SNAPSHOT, USAGE])
def test_nobody_else_is_answered(client: Client, path: str) -> None:
    for headers, status in (({}, 404), ({"x-llmgw-listener": "node"}, 401)):
        call = client.get if path == SNAPSHOT else client.post
        assert call(path, headers=headers).status_code == status


def test_usage_is_stored_once_and_said_so(client: Client, machine: Machine) -> None:
    for _ in range(2):
        response = machine.post(client, USAGE, batch(machine, a_record("a"), a_record("b")))
        assert json.loads(response.content)["stored"] == ["a", "b"]
        assert machine.proves(response)
    assert UsageRecord.objects.filter(reported_by=machine.node.id).count() == 2


def test_a_name_with_a_nul_in_it_is_stored_all_the_same(client: Client, machine: Machine) -> None:
    response = machine.post(client, USAGE, batch(machine, a_record("a", model_asked="a\x00b")))
    assert json.loads(response.content)["stored"] == ["a"]
    assert UsageRecord.objects.get().model_asked == "a\ufffdb"


@pytest.mark.parametrize("content", [b"", b"[]", b'{"records": []}', b'{"node_id": "n", "records": [7]}'])
def test_a_batch_that_cannot_be_read_is_a_400(client: Client, machine: Machine, content: bytes) -> None:
    response = machine.post(client, USAGE, content)
    assert response.status_code == 400
    assert json.loads(response.content)["error"]["code"] == "bad_message"


def test_a_batch_for_another_node_is_refused(client: Client, machine: Machine) -> None:
    response = machine.post(client, USAGE, batch(Machine(), a_record("a")))
    assert response.status_code == 400
