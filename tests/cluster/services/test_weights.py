"""What nodes report of weights is kept whole, once, and bounded; and models go where their weights lie."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from django.test import Client

from cluster import selectors, signals
from cluster.models import Node
from cluster.services import nodes
from cluster.wire import Wanted, WeightsReport, from_dict, to_dict
from tests.cluster.rows import Machine

pytestmark = pytest.mark.django_db
PATH = "/api/v1/agent/heartbeat"
HAS = WeightsReport(path="/models/small.gguf", size=1000)
LACKS = WeightsReport(path="/models/small.gguf")


def kept(machine: Machine) -> tuple[str, list[Any]]:
    row = Node.objects.get(id=machine.node.id)
    return row.weights_mark, [(item["path"], item["size"], item["folder"]) for item in row.weights]


def test_a_report_is_kept_under_its_mark_until_another_comes() -> None:
    machine = Machine()
    machine.heartbeat(weights_mark="a", weights=(HAS, WeightsReport(path="/models/hf", size=0, folder=True)))
    first = ("a", [("/models/small.gguf", 1000, False), ("/models/hf", 0, True)])
    assert kept(machine) == first
    machine.heartbeat(weights_mark="a")
    assert kept(machine) == first
    machine.heartbeat(weights_mark="b")  # news, but not what: the answer asks for it
    assert kept(machine) == first
    machine.heartbeat(weights_mark="b", weights=(LACKS,))
    assert kept(machine) == ("b", [("/models/small.gguf", None, False)])


def test_the_answer_names_what_is_kept_and_an_older_node_clears_it(client: Client) -> None:
    machine = Machine()

    def answered(**fields: Any) -> Wanted:
        response = machine.post(client, PATH, orjson.dumps(to_dict(machine.beat(**fields))))
        assert response.status_code == 200
        return from_dict(Wanted, json.loads(response.content))

    assert answered(weights_mark="a").weights_mark == ""
    assert answered(weights_mark="a", weights=(HAS,)).weights_mark == "a"
    assert answered(weights_mark="b").weights_mark == "a"
    assert answered().weights_mark == ""
    assert answered(weights_mark="a").weights_mark == ""


def test_of_a_report_no_more_is_kept_than_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "_MOST_WEIGHTS", 3)
    machine = Machine()
    told = [WeightsReport(path=f"/m/{n}", size=2**80 if n else -1) for n in range(5)]
    machine.heartbeat(
        weights_mark="x" * 100, weights=(*told[:2], WeightsReport(path="/" + "p" * 2000, size=1), *told[2:])
    )
    assert kept(machine) == ("x" * 64, [("/m/0", 0, False), ("/m/1", 2**63 - 1, False)])


def test_another_report_is_news_for_the_reconciler_and_the_same_one_is_none(
    django_capture_on_commit_callbacks: Any,
) -> None:
    heard: list[str] = []

    def take(node_id: str, **kwargs: Any) -> None:
        heard.append(node_id)

    signals.observed.connect(take)
    machine = Machine()
    try:
        for fields, count in (
            ({"weights_mark": "a", "weights": (HAS,)}, 1),
            ({"weights_mark": "a", "weights": (HAS,)}, 1),
            ({"weights_mark": "b"}, 1),
            ({"weights_mark": "b", "weights": (LACKS,)}, 2),
            ({}, 3),
        ):
            with django_capture_on_commit_callbacks(execute=True):
                machine.heartbeat(**fields)
            assert heard == [machine.node.id] * count
    finally:
        signals.observed.disconnect(take)
