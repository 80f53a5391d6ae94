"""cluster.api.agent: a gateway's demand for a model, over the real view."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from django.test import Client

from cluster.models import ModelStanding
from cluster.wire import Demand, DemandAnswer, from_dict, to_dict
from tests.cluster.rows import Machine, a_model_row

pytestmark = pytest.mark.django_db
PATH = "/api/v1/agent/demand"


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.heartbeat()
    return machine


def post(client: Client, machine: Machine, **fields: Any) -> Any:
    return machine.post(client, PATH, orjson.dumps(to_dict(Demand(**{"model": "small", **fields}))))


def test_a_demand_is_answered_signed_with_the_attempt_that_it_made(client: Client, machine: Machine) -> None:
    a_model_row(replicas=0, max_replicas=1)
    response = post(client, machine)
    assert response.status_code == 200
    assert machine.proves(response)
    answer = from_dict(DemandAnswer, json.loads(response.content))
    assert answer.state == "waiting"
    assert answer.attempt == ModelStanding.objects.get().asked_at
    again = from_dict(DemandAnswer, json.loads(post(client, machine, attempt=answer.attempt).content))
    assert again == answer


def test_nobody_but_nodes_is_answered(client: Client, machine: Machine) -> None:
    a_model_row(replicas=0, max_replicas=1)
    body = orjson.dumps(to_dict(Demand(model="small")))
    assert client.post(PATH, body, content_type="application/json").status_code == 404
    unsigned = client.post(PATH, body, content_type="application/json", headers={"x-llmgw-listener": "node"})
    assert unsigned.status_code == 401
    assert not ModelStanding.objects.exists()


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{}", 400, "bad_message"),
        (b'{"model": 7}', 400, "bad_message"),
        (b'{"model": "nobody"}', 404, "model_not_found"),
        (b'{"model": "small", "attempt": "x"}', 400, "bad_message"),
    ],
)
def test_what_cannot_be_meant_is_refused(client: Client, machine: Machine, body: bytes, status: int, code: str) -> None:
    a_model_row(replicas=0, max_replicas=1)
    response = machine.post(client, PATH, body)
    assert (response.status_code, json.loads(response.content)["error"]["code"]) == (status, code)
    assert machine.proves(response)
    assert not ModelStanding.objects.exists()
