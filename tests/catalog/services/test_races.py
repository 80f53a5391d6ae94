"""Two at once: the table decides, one wins, the other is told. Real threads with connections of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections

from catalog.models import Alias, Event, Model, Profile
from catalog.services import aliases, keys, scopes, served
from llmgw_site.lib.errors import Refused
from tests.rows import ACTOR, a_key, a_model, a_project

pytestmark = pytest.mark.django_db(transaction=True)


def at_once(count: int, act: Callable[[int], Any]) -> list[Any]:
    """What each of `count` threads returned or raised."""
    start = threading.Barrier(count)
    results: list[Any] = [None] * count

    def run(number: int) -> None:
        try:
            start.wait(60)
            results[number] = act(number)
        except Exception as error:
            results[number] = error
        finally:
            connections.close_all()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return results


def test_one_name_is_given_to_one_of_many() -> None:
    results = at_once(
        4, lambda n: served.add_model(actor=f"user:{n}", name="m", weights_path="/x.gguf", weights_size=64)
    )
    refused = [item for item in results if isinstance(item, Refused)]
    assert [item.code for item in refused] == ["name_taken"] * 3, results
    assert (Model.objects.count(), Profile.objects.count(), Event.objects.count()) == (1, 1, 2)


def test_a_key_is_revoked_once() -> None:
    key, _ = a_key()
    results = at_once(4, lambda n: keys.revoke(actor=f"user:{n}", key=type(key).objects.get(pk=key.pk)))
    assert not [item for item in results if isinstance(item, Exception)], results
    assert Event.objects.filter(kind="key_revoked").count() == 1


def test_changes_of_different_fields_do_not_undo_each_other() -> None:
    model = a_model()
    changes: list[dict[str, Any]] = [
        {"max_replicas": 5},
        {"description": "new"},
        {"embeddings": True},
        {"enabled": False},
    ]
    results = at_once(4, lambda n: served.update(actor=ACTOR, model=Model.objects.get(pk=model.pk), **changes[n]))
    assert not [item for item in results if isinstance(item, Exception)], results
    model.refresh_from_db()
    assert (model.max_replicas, model.description, model.embeddings, model.enabled) == (5, "new", True, False)


def test_a_key_issued_while_its_project_is_deleted_is_refused_or_keeps_it() -> None:
    project = a_project()

    def act(number: int) -> Any:
        if number:
            return keys.issue(actor=ACTOR, project=project, name="k")
        return scopes.delete(actor=ACTOR, scope=project)

    results = at_once(2, act)
    failed = [item for item in results if isinstance(item, Exception)]
    assert len(failed) == 1
    assert isinstance(failed[0], Refused)


def test_a_model_and_an_alias_do_not_get_one_name() -> None:
    a_model("tiny")

    def act(number: int) -> Any:
        if number % 2:
            return aliases.add(actor="t", name="chat", targets=[{"model": "tiny"}])
        return served.add_model(actor="t", name="chat", weights_path="/x.gguf", weights_size=64)

    results = at_once(4, act)
    assert [item.code for item in results if isinstance(item, Refused)] == ["name_taken"] * 3, results
    assert Model.objects.filter(name="chat").count() + Alias.objects.filter(name="chat").count() == 1


def test_a_model_that_is_removed_while_an_alias_is_made_for_it_stays_or_refuses_the_alias() -> None:
    model = a_model("tiny")

    def act(number: int) -> Any:
        if number:
            return aliases.add(actor="t", name="chat", targets=[{"model": "tiny"}])
        return served.remove(actor="t", model=model)

    refused = [item for item in at_once(2, act) if isinstance(item, Refused)]
    assert len(refused) == 1, refused
    assert refused[0].code in ("still_in_use", "invalid_value", "not_found")
    assert Alias.objects.count() == Model.objects.count()
