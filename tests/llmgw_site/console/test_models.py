"""The card of one model and its forms."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client

from catalog.models import Event, Model, Profile
from catalog.services import profiles
from cluster.models import ModelStanding, Replica
from cluster.selectors import database_now, statuses, world
from cluster.services import apply
from tests.llmgw_site.console.conftest import Cluster, Person

SEE = ("catalog.view_model", "cluster.view_replica", "cluster.view_node")


def text_of(client: Client, path: str) -> str:
    """The page's own text, without marks and with single spaces."""
    page = html.unescape(client.get(path, follow=True).content.decode())
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


@pytest.fixture
def model(cluster: Cluster) -> Model:
    row = cluster.model("chat", in_flight=1)
    profiles.update(actor="t", profile=row.profiles.get(), measured_tps=50.0)
    return row


def send(client: Client, model: Model, verb: str, **form: str) -> str:
    answer = client.post(f"/admin/model/{model.pk}/{verb}", form, follow=True)
    assert answer.status_code in (200, 409)
    return " ".join(re.sub(r"<[^>]+>", " ", html.unescape(answer.content.decode())).split())


def test_the_card_shows_replicas_room_and_decisions(admin: Client, model: Model) -> None:
    text = text_of(admin, f"/admin/model/{model.pk}")
    for words in ("State ready 1 of 1 ready", "Scaling 1 replica always", "Class Standard", "Owner Nobody", "alpha", "default",
                  "25 % of 4 cores of the node told", "300.0 MiB of", "1 of 2", "Room for more", "1 replica here,", "more fit",
                  "its maximum allows no more", "A replica of chat is placed on node alpha", "50 tokens/s"):  # fmt: skip
        assert words in text, words
    part = admin.get(f"/admin/model/{model.pk}?parts=1")
    assert "X-Llmgw-Now" in part.headers
    assert b"<form" not in part.content
    assert f"/admin/model/{model.pk}" in admin.get("/admin/").content.decode()


def test_a_replica_that_takes_more_than_it_holds_is_shown_with_a_warning(admin: Client, model: Model) -> None:
    Replica.objects.update(reserved=100 << 20)
    text = text_of(admin, f"/admin/model/{model.pk}")
    assert "It takes 300.0 MiB and holds 100.0 MiB: its node may run short" in text


def test_who_may_only_see_gets_no_forms_and_cannot_order(person: Person, model: Model) -> None:
    reader = person(*SEE)
    page = reader.get(f"/admin/model/{model.pk}").content.decode()
    assert "Room for more" in page
    assert f"/admin/model/{model.pk}/scale" not in page
    assert reader.post(f"/admin/model/{model.pk}/scale", {"replicas": "2"}).status_code == 403
    assert person(name="nobody").get(f"/admin/model/{model.pk}").status_code == 403


def test_a_model_that_is_not_there_is_not_found(admin: Client, cluster: Cluster) -> None:
    assert admin.get("/admin/model/mod_none").status_code == 404
    assert admin.post("/admin/model/mod_none/retry").status_code == 404


def test_the_forms_order_what_the_command_line_does(admin: Client, model: Model) -> None:
    said = send(admin, model, "scale", replicas="1", max_replicas="3", rest_after="", why="launch")
    assert "The scaling of chat is set." in said
    model.refresh_from_db()
    assert (model.replicas, model.max_replicas) == (1, 3)
    assert Event.objects.filter(subject_id=model.pk, why="launch").exists()
    assert "The class of chat is set." in send(admin, model, "class", **{"class": "critical"})
    assert "chat has 1 replica for 50 tokens/s" in send(admin, model, "target", tps="50")
    assert "chat has 2 replicas for 100 tokens/s" in send(admin, model, "target", tps="100")
    assert "The replica of chat is replaced." in send(admin, model, "restart", in_place="1")
    assert ModelStanding.objects.get().in_place
    model.refresh_from_db()
    assert (model.priority_class, model.replicas) == ("critical", 2)


@pytest.mark.parametrize(
    ("verb", "form", "said"),
    [
        ("scale", {"replicas": "5000"}, "min_not_placeable"),
        ("scale", {"replicas": "-1"}, "A whole number from 0 on is needed"),
        ("scale", {"replicas": ""}, "Write how many shall always run"),
        ("scale", {"replicas": "2", "max_replicas": "1"}, "below those that shall run"),
        ("class", {"class": "urgent"}, "invalid_value"),
        ("target", {"tps": "nan"}, "A number above 0 is needed"),
        ("target", {"tps": "0"}, "a number above 0"),
        ("retry", {}, "nothing_to_retry"),
    ],
)
def test_what_is_refused_is_said_and_changes_nothing(
    admin: Client, model: Model, verb: str, form: dict[str, str], said: str
) -> None:
    assert said in send(admin, model, verb, **form)
    model.refresh_from_db()
    assert (model.replicas, model.max_replicas, model.priority_class) == (1, None, "")


@pytest.mark.parametrize(
    ("verb", "form", "kept", "at"),
    [
        ("scale", {"replicas": "5000", "max_replicas": "9000", "rest_after": "7", "why": "for <the> fair"},
         ['value="5000"', 'value="9000"', 'value="7"', "for &lt;the&gt; fair"], "replicas"),
        ("scale", {"replicas": "3", "max_replicas": "2"}, ['value="3"', 'value="2"'], "max_replicas"),
        ("scale", {"replicas": "1", "rest_after": "soon"}, ['value="soon"'], "rest_after"),
        ("target", {"tps": "1e6"}, ['value="1e6"'], "tps"),
        ("class", {"class": "urgent"}, [], "class"),
        ("owner", {"scope": "proj_none"}, [], "scope"),
        ("adapter", {"source": "", "name": "a <b>"}, ["a &lt;b&gt;"], "source"),
        ("adapter", {"source": "/w/a.gguf", "scale": "much"}, ['value="much"', 'value="/w/a.gguf"'], "scale"),
        ("adapter", {"source": "/w/none.gguf"}, ['value="/w/none.gguf"'], "source"),
        ("weights/bench", {"ttft": "soon"}, ['value="soon"'], "ttft"),
        ("weights/origin", {"repository": "no repository", "commit": "abc"}, ['value="no repository"', 'value="abc"'], "repository"),
    ],
)  # fmt: skip
def test_a_refused_form_stays_as_it_was_filled_in_with_the_reason_in_it(
    admin: Client, model: Model, verb: str, form: dict[str, str], kept: list[str], at: str
) -> None:
    answer = admin.post(f"/admin/model/{model.pk}/{verb}", form)
    page = answer.content.decode()
    assert answer.status_code == 409
    assert page.count("Nothing was changed.") == 1
    for words in kept:
        assert words in page, words
    assert re.findall(r'name="(\w+)"[^>]*aria-invalid="true"', page) == [at]
    assert re.findall(r'id="error-(\w+)"', page) == [at], "the refusal stands there and nowhere else"
    assert f"/admin/model/{model.pk}?parts=1" in page  # it goes on being kept current


def test_a_refused_restart_says_so_in_its_dialog_and_a_refused_retry_above_the_card(
    admin: Client, cluster: Cluster
) -> None:
    model = cluster.model("resting", ready=False, replicas=0, max_replicas=1)
    assert (
        '<dialog class="lg-dialog" id="restart" aria-labelledby="restart-title">'
        in admin.get(f"/admin/model/{model.pk}").content.decode()
    )
    page = admin.post(f"/admin/model/{model.pk}/restart", {"in_place": "1", "why": "a driver"}).content.decode()
    dialog = page[page.index('id="restart"') : page.index("</dialog>", page.index('id="restart"'))]
    assert 'aria-labelledby="restart-title" open>' in dialog
    assert "nothing_to_restart" in dialog
    assert page.count("nothing_to_restart") == 1
    assert 'value="1" checked' in page
    assert 'value="a driver"' in page
    page = admin.post(f"/admin/model/{model.pk}/retry").content.decode()
    assert page.index("nothing_to_retry") < page.index('data-part="model"')


def test_the_address_of_an_order_leads_to_the_card(admin: Client, model: Model) -> None:
    answer = admin.get(f"/admin/model/{model.pk}/scale")
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/admin/model/{model.pk}")


def test_a_parked_model_says_so_with_its_cause_and_is_tried_again(admin: Client, model: Model) -> None:
    Replica.objects.update(state="backoff", attempt=9, code="engine_start_failed", message="the file is broken")
    now = database_now()
    apply.commit(statuses(world(now), now)[0])
    text = text_of(admin, f"/admin/model/{model.pk}")
    assert "Parked. " in text
    assert "the file is broken" in text
    assert "Parked since" in text
    assert "chat is tried again." in send(admin, model, "retry")
    assert ModelStanding.objects.get().parked_at is None


def test_at_rest_it_says_what_starts_it(admin: Client, cluster: Cluster) -> None:
    model = cluster.model("sleepy", ready=False, replicas=0, max_replicas=2)
    text = text_of(admin, f"/admin/model/{model.pk}")
    assert "At rest. The model sleepy runs on demand and is at rest: a request starts it" in text
    assert "On demand, at most 2 replicas, rests after 15 min 0 s without a request" in text
    assert Profile.objects.filter(model=model).count() == 1
