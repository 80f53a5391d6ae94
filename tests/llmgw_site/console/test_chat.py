"""The chat page: what it offers, and the key it is given."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from catalog.domain.keys import digest
from catalog.models import ApiKey
from catalog.services import aliases
from llmgw_site.console import chat
from tests.llmgw_site.console.conftest import Cluster, Person


def test_models_that_answer_come_first_and_the_others_say_why_they_do_not(admin: Client, cluster: Cluster) -> None:
    cluster.model("c-answering")
    cluster.model("b-embedder", embeddings=True)
    cluster.model("a-waiting", ready=False)
    found = admin.get("/admin/chat/models").json()["models"]
    assert [(model["name"], model["ready"]) for model in found] == [
        ("c-answering", True), ("a-waiting", False), ("b-embedder", False),
    ]  # fmt: skip
    others = {model["name"]: model for model in found if not model["ready"]}
    assert others["a-waiting"]["why"]
    assert others["b-embedder"]["why"] == "it answers /v1/embeddings, not chats"
    assert found[0]["facts"] == "llama.cpp · context 2,048 tokens"


def test_an_alias_is_offered_as_what_it_stands_for(admin: Client, cluster: Cluster) -> None:
    cluster.model("answering")
    cluster.model("waiting", ready=False)
    for name, *models in (("both", "answering", "waiting"), ("none", "waiting")):
        aliases.add(actor="test", name=name, targets=[{"model": model} for model in models])
    found = {item["name"]: item for item in admin.get("/admin/chat/models").json()["models"]}
    assert (found["both"]["ready"], found["both"]["facts"]) == (True, "stands for answering, waiting")
    assert (found["none"]["ready"], found["none"]["why"]) == (False, found["waiting"]["why"])


def test_a_key_lives_an_hour_and_is_kept_by_its_hash_only(admin: Client, cluster: Cluster) -> None:
    answer = admin.post("/admin/chat/key")
    assert answer.status_code == 200
    assert "no-store" in answer.headers["Cache-Control"]
    made = answer.json()
    key = ApiKey.objects.get()
    assert key.sha256 == digest(made["key"])
    assert (key.name, key.created_by, key.project.name) == ("console chat of root", "user:root", "default")
    assert key.expires_at is not None
    assert timedelta(minutes=59) < key.expires_at - timezone.now() <= chat.KEY_LIFE


def test_a_new_key_ends_the_ones_before_but_nobody_elses(person: Person, cluster: Cluster) -> None:
    one, two = person(name="one", everything=True), person(name="two", everything=True)
    first = one.post("/admin/chat/key").json()["key"]
    other = two.post("/admin/chat/key").json()["key"]
    second = one.post("/admin/chat/key").json()["key"]
    live = set(ApiKey.objects.filter(revoked_at__isnull=True).values_list("sha256", flat=True))
    assert live == {digest(other), digest(second)}
    assert digest(first) not in live


def test_a_key_is_given_for_a_post_with_the_forms_token_only(admin: Client, cluster: Cluster) -> None:
    assert admin.get("/admin/chat/key").status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.cookies = admin.cookies
    assert strict.post("/admin/chat/key").status_code == 403
    assert not ApiKey.objects.exists()


@pytest.mark.parametrize("permissions", [("catalog.view_model",), ("catalog.add_apikey",), ()])
def test_a_key_needs_the_permission_to_issue_keys(
    permissions: tuple[str, ...], person: Person, cluster: Cluster
) -> None:
    assert person(*permissions).post("/admin/chat/key").status_code == 403
    assert not ApiKey.objects.exists()


def test_without_a_project_the_refusal_says_what_to_do(admin: Client) -> None:
    answer = admin.post("/admin/chat/key")
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "project_missing"


def test_no_secret_stands_in_a_page(admin: Client, cluster: Cluster) -> None:
    cluster.model("tiny")
    secret = admin.post("/admin/chat/key").json()["key"]
    key = ApiKey.objects.get()
    for path in ("/admin/", "/admin/chat", "/admin/chat/models", "/admin/jobs", "/admin/catalog/apikey/"):
        page = admin.get(path).content.decode()
        assert secret not in page
        assert key.sha256 not in page
        assert "sk-llmgw-" not in page.replace(key.prefix, "")


def test_a_very_long_user_name_still_makes_a_name_for_the_key() -> None:
    assert chat.key_name("x" * 150) == "console chat of " + "x" * 84
    assert chat.key_name("me") == "console chat of me"
