"""What rows say of waiting: a model's queue and its fallbacks, a key's priority; set by the API, told in the snapshot."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from catalog.models import ApiKey, Event
from catalog.services import keys, served
from llmgw_site.lib.clock import new_id
from llmgw_site.lib.errors import Refused
from routing import services
from routing.models import PublishedSnapshot
from tests.rows import ACTOR, a_model, a_project, a_token, a_user

pytestmark = pytest.mark.django_db


def send(method: str, path: str, body: dict[str, Any]) -> Any:
    user = get_user_model().objects.filter(username="root").first() or a_user("root", superuser=True)
    call = getattr(Client(), method)
    headers = {"authorization": f"Bearer {a_token(user, new_id('t'))}"}
    return call(f"/api/v1/{path}", json.dumps(body), content_type="application/json", headers=headers)


def told(kind: str) -> dict[str, Any]:
    services.publish()
    found: dict[str, Any] = json.loads(PublishedSnapshot.objects.get().payload)[kind][-1]
    return found


def test_a_models_queue_and_fallbacks_reach_nodes() -> None:
    a_model("other")
    a_model()
    body = {"queue_length": 0, "queue_wait": 2.5, "fallbacks": ["other", "other"]}
    answer = send("patch", "models/tiny", body)
    assert answer.status_code == 200, answer.content
    assert answer.json()["fallbacks"] == ["other"]
    entry = told("models")
    assert (entry["name"], entry["queue_length"], entry["queue_wait"]) == ("tiny", 0, 2.5)
    assert entry["fallbacks"] == ["other"]
    after = Event.objects.filter(kind="model_changed").get().after
    assert after is not None
    assert after["queue_length"] == 0
    answer = send("patch", "models/tiny", {"queue_length": None, "queue_wait": None, "fallbacks": []})
    assert (answer.json()["queue_length"], answer.json()["fallbacks"]) == (None, [])


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"fallbacks": ["tiny"]}, "cannot answer instead of itself"),
        ({"fallbacks": ["nobody"]}, "there is no model named nobody"),
        ({"fallbacks": [f"m{n}" for n in range(9)]}, "8"),
        ({"queue_length": -1}, "queue_length"),
        ({"queue_wait": 0}, "queue_wait"),
    ],
)
def test_what_makes_no_sense_is_refused(body: dict[str, Any], words: str) -> None:
    a_model()
    answer = send("patch", "models/tiny", body)
    assert answer.status_code == 400
    assert words in answer.json()["error"]["message"]


def test_fallbacks_that_are_no_list_of_names_are_refused() -> None:
    model = a_model()
    for wrong in ("other", [1], {"a": 1}):
        with pytest.raises(Refused):
            served.update(actor=ACTOR, model=model, fallbacks=wrong)


def test_a_keys_priority_reaches_nodes() -> None:
    project = a_project()
    answer = send("post", "keys", {"name": "batch", "project": project.name, "priority": -2})
    assert (answer.status_code, answer.json()["priority"]) == (201, -2)
    assert told("keys")["priority"] == -2
    assert send("post", "keys", {"name": "more", "project": project.name, "priority": 3}).status_code == 400
    key, _ = keys.issue(actor=ACTOR, project=project, name="usual")
    assert ApiKey.objects.get(pk=key.pk).priority == 0
