"""Aliases: what may stand in one, what hangs on it, what is recorded, and what nodes are told."""

from __future__ import annotations

import json
from typing import Any

import pytest

from catalog import selectors
from catalog.models import Adapter, Alias, AliasTarget, Event, Model
from catalog.services import adapters, aliases, served
from catalog.services.aliases import MAX_TARGETS
from llmgw_site.lib.errors import Refused
from routing import services
from routing.models import PublishedSnapshot
from tests.rows import ACTOR, a_model

pytestmark = pytest.mark.django_db


def an_adapter(model: Model, name: str = "ahoy") -> Adapter:
    return Adapter.objects.create(name=name, model=model, path=f"/srv/{name}.gguf", size=1)


def split(**weights: int) -> list[dict[str, Any]]:
    return [{"model": name, "weight": weight} for name, weight in weights.items()]


def an_alias(name: str = "chat", **weights: int) -> Alias:
    return aliases.add(actor=ACTOR, name=name, targets=split(**(weights or {"tiny": 90, "small": 10})))


@pytest.fixture
def models() -> dict[str, Model]:
    return {name: a_model(name) for name in ("tiny", "small")}


def refused(call: Any, **arguments: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        call(actor=ACTOR, **arguments)
    return caught.value


def test_an_alias_reaches_nodes_with_names_and_weights(models: dict[str, Model]) -> None:
    an_adapter(models["tiny"])
    alias = an_alias("chat", small=1, ahoy=3)
    services.publish()
    told = json.loads(PublishedSnapshot.objects.get().payload)["aliases"]
    assert [(item["name"], item["created"]) for item in told] == [("chat", int(alias.created_at.timestamp()))]
    assert {item["model"]: item["weight"] for item in told[0]["targets"]} == {"small": 1, "ahoy": 3}
    shown = [(item.name, item.kind, item.share) for item in aliases.shown(selectors.aliases().get())]
    assert shown == [("ahoy", "adapter", 0.75), ("small", "model", 0.25)]


def test_it_is_told_by_one_query_and_listed_by_two(models: dict[str, Model], django_assert_num_queries: Any) -> None:
    for number in range(3):
        an_alias(f"chat-{number}")
    with django_assert_num_queries(1):
        assert len(selectors.alias_views()) == 3
    with django_assert_num_queries(2):
        assert [len(aliases.shown(row)) for row in selectors.aliases()] == [2, 2, 2]


def test_a_split_takes_the_place_of_the_one_before_and_says_so(models: dict[str, Model]) -> None:
    alias = an_alias()
    added = Event.objects.get(kind="alias_added")
    assert added.message == "alias chat added: small 10 (10.0%), tiny 90 (90.0%)"
    assert added.after is not None
    assert added.after["targets"] == {"small": 10, "tiny": 90}
    before = alias.updated_at
    aliases.change(actor=ACTOR, alias=alias, targets=split(small=1), why="it is good")
    event = Event.objects.get(kind="alias_split_changed")
    assert (event.before, event.after) == ({"targets": {"small": 10, "tiny": 90}}, {"targets": {"small": 1}})
    assert event.why == "it is good"
    assert Alias.objects.get().updated_at > before
    assert AliasTarget.objects.count() == 1
    aliases.change(actor=ACTOR, alias=alias, name="talk", targets=split(small=1))
    assert Event.objects.filter(kind="alias_split_changed").count() == 1, "nothing differs"
    assert Event.objects.get(kind="alias_changed").after == {"name": "talk"}
    aliases.remove(actor=ACTOR, alias=alias)
    assert not AliasTarget.objects.exists()
    assert Model.objects.count() == 2


def test_a_renamed_model_stays_a_target(models: dict[str, Model]) -> None:
    an_alias()
    served.update(actor=ACTOR, model=models["tiny"], name="tiny-2")
    assert dict(selectors.alias_views()[0].targets) == {"tiny-2": 90, "small": 10}


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        ([], "1 to 16"),
        ("tiny", "1 to 16"),
        (split(tiny=1) * (MAX_TARGETS + 1), "1 to 16"),
        (split(tiny=0), "whole number from 1"),
        (split(tiny=-3), "whole number from 1"),
        (split(tiny=1_000_001), "1,000,000"),
        ([{"model": "tiny", "weight": True}], "whole number"),
        ([{"model": "tiny", "weight": 0.5}], "whole number"),
        ([{"weight": 1}], "each target"),
        (["tiny"], "each target"),
        ([{"model": "ti\x00ny"}], "each target"),
        (split(absent=1), "no model and no adapter named absent"),
        ([*split(tiny=1), *split(tiny=2)], "named twice"),
        (split(other=1), "other is an alias, too"),
        (split(tiny=1, vectors=1), "vectors computes embeddings and tiny does not"),
    ],
)
def test_what_cannot_stand_in_an_alias_is_refused_with_the_field(
    models: dict[str, Model], targets: Any, words: str
) -> None:
    a_model("vectors", embeddings=True)
    an_alias("other", small=1)
    found = refused(aliases.add, name="chat", targets=targets)
    assert (found.code, found.param) == ("invalid_value", "targets")
    assert words in found.message
    alias = Alias.objects.get(name="other")
    assert refused(aliases.change, alias=alias, targets=targets).message == found.message
    assert aliases.split_of(alias) == {"small": 1}


def test_a_target_may_be_named_by_its_id(models: dict[str, Model]) -> None:
    alias = an_alias("chat", **{models["tiny"].pk: 2})
    assert aliases.split_of(alias) == {"tiny": 2}
    found = refused(aliases.add, name="x", targets=[*split(tiny=1), {"model": models["tiny"].pk}])
    assert "twice" in found.message


def test_models_adapters_and_aliases_have_one_namespace(models: dict[str, Model]) -> None:
    an_adapter(models["tiny"])
    alias = an_alias()
    for name in ("tiny", "ahoy", "chat"):
        assert refused(aliases.add, name=name, targets=split(tiny=1)).code == "name_taken"
    assert refused(aliases.change, alias=alias, name="small").code == "name_taken"
    assert refused(served.update, model=models["tiny"], name="chat").code == "name_taken"
    found = refused(served.add_model, name="chat", weights_path="/not/here.gguf", profile={"memory": 1 << 26})
    assert (found.code, found.message) == (
        "name_taken",
        "There is an alias named chat: a model needs a name of its own.",
    )
    assert refused(aliases.add, name=" x", targets=split(tiny=1)).param == "name"
    assert refused(aliases.change, alias=alias, enabled=False).code == "unknown_field"


def test_what_an_alias_stands_for_is_not_removed(models: dict[str, Model]) -> None:
    adapter = an_adapter(models["tiny"])
    an_alias("pirate", ahoy=1)
    found = refused(served.remove, model=models["tiny"])
    assert found.code == "still_in_use"
    assert found.message == (
        "The model tiny cannot be removed: the alias pirate stands for it. Give that other targets first, or remove it."
    )
    assert refused(adapters.remove, adapter=adapter).code == "still_in_use"
    an_alias("chat", tiny=1)
    assert "the aliases chat, pirate stand for it" in refused(served.remove, model=models["tiny"]).message
    for alias in Alias.objects.all():
        aliases.change(actor=ACTOR, alias=alias, targets=split(small=1))
    served.remove(actor=ACTOR, model=models["tiny"])
    assert [view.targets for view in selectors.alias_views()] == [(("small", 1),)] * 2


def test_one_that_is_removed_at_the_same_moment_is_refused_by_the_table(models: dict[str, Model]) -> None:
    """The service looks first; what came between is held by the foreign key."""
    from catalog.services import rows

    an_alias()
    found = refused(rows.remove, row=models["tiny"], message="removed")
    assert (found.code, "it still has aliases" in found.message) == ("still_in_use", True)
