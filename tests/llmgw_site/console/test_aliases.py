"""The aliases page, and the forms that it leads to."""

from __future__ import annotations

import html
import re
from datetime import UTC, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from catalog.models import Adapter, Alias, Event, Model
from catalog.services import aliases, served
from routing.models import UsageDay
from tests.llmgw_site.console.conftest import Person
from tests.rows import ACTOR, a_model

PAGE = "/admin/aliases"
ADD = "/admin/catalog/alias/add/"


@pytest.fixture(autouse=True)
def models(db: None) -> None:
    Adapter.objects.create(name="ahoy", model=a_model("tiny"), path="/srv/ahoy.gguf", size=1)
    a_model("small")


def an_alias(name: str = "chat", **weights: int) -> Alias:
    split = [{"model": model, "weight": weight} for model, weight in (weights or {"tiny": 90, "small": 10}).items()]
    return aliases.add(actor=ACTOR, name=name, targets=split, description="for agents")


def text_of(client: Client, path: str = PAGE) -> str:
    page = html.unescape(client.get(path, follow=True).content.decode()).replace("\N{NO-BREAK SPACE}", " ")
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def form(*targets: tuple[str, int], initial: int = 0, ids: tuple[str, ...] = (), **fields: Any) -> dict[str, Any]:
    data: dict[str, Any] = {"name": "chat", "description": "", **fields}
    data |= {"targets-TOTAL_FORMS": len(targets), "targets-INITIAL_FORMS": initial}
    for number, (name, weight) in enumerate(targets):
        data |= {f"targets-{number}-target": name, f"targets-{number}-weight": weight}
        if number < len(ids):
            data[f"targets-{number}-id"] = ids[number]
    return data


def test_without_aliases_the_page_says_what_they_are_for(admin: Client) -> None:
    assert "No alias yet" in text_of(admin)


def test_a_split_is_drawn_as_it_is_set_and_as_it_was_answered(admin: Client) -> None:
    an_alias(tiny=90, ahoy=9, small=1)
    an_alias("quiet", small=1)
    served.disable(actor=ACTOR, model=Model.objects.get(name="small"))
    today = timezone.now().astimezone(UTC).date()
    for name, count, day in (
        ("tiny", 60, today),
        ("tiny", 30, today - timedelta(days=6)),
        ("gone", 10, today),
        ("tiny", 7, today - timedelta(days=7)),
    ):
        UsageDay.objects.create(day=day, key_id=f"{day}", model_asked="chat", model_served=name, requests=count)
    text = text_of(admin)
    assert (
        "chat for agents tiny 90 % weight 90 ahoy 9 % adapter, weight 9 small 1 % weight 1, disabled: the others answer"
        in text
    )
    assert "tiny 90 % 90 requests gone 10 % 10 requests Change Remove" in text
    assert "no requests" in text
    page = admin.get(PAGE).content.decode()
    assert '<i class="hue-0" style="--v:90.00%"></i><i class="hue-1" style="--v:9.00%"></i>' in page
    assert '<i class="others" style="--v:10.00%"></i>' in page, "no target of it any more"


def test_an_alias_is_added_and_changed_by_the_form(admin: Client) -> None:
    page = admin.get(ADD).content.decode()
    assert '<option value="ahoy">ahoy</option>' in page
    answer = admin.post(ADD, form(("tiny", 3), ("ahoy", 1), ("", 1), description="x"))
    assert (answer.status_code, answer["location"]) == (302, PAGE), answer.content.decode()[-3000:]
    alias = Alias.objects.get()
    assert aliases.split_of(alias) == {"tiny": 3, "ahoy": 1}
    assert alias.description == "x"
    path = f"/admin/catalog/alias/{alias.pk}/change/"
    ids = tuple(alias.targets.order_by("id").values_list("pk", flat=True))
    rows = tuple((item.name, item.weight) for item in alias.targets.order_by("id"))
    assert 'value="3"' in admin.get(path).content.decode()
    changed = {**form((rows[0][0], 5), rows[1], initial=2, ids=ids, name="talk"), "targets-1-DELETE": "on"}
    assert admin.post(path, changed)["location"] == PAGE
    alias.refresh_from_db()
    assert alias.name == "talk"
    assert aliases.split_of(alias) == {rows[0][0]: 5}
    assert Event.objects.filter(kind="alias_split_changed").count() == 1
    assert "talk" in text_of(admin, "/admin/catalog/alias/")


@pytest.mark.parametrize(
    ("targets", "fields", "words"),
    [
        ((), {}, "an alias stands for 1 to 16"),
        ((("tiny", 1), ("tiny", 2)), {}, "named twice"),
        ((("tiny", 0),), {}, "greater than or equal to 1"),
        ((("tiny", 1),), {"name": "small"}, "There is a model named small"),
        ((("absent", 1),), {}, "absent is not one of the available choices"),
    ],
)
def test_what_is_wrong_is_said_in_the_form_and_all_that_was_typed_stays(
    admin: Client, targets: tuple[tuple[str, int], ...], fields: dict[str, Any], words: str
) -> None:
    answer = admin.post(ADD, form(*targets, description="typed", **fields))
    page = html.unescape(answer.content.decode())
    assert answer.status_code == 200
    assert words in page
    assert "typed" in page
    assert not Alias.objects.exists()


def test_one_is_removed_by_its_button(admin: Client) -> None:
    alias = an_alias()
    path = f"{PAGE}/{alias.pk}/remove"
    assert admin.get(path).status_code == 405
    assert "chat is removed." in admin.post(path, follow=True).content.decode()
    assert "not_found" in admin.post(path, follow=True).content.decode()
    alias = an_alias()
    assert admin.post(f"/admin/catalog/alias/{alias.pk}/delete/", {"post": "yes"}).status_code == 302
    assert not Alias.objects.exists()


def test_who_may_only_look_sees_no_buttons_and_no_counts(person: Person) -> None:
    alias = an_alias()
    client = person("catalog.view_alias", "catalog.view_model")
    text = text_of(client)
    assert "tiny 90 %" in text
    page = client.get(PAGE).content.decode()
    for word in ("Answered by", "Change chat", "Remove chat", "Add an alias"):
        assert word not in page
    assert client.post(f"{PAGE}/{alias.pk}/remove").status_code == 403
    assert client.get(ADD).status_code == 403
    assert person("catalog.view_model", name="other").get(PAGE).status_code == 403
