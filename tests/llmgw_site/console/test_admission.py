"""llmgw_site.console.admission: what runs and waits of a model, as its card draws it; and the card's form for it."""

from __future__ import annotations

import dataclasses
import html
import re
from typing import Any

import pytest
from django.test import Client

from catalog.models import Event, Model
from catalog.services import aliases
from cluster.models import Replica
from cluster.selectors import database_now
from llmgw_site.console.admission import Waited, admission
from routing import services
from tests.cluster.builders import a_model, a_node, a_profile, a_replica
from tests.llmgw_site.console.conftest import Cluster
from tests.routing.test_services import a_record
from tests.rows import a_model as a_row
from tests.rows import a_provider

USUAL: dict[str, Any] = {"length": None, "wait": None, "usual_length": 1000, "usual_wait": 120.0}


def test_room_is_what_was_measured_within_the_slots_and_each_node_has_a_queue() -> None:
    model = a_model(profiles=(a_profile("cpu", concurrency=3.7),))
    nodes = [a_node("a"), a_node("b")]
    ready = [
        dataclasses.replace(
            a_replica(model, node, profile_id=model.profiles[0].id), in_flight=2, waiting=5, slots=slots
        )
        for node, slots in ((nodes[0], 8), (nodes[1], 2))
    ]
    drawn = admission(model, ready, (), **{**USUAL, "length": 10, "wait": 30.0})
    assert (drawn.running, drawn.room, drawn.free) == (4, 3 + 2, 1)
    assert (drawn.waiting, drawn.most, drawn.waiting_share, drawn.look) == (10, 20, 50.0, "warn")
    assert drawn.bounds == "10 at a node, for 30 s at most, its own bounds"
    assert admission(model, ready[:1], (), **{**USUAL, "length": 5}).look == "bad"
    assert admission(model, ready, (), **USUAL).bounds == "1,000 at a node, for 2 min 0 s at most"
    assert admission(model, ready, (), **{**USUAL, "length": 0}).bounds.startswith("nobody waits")


def test_the_wait_is_the_middle_of_the_last_minutes_and_its_curve_of_all_whole_ones() -> None:
    minutes = [
        Waited(middle_s=9.0, worst_s=90.0, full=2),
        *(Waited() for _ in range(4)),
        Waited(middle_s=1.0, worst_s=4.0, late=1),
    ]
    drawn = admission(a_model(), [], minutes, **USUAL)
    assert (drawn.wait, drawn.worst) == ("1.0 s", "4.0 s")
    assert (drawn.full, drawn.late, drawn.away, drawn.minutes) == (2, 1, 3, 6)
    assert drawn.spark.dots  # one lone point
    assert not drawn.spark.line
    nothing = admission(a_model(), [], [Waited()] * 6, **USUAL)
    assert (nothing.wait, nothing.worst, nothing.room, nothing.running_share) == ("", "", 0, None)


@pytest.fixture
def model(cluster: Cluster) -> Model:
    row = cluster.model("chat", in_flight=2)
    Replica.objects.update(waiting=3)
    aliases.add(actor="t", name="prod", targets=[{"model": "chat", "weight": 1}])
    now = database_now()
    fields = {"model_asked": "chat", "model_served": "chat", "started_at": now}
    services.store_usage(
        node_id="n",
        records=[
            *(a_record(f"r{n}", **fields, queue_s=1.5, total_s=3.0) for n in range(3)),
            a_record("full", **{**fields, "outcome": "refused", "status": 429, "code": "queue_full"}),
            a_record("late", **{**fields, "outcome": "refused", "status": 503, "code": "queue_timeout"}),
            a_record("by alias", **{**fields, "model_asked": "prod", "alias_target": "chat", "queue_s": 7.0}),
            a_record("elsewhere", **{**fields, "model_asked": "prod", "alias_target": "other", "queue_s": 80.0}),
            a_record("of another", **{**fields, "model_asked": "other", "code": "queue_full", "queue_s": 99.0}),
        ],
    )  # fmt: skip
    return row


def text_of(answer: Any) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", html.unescape(answer.content.decode())).split())


def test_the_card_draws_what_runs_waits_and_was_turned_away(admin: Client, model: Model) -> None:
    text = text_of(admin.get(f"/admin/model/{model.pk}?parts=1"))
    for words in (
        "Running 2 of 2 at once All the room is taken", "Waiting 3 of 1,000 at most", "Median wait in 5 min 1.5 s 7.0 s at the worst",
        "Turned away in 30 min 2 1 because the queue was full, 1 whose turn came too late", "Waiting: 1,000 at a node, for 2 min 0 s at most",
    ):  # fmt: skip
        assert words in text, words


def test_bounds_and_fallbacks_are_set_by_one_form(admin: Client, cluster: Cluster, model: Model) -> None:
    cluster.model("small", ready=False)
    path = f"/admin/model/{model.pk}/queue"
    form = {"queue_length": "20", "queue_wait": "2.5", "fallbacks": "small\r\n", "why": "launch"}
    text = text_of(admin.post(path, form, follow=True))
    assert "What becomes of requests that chat has no room for is set." in text
    assert "While it cannot answer, others do: small." in text
    model.refresh_from_db()
    assert (model.queue_length, model.queue_wait, model.fallbacks) == (20, 2.5, ["small"])
    assert Event.objects.filter(kind="model_changed").latest("at", "id").why == "launch"
    admin.post(path, {"queue_length": "", "queue_wait": "", "fallbacks": ""})
    model.refresh_from_db()
    assert (model.queue_length, model.queue_wait, model.fallbacks) == (None, None, [])


@pytest.mark.parametrize(
    ("form", "field", "said"),
    [
        ({"queue_length": "-1"}, "queue_length", "A whole number from 0 on is needed"),
        ({"queue_length": "99999999"}, "queue_length", "Ensure this value is less than"),
        ({"queue_wait": "soon"}, "queue_wait", "A number above 0 is needed"),
        ({"fallbacks": "nobody"}, "fallbacks", "There is no model named nobody"),
        ({"fallbacks": "chat"}, "fallbacks", "chat cannot answer instead of itself"),
    ],
)
def test_what_is_wrong_stands_beside_its_field_and_what_was_typed_stays(
    admin: Client, model: Model, form: dict[str, str], field: str, said: str
) -> None:
    whole = {"queue_length": "7", "queue_wait": "8", "fallbacks": "", "why": "because", **form}
    answer = admin.post(f"/admin/model/{model.pk}/queue", whole)
    page = html.unescape(answer.content.decode())
    assert answer.status_code == 409
    assert f'id="error-{field}">{said}' in page
    assert 'value="because"' in page
    for name, value in whole.items():
        assert f"{value}</textarea>" in page if name == "fallbacks" else f'value="{value}"' in page
    model.refresh_from_db()
    assert (model.queue_length, model.fallbacks) == (None, [])


def test_of_a_model_of_a_provider_there_are_fallbacks_only(admin: Client, cluster: Cluster) -> None:
    row = a_row("gpt", provider=a_provider(), provider_model="gpt-5", weights_path="", replicas=0)
    cluster.model("small", ready=False)
    page = admin.get(f"/admin/model/{row.pk}").content.decode()
    assert "queue_length" not in page
    assert "Requests at its replicas" not in page
    admin.post(f"/admin/model/{row.pk}/queue", {"fallbacks": "small"})
    row.refresh_from_db()
    assert row.fallbacks == ["small"]
