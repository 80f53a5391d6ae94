"""What nodes report of weights is kept whole, once, and bounded; and models go where their weights lie."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from catalog.models import Model
from cluster import selectors, signals
from cluster.models import Node, Replica
from cluster.selectors import holdings
from cluster.services import nodes, standing
from cluster.wire import Wanted, WeightsReport, from_dict, to_dict
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.units import GIB
from routing.selectors import compile_snapshot
from tests.cluster.rows import HARDWARE, Machine, a_model_row, tick
from workers.agent.weights import Holdings

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
    assert answered(weights_mark="").weights_mark == "a"  # its agent has just begun
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


@pytest.fixture(autouse=True)
def unread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What another test's nodes told is no matter of this one. And none is so slow that its time to tell is over meanwhile."""
    monkeypatch.setattr(holdings, "ALL_ASKED_FOR", 20.0)
    holdings._reports.clear()
    yield
    holdings._reports.clear()


class Place:
    """A node's agent as far as weights go: it looks at its own disk for what the snapshot names, and tells it."""

    def __init__(self, name: str, memory: int = 8 * GIB) -> None:
        self.machine = Machine(name)
        self.holdings = Holdings(news=lambda: None)
        self.hardware = replace(HARDWARE, memory_total=memory, memory_available=memory, disk_free=100 * GIB)

    def beat(self) -> None:
        """Look, and tell until the controllers hold it."""
        snapshot = compile_snapshot(now=selectors.database_now())
        self.holdings.ask(item.weights for item in snapshot.models)
        self.holdings.look()
        for _ in range(2):
            self.machine.node.refresh_from_db()
            beat = self.machine.beat(
                hardware=self.hardware, weights_mark=self.holdings.mark, weights=self.holdings.to_tell
            )
            wanted = nodes.heartbeat(node=self.machine.node, beat=beat, now=selectors.database_now())
            self.holdings.answered(wanted, beat)
        assert self.holdings.to_tell is None


def where(name: str) -> list[str]:
    return sorted(Replica.objects.filter(model__name=name, run=True).values_list("node__name", flat=True))


def settle(name: str, seconds: float = 60.0) -> None:
    """Let the model have changed last so long ago; by default so that every node that tells has told of it by now."""
    Model.objects.filter(name=name).update(updated_at=timezone.now() - timedelta(seconds=seconds))


def test_a_model_lands_on_the_node_that_holds_its_file(tmp_path: Path) -> None:
    """Each agent looks by itself at the path that the snapshot names; the file comes between the two looks."""
    file = tmp_path / "m.gguf"
    large, small = Place("large", 64 * GIB), Place("small", 8 * GIB)
    a_model_row("m", weights_path=str(file), weights_size=4)
    large.beat()
    file.write_bytes(b"GGUF")
    small.beat()
    tick()
    assert where("m") == ["small"]  # with spread, `large` has more room


def test_a_new_model_waits_for_the_word_of_nodes_that_tell_and_is_placed_with_it(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    large, small = Place("large", 64 * GIB), Place("small", 8 * GIB)
    large.beat()
    small.beat()
    a_model_row("m", weights_path=str(file), weights_size=4)
    tick()
    assert where("m") == []
    now = selectors.database_now()
    _, statuses = selectors.statuses(selectors.world(now), now)
    status = next(item for item in statuses.values() if item.name == "m")
    assert (status.code, status.reason) == ("asking_nodes", "nodes are being asked whether they have the weights of m")
    file.write_bytes(b"GGUF")
    small.beat()
    tick()
    assert where("m") == []  # the other may have them, too
    file.unlink()
    large.beat()
    tick()
    assert where("m") == ["small"]


def test_a_node_that_says_nothing_holds_up_the_others_for_a_moment_only(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    silent, quick = Place("silent", 64 * GIB), Place("quick", 8 * GIB)
    silent.beat()
    quick.beat()
    a_model_row("m", weights_path=str(file), weights_size=4)
    file.write_bytes(b"GGUF")
    quick.beat()
    tick()
    assert where("m") == []
    settle("m", holdings.ALL_ASKED_FOR + 1.0)
    tick()
    assert where("m") == ["quick"]


def test_replicas_of_a_new_model_are_spread_though_one_node_is_the_first_to_say(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    places = [Place(f"n{n}") for n in range(3)]
    for place in places:
        place.beat()
    a_model_row("m", weights_path=str(file), weights_size=4, replicas=3)
    file.write_bytes(b"GGUF")
    for place in places:
        place.beat()
        tick()
    assert sorted(where("m")) == ["n0", "n1", "n2"]


def test_a_model_may_be_sized_before_nodes_have_said_what_they_have(tmp_path: Path) -> None:
    place = Place("one")
    place.beat()
    model = a_model_row("m", weights_path=str(tmp_path / "m.gguf"), weights_size=4)
    standing.scale(actor="t", model=model, replicas=2)
    place.beat()  # it says that it has not
    model.refresh_from_db()
    with pytest.raises(Refused, match="it does not say that it has"):
        standing.scale(actor="t", model=model, replicas=3)


def test_a_node_that_never_tells_of_a_path_is_waited_for_no_longer_than_a_while() -> None:
    place = Place("one")
    place.beat()
    a_model_row("m")
    place.machine.node.refresh_from_db()
    place.machine.heartbeat(hardware=place.hardware, weights_mark=place.holdings.mark)
    tick()
    assert where("m") == []
    settle("m")
    tick()
    assert where("m") == ["one"]


def test_nodes_that_tell_nothing_are_treated_as_before_whatever_their_disk() -> None:
    """They are of an older version, and may have the file: nobody knows. HARDWARE has no byte of disk."""
    machine = Machine("old")
    a_model_row("m", weights_size=GIB)
    machine.heartbeat()
    tick()
    assert where("m") == ["old"]
    view = selectors.world().nodes[0]
    assert (view.disk_free, view.weights, view.lacks) == (None, frozenset(), frozenset())


def test_reports_are_read_when_they_are_new_and_shared_by_who_says_the_same(tmp_path: Path) -> None:
    places = [Place(f"n{n}") for n in range(3)]
    a_model_row("m", weights_path=str(tmp_path / "m.gguf"), replicas=0)
    for place in places:
        place.beat()
    now = selectors.database_now()

    def queries() -> int:
        with CaptureQueriesContext(connection) as found:
            selectors.world(now)
        return len(found)

    holdings._reports.clear()
    first, second = queries(), queries()
    assert first == second + 2
    kept = [holdings._reports[place.machine.node.id][1] for place in places]
    assert kept[0] is kept[1] is kept[2]
    (tmp_path / "m.gguf").write_bytes(b"x" * 1000)
    places[0].holdings.look()
    places[0].machine.node.refresh_from_db()
    places[0].machine.heartbeat(weights_mark="new", weights=places[0].holdings._looked[1])
    assert queries() == first
    assert queries() == second
    views = {view.name: view for view in selectors.world(now).nodes}
    assert [bool(views[name].weights) for name in ("n0", "n1", "n2")] == [True, False, False]
    Node.objects.all().update(removed_at=timezone.now())
    Place("another").beat()
    selectors.world(now)
    assert list(holdings._reports) == [Node.objects.get(name="another").id]
