"""The controllers' own calls to nodes: proved by their key, and for one node only."""

from __future__ import annotations

import pytest

from cluster import selectors
from cluster.domain import signing
from tests.cluster.rows import Machine
from workers import node_calls

PATH, BODY = "/v1/chat/completions", b'{"model":"m"}'
pytestmark = pytest.mark.django_db


def verdict(machine: Machine, headers: dict[str, str], *, body: bytes = BODY) -> str | None:
    call = signing.read(headers)
    assert call is not None
    assert call.node == signing.CONTROLLER
    marks = (headers["x-llmgw-hop"], "", "", "")
    now = selectors.database_now()
    wrong = signing.verify_head(machine.key, call, method="POST", path=PATH, now=now, marks=marks)
    return wrong or signing.verify_body(call, body)


def test_a_node_can_prove_a_call_of_the_controllers_and_that_nobody_changed_it() -> None:
    machine, other = Machine(), Machine()
    way = node_calls.forwarded(machine.node, path=PATH, body=BODY)
    assert way.base_url == machine.node.address
    assert way.headers["x-llmgw-hop"] == "forwarded"
    assert verdict(machine, way.headers) is None
    assert verdict(machine, way.headers, body=b"{}") == "body_changed"
    assert verdict(machine, {**way.headers, "x-llmgw-hop": "handed"}) == "bad_signature"
    assert verdict(other, way.headers) == "bad_signature"


def test_two_calls_are_never_the_same() -> None:
    machine = Machine()
    first, second = (signing.read(node_calls.forwarded(machine.node, path=PATH, body=BODY).headers) for _ in range(2))
    assert first is not None
    assert second is not None
    assert second.counter > first.counter


def test_a_node_that_wants_tls_is_expected_to_bear_its_own_name() -> None:
    machine = Machine()
    machine.node.address = "https://10.0.0.5:8880"
    with pytest.raises(OSError, match="No such file"):
        node_calls.forwarded(machine.node, path=PATH, body=BODY)
