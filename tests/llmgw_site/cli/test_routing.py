"""`llmgw strategy` and `llmgw peers`: what a gateway answers by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.llmgw_site.cli.conftest import Llmgw, Server

STRATEGY = "/api/v1/router/strategy"


@pytest.fixture
def gateway(server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A gateway whose router goes by `random`."""
    monkeypatch.setenv("LLMGW_URL", server.url)
    monkeypatch.setenv("LLMGW_ADMIN_TOKEN", "at-llmgw-x")
    server.answers[f"GET {STRATEGY}"] = (200, rule("random"))
    return server


def rule(name: str, *, affinity: bool = False) -> dict[str, Any]:
    return {"strategy": name, "affinity": affinity, "strategies": ["load_based", "random"]}


def bodies(server: Server) -> list[Any]:
    return [json.loads(body) for line, _, body in server.seen if line.startswith("PUT")]


def test_the_strategy_is_shown(gateway: Server, command: Llmgw) -> None:
    said = command("strategy").out
    assert "strategy  random (of load_based, random)" in said
    assert "affinity  off" in said
    assert command("strategy", "--json").json["strategy"] == "random"


def test_the_strategy_is_set_by_name(gateway: Server, command: Llmgw) -> None:
    gateway.answers[f"PUT {STRATEGY}"] = (200, rule("load_based"))
    assert "strategy  load_based" in command("strategy", "load_based").out
    assert bodies(gateway) == [{"strategy": "load_based"}]


def test_affinity_is_an_option_over_the_strategy_that_there_is(gateway: Server, command: Llmgw) -> None:
    gateway.answers[f"PUT {STRATEGY}"] = (200, rule("random", affinity=True))
    assert "affinity  on" in command("strategy", "--affinity").out
    command("strategy", "load_based", "--no-affinity")
    assert bodies(gateway) == [
        {"strategy": "random", "affinity": True},
        {"strategy": "load_based", "affinity": False},
    ]


def test_what_the_gateway_refuses_ends_with_1_and_its_reason(gateway: Server, command: Llmgw) -> None:
    error = {"message": "There is no strategy 'best'", "type": "x", "code": "invalid_strategy", "param": "strategy"}
    gateway.answers[f"PUT {STRATEGY}"] = (400, {"error": error})
    done = command("strategy", "best")
    assert (done.code, done.out, "no strategy 'best'" in done.err) == (1, "", True)


PEERS = [
    {"model": "m", "node": "a", "node_id": "node_a", "serving_state": "ready", "down_for_s": None, "in_flight": 2,
     "answer_s": 0.25},
    {"model": "m", "node": "b", "node_id": "node_b", "serving_state": "lost", "down_for_s": 12.0, "in_flight": 0,
     "answer_s": None},
]  # fmt: skip


def test_peers_are_shown_with_what_is_known_of_them(gateway: Server, command: Llmgw) -> None:
    gateway.answers["GET /api/v1/cloud/peers"] = (200, PEERS)
    rows = [line.split() for line in command("peers").out.splitlines() if line.startswith(" m ")]
    assert rows == [["m", "a", "ready", "2", "250", "ms", "-"], ["m", "b", "lost", "0", "-", "12", "s"]]
    assert command("peers", "--json").json == PEERS


def test_peers_of_one_model(gateway: Server, command: Llmgw) -> None:
    gateway.answers["GET /api/v1/cloud/peers?model=other"] = (200, [])
    assert "no other node serves other" in command("peers", "--model", "other").out
    error = {"message": "There is no model 'x'.", "type": "x", "code": "model_not_found", "param": "model"}
    gateway.answers["GET /api/v1/cloud/peers?model=x"] = (404, {"error": error})
    assert command("peers", "--model", "x").code == 4
