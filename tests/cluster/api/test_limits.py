"""cluster.api.agent: an edge's questions about limits, over the real view and a real Valkey."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from django.test import Client

from cluster.domain.leasing import TOKENS, LimitsAnswer, LimitsAsk, LimitWant
from cluster.wire import from_dict, to_dict
from tests.cluster.rows import Machine
from tests.cluster.services.test_limits import store

pytestmark = pytest.mark.django_db
PATH = "/api/v1/agent/limits"
__all__ = ["store"]
QUESTION = LimitsAsk(wants=(LimitWant(scope="proj_of_this_test", kind=TOKENS, limit=10, want=4),))


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.heartbeat()
    return machine


@pytest.mark.usefixtures("store")
def test_an_edge_is_given_of_a_limit_what_there_is(client: Client, machine: Machine) -> None:
    granted = []
    for _ in range(4):
        response = machine.post(client, PATH, orjson.dumps(to_dict(QUESTION)))
        assert response.status_code == 200
        assert machine.proves(response)
        granted.append(from_dict(LimitsAnswer, json.loads(response.content)).grants[0].granted)
    assert granted == [4, 4, 2, 0]


def test_nobody_but_nodes_is_answered(client: Client, machine: Machine) -> None:
    body = orjson.dumps(to_dict(QUESTION))
    assert client.post(PATH, body, content_type="application/json").status_code == 404
    unsigned = client.post(PATH, body, content_type="application/json", headers={"x-llmgw-listener": "node"})
    assert unsigned.status_code == 401


def test_what_cannot_be_read_or_counted_is_refused(client: Client, machine: Machine, settings: Any) -> None:
    settings.REDIS_URL = "unix:///nowhere/valkey.sock?db=0"
    for body, status, code in (
        (b'{"wants": 7}', 400, "bad_message"),
        (orjson.dumps(to_dict(LimitsAsk(wants=(LimitWant(scope="a b", kind=TOKENS, limit=1),)))), 400, "bad_message"),
        (orjson.dumps(to_dict(QUESTION)), 503, "limits_not_counted"),
    ):
        response = machine.post(client, PATH, body)
        assert (response.status_code, json.loads(response.content)["error"]["code"]) == (status, code)
        assert machine.proves(response)
