"""The catalogue's pages in the console: they open, and what they save goes through the services."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from django.contrib.messages import get_messages
from django.contrib.sessions.models import Session
from django.core import serializers
from django.test import Client

from catalog.models import AdminToken, ApiKey, Event, Model, Organisation, Profile, Project, Provider, Team, Version
from catalog.services import providers, roles, scopes, served
from tests.rows import a_key, a_model, a_project, a_provider, a_token, a_user, a_version
from tests.tiny import tiny_gguf

pytestmark = pytest.mark.django_db
ROWS = {"organisation": Organisation, "team": Team, "project": Project, "apikey": ApiKey, "admintoken": AdminToken,
        "model": Model, "provider": Provider, "event": Event, "version": Version}  # fmt: skip

PROVIDER_KEY = "sk-provider-51f0c2"


@pytest.fixture
def console() -> Client:
    client = Client()
    client.force_login(a_user("root", superuser=True))
    return client


def url(noun: str, *rest: str) -> str:
    return "/".join(["/admin/catalog", noun, *rest]) + "/"


def said(response: Any) -> list[str]:
    """The messages that the next page will show."""
    return [str(message) for message in get_messages(response.wsgi_request)]


def problems(response: Any) -> dict[str, Any]:
    """Field errors of a form that was shown again."""
    assert response.status_code == 200
    found = dict(response.context["adminform"].form.errors)
    for formset in response.context["inline_admin_formsets"]:
        for errors in formset.formset.errors:
            found.update(errors)
    return found


def inline(*profiles: Mapping[str, Any], initial: int = 0) -> dict[str, Any]:
    """The fields of the profile forms below a model."""
    defaults = {"engine": "llama.cpp", "enabled": "on", "priority": 0, "context": 0, "slots": 1, "threads": 0, "memory": 0,
                "gpus_per_node": 0, "tp": 0, "card_memory": 0, "labels": "{}", "card_classes": "[]", "args": "[]", "env": "{}", "start_timeout": 0, "drain_timeout": 0}  # fmt: skip
    fields: dict[str, Any] = {"profiles-TOTAL_FORMS": len(profiles), "profiles-INITIAL_FORMS": initial}
    for number, profile in enumerate(profiles):
        fields.update({f"profiles-{number}-{name}": value for name, value in {**defaults, **profile}.items()})
    return fields


@pytest.mark.parametrize("noun", ROWS)
def test_the_lists_and_forms_open(noun: str, console: Client) -> None:
    project = a_project()
    a_key(project=project)
    a_model(project=project, weights_path=str(tiny_gguf()))
    a_token(a_user("ann"))
    a_provider(api_key=PROVIDER_KEY)
    a_version()
    assert console.get(url(noun)).status_code == 200
    assert console.get(url(noun) + "?q=x").status_code == 200
    row = ROWS[noun].objects.first()
    assert row is not None
    assert console.get(url(noun, str(row.pk), "change")).status_code == 200
    assert console.get(url(noun, "add")).status_code == (403 if noun in ("event", "version") else 200)


def test_a_model_whose_weights_are_fetched_shows_them_and_can_be_changed(console: Client) -> None:
    """It has no file to name, so the form asks for none; what its version consists of stands on that one's page."""
    old, new = a_version(), a_version(commit="d" * 40)
    model = a_model(version=old, profile={"memory": 1 << 30})
    served.update(actor="user:ann", model=model, version=new, previous=old)
    page = console.get(url("model", model.pk, "change"))
    text = page.content.decode()
    assert "acme/tiny-GGUF dddddddd Q4_K_M" in text
    assert "acme/tiny-GGUF cccccccc Q4_K_M" in text
    form = page.context["adminform"].form
    assert "weights_path" not in form.fields
    profile = model.profiles.get()
    sent = {name: value for name, value in form.initial.items() if name in form.fields and value is not None}
    sent |= {"description": "mine", "enabled": "on"}
    fields = inline({"id": profile.pk, "model": model.pk, "name": "default", "memory": "1 GiB"}, initial=1)
    assert console.post(url("model", model.pk, "change"), {**sent, **fields}).status_code == 302
    model.refresh_from_db()
    assert (model.description, model.version_id, model.weights_path) == ("mine", new.pk, "")
    shown = console.get(url("version", new.pk, "change")).content.decode()
    for words in ("tiny-Q4_K_M.gguf", "1" * 64, "64.0 MiB", "tiny"):
        assert words in shown
    assert console.post(url("version", new.pk, "delete"), {"post": "yes"}).status_code == 403


def test_scopes_are_made_renamed_and_deleted_by_their_services(console: Client) -> None:
    console.post(url("organisation", "add"), {"name": "acme"})
    organisation = Organisation.objects.get()
    console.post(url("team", "add"), {"name": "web", "organisation": organisation.pk})
    team = Team.objects.get()
    console.post(url("project", "add"), {"name": "shop", "team": team.pk})
    console.post(url("project", Project.objects.get().pk, "change"), {"name": "store"})
    assert Project.objects.get().name == "store"
    again = console.post(url("organisation", "add"), {"name": "acme"})
    assert "name" in problems(again)
    refused = console.post(url("team", team.pk, "delete"), {"post": "yes"})
    assert "still has projects" in said(refused)[0]
    assert Team.objects.exists()
    console.post(url("project", Project.objects.get().pk, "delete"), {"post": "yes"})
    assert not Project.objects.exists()
    assert list(Event.objects.order_by("at", "id").values_list("kind", "actor")) == [
        (kind, "user:root")
        for kind in ("organisation_added", "team_added", "project_added", "project_changed", "project_removed")
    ]


def test_a_scopes_class_is_chosen_shown_and_above_the_usual_for_roles_of_the_cluster_only(console: Client) -> None:
    project = a_project()
    team, organisation = project.team, project.team.organisation
    console.post(url("organisation", organisation.pk, "change"), {"name": "acme", "priority_class": "critical"})
    assert Organisation.objects.get().priority_class == "critical"
    assert "critical, from above" in console.get(url("project")).content.decode()
    assert "as the organisation (critical)" in console.get(url("team", team.pk, "change")).content.decode()
    ann = Client()
    ann.force_login(user := a_user("ann"))
    roles.give(actor="t", user=user, role="admin", scope=organisation)
    shown = ann.get(url("team", team.pk, "change")).content.decode()
    assert 'value="standard"' in shown
    assert 'value="critical"' not in shown
    again = ann.post(url("team", team.pk, "change"), {"name": "web", "priority_class": "critical"})
    assert "priority_class" in problems(again)
    ann.post(url("team", team.pk, "change"), {"name": "web", "priority_class": "opportunistic"})
    assert Team.objects.get().effective_class == "opportunistic"
    scopes.change(actor="t", scope=organisation, priority_class="opportunistic")
    again = ann.post(url("project", "add"), {"name": "n", "team": team.pk, "priority_class": "standard"})
    assert "ann may give opportunistic and lower" in str(problems(again)["priority_class"])
    seen = ann.get(url("organisation", organisation.pk, "change")).content.decode()
    assert "opportunistic" in seen, "who may only look sees it, too"
    assert ">null<" not in seen
    console.post(url("project", "add"), {"name": "n", "team": team.pk, "priority_class": "critical"})
    assert Project.objects.get(name="n").priority_class == "critical"


def test_f31_a_new_key_is_shown_on_the_next_page_once_and_kept_nowhere(console: Client) -> None:
    project = a_project()
    made = console.post(url("apikey", "add"), {"name": "bot", "project": project.pk, "models": "", "expires_at_0": "", "expires_at_1": ""})  # fmt: skip
    assert made.status_code == 302
    page = console.get(url("apikey")).content.decode()
    shown = re.search(r"sk-llmgw-[A-Za-z0-9_-]{43}", page)
    assert f"bot ({ApiKey.objects.get().prefix}" in page
    assert shown, "the key stands on the next page"
    assert shown[0] not in console.get(url("apikey")).content.decode(), "and on no page after it"
    key = ApiKey.objects.get()
    assert key.models is None
    everything = serializers.serialize("json", [*Event.objects.all(), key, *Session.objects.all()])
    assert shown[0] not in everything
    assert all(shown[0] not in str(session.get_decoded()) for session in Session.objects.all())


def test_keys_and_tokens_are_revoked_never_edited_and_never_deleted(console: Client) -> None:
    key, _ = a_key()
    for method in (console.get, console.post):
        assert method(url("apikey", key.pk, "delete")).status_code == 403
    assert console.post(url("apikey", key.pk, "change"), {"name": "x", "sha256": "0" * 64}).status_code == 403
    page = console.get(url("apikey", key.pk, "change")).content.decode()
    assert key.sha256 not in page
    console.post(url("apikey"), {"action": "revoke_selected", "_selected_action": [key.pk]})
    key.refresh_from_db()
    assert key.revoked_at
    assert Event.objects.get(kind="key_revoked").actor == "user:root"


@pytest.mark.parametrize("models", ['["a b"]', '"abc"', "{}x", "[1]"])
def test_a_wrong_allowlist_is_an_error_of_its_field(models: str, console: Client) -> None:
    project = a_project()
    response = console.post(url("apikey", "add"), {"name": "bot", "project": project.pk, "models": models})
    assert "models" in problems(response)
    assert not ApiKey.objects.exists()


def test_a_token_is_for_oneself_unless_one_manages_all() -> None:
    own = ["catalog.view_admintoken", "catalog.add_admintoken", "catalog.delete_admintoken"]
    a_token(a_user("bob"), "of bob")
    client = Client()
    client.force_login(a_user("ann", *own))
    made = client.post(url("admintoken", "add"), {"name": "cli", "days": 30, "user": "1"})
    assert made.status_code == 302
    assert AdminToken.objects.get(name="cli").user.username == "ann"
    page = client.get(url("admintoken")).content.decode()
    assert "at-llmgw-" in page
    assert "of bob" not in page
    other = AdminToken.objects.get(name="of bob")
    client.post(url("admintoken"), {"action": "revoke_selected", "_selected_action": [other.pk]})
    other.refresh_from_db()
    assert other.revoked_at is None


def test_a_model_is_added_with_its_profiles(console: Client) -> None:
    form = {"name": "org/tiny", "replicas": 1, "enabled": "on", "weights_path": str(tiny_gguf())}
    profiles = inline({"name": "default", "context": 512, "args": '["-b", "64"]'}, {"name": "big", "priority": 5})
    response = console.post(url("model", "add"), {**form, **profiles})
    assert response.status_code == 302, problems(response)
    model = Model.objects.get()
    assert model.facts["layers"] == 2
    assert {row.name: row.args for row in model.profiles.all()} == {"default": ["-b", "64"], "big": []}
    assert Event.objects.filter(actor="user:root").count() == 3


@pytest.mark.parametrize("given", [(), ({"name": "default"},)], ids=["none", "left as it was"])
def test_a_model_without_a_profile_gets_the_default_one(given: tuple[Any, ...], console: Client) -> None:
    form = {"name": "m", "replicas": 1, "weights_path": str(tiny_gguf())}
    console.post(url("model", "add"), {**form, **inline(*given)})
    assert [profile.name for profile in Model.objects.get().profiles.all()] == ["default"]


@pytest.mark.parametrize(
    ("form", "profile", "field"),
    [
        ({"name": "a b"}, {}, "name"),
        ({"replicas": -1}, {}, "replicas"),
        ({"weights_path": "/etc/hostname"}, {}, "weights_path"),
        ({"weights_path": "relative.gguf"}, {}, "weights_path"),
        ({"weights_path": ""}, {}, "weights_path"),
        ({}, {"args": '["--tools", "all"]'}, "args"),
        ({}, {"args": '"text"'}, "args"),
        ({}, {"args": "not json"}, "args"),
        ({}, {"env": '{"LD_PRELOAD": "x"}'}, "env"),
        ({}, {"slots": 0}, "slots"),
        ({}, {"labels": '{"a b": "c"}'}, "labels"),
        ({}, {"card_classes": "[1]"}, "card_classes"),
    ],
)
def test_a_refusal_is_an_error_of_its_field(
    form: dict[str, Any], profile: dict[str, Any], field: str, console: Client
) -> None:
    base = {"name": "m", "replicas": 1, "weights_path": "/not/here.gguf", **form}
    response = console.post(url("model", "add"), {**base, **inline({"name": "default", **profile})})
    assert field in problems(response)
    assert not Model.objects.exists()
    assert not Event.objects.exists()


@pytest.mark.parametrize(
    ("form", "profile", "field"),
    [
        ({}, {"engine": "llama.cpp", "memory": 0}, "memory"),
        ({}, {"engine": "vllm", "tp": 2}, "card_memory"),
        ({}, {"engine": "llama.cpp", "tp": 2, "memory": 1 << 30}, "tp"),
        ({"description": "x" * 3000}, None, "memory"),  # its profile was left as it was
    ],
)
def test_what_a_service_refuses_is_an_error_of_its_field_and_nothing_that_was_typed_is_lost(
    form: dict[str, Any], profile: dict[str, Any] | None, field: str, console: Client
) -> None:
    base = {"name": "typed.by-hand", "replicas": 1, "enabled": "on", "weights_path": "/not/here.gguf", **form}
    given = [{"name": "as-typed", **profile}] if profile else [{"name": "default"}]
    response = console.post(url("model", "add"), {**base, **inline(*given)})
    assert response.status_code == 200
    assert list(problems(response)) == [field]
    page = response.content.decode()
    assert "typed.by-hand" in page
    assert given[0]["name"] in page
    assert base.get("description", "") in page
    assert not Model.objects.exists()
    assert not Event.objects.exists()


def test_a_minimum_that_finds_no_place_is_refused_in_the_form_and_nothing_is_changed(console: Client) -> None:
    model = a_model()
    profile = Profile.objects.get()
    form = {"name": "other", "replicas": 2, "enabled": "on", "weights_path": model.weights_path}
    profiles = inline(
        {"id": profile.pk, "model": model.pk, "name": "default", "threads": 3, "memory": 1 << 26}, initial=1
    )
    response = console.post(url("model", model.pk, "change"), {**form, **profiles}, follow=True)
    assert "cannot have 2 replicas now, there is a place for none: the cluster has no node" in response.content.decode()
    model.refresh_from_db()
    profile.refresh_from_db()
    assert (model.name, model.replicas, profile.threads) == ("tiny", 1, 0)


def test_a_model_and_its_profiles_are_changed_by_their_services(console: Client) -> None:
    model = a_model()
    profile = Profile.objects.get()
    form = {"name": "tiny", "replicas": 1, "max_replicas": 2, "enabled": "on", "weights_path": model.weights_path}
    profiles = inline(
        {"id": profile.pk, "model": model.pk, "name": "default", "threads": 3, "memory": 1 << 26},
        {"name": "new", "model": model.pk, "memory": 1 << 26},
        initial=1,
    )
    response = console.post(url("model", model.pk, "change"), {**form, **profiles})
    assert response.status_code == 302, problems(response)
    changed = {event.kind: event.after for event in Event.objects.filter(actor="user:root")}
    assert changed["model_changed"] == {"max_replicas": 2}
    assert changed["profile_changed"] == {"threads": 3}
    assert changed["profile_added"]["name"] == "new"
    gone = inline(
        {"id": profile.pk, "model": model.pk, "name": "default", "threads": 3, "memory": 1 << 26, "DELETE": "on"},
        {"id": Profile.objects.get(name="new").pk, "model": model.pk, "name": "new", "memory": 1 << 26},
        initial=2,
    )
    console.post(url("model", model.pk, "change"), {**form, **gone})
    assert [row.name for row in Profile.objects.all()] == ["new"]


def test_an_external_model_is_added_without_weights_or_profiles(console: Client) -> None:
    provider = a_provider()
    form = {"name": "gpt", "replicas": 1, "enabled": "on", "provider": provider.pk, "provider_model": "gpt-9"}
    response = console.post(url("model", "add"), {**form, **inline()})
    assert response.status_code == 302, problems(response)
    model = Model.objects.get()
    assert (model.provider_id, model.provider_model, model.replicas) == (provider.pk, "gpt-9", 0)
    assert not Profile.objects.exists()
    assert "provider acme" in console.get(url("model")).content.decode()
    changed = {**form, "replicas": 0, "provider_model": "gpt-10", "idle_timeout": "900"}
    assert console.post(url("model", model.pk, "change"), {**changed, **inline()}).status_code == 302
    model.refresh_from_db()
    assert (model.provider_model, model.idle_timeout) == ("gpt-10", 900.0)


def test_a_profile_is_pinned_to_nodes(console: Client) -> None:
    form = {"name": "m", "replicas": 1, "weights_path": "/not/here.gguf"}
    console.post(url("model", "add"), {**form, **inline({"name": "default", "memory": 64 << 20, "nodes": '["alpha"]'})})
    assert Profile.objects.get().nodes == ["alpha"]
    response = console.post(url("model", "add"), {**form, "name": "n", **inline({"name": "default", "nodes": "[1]"})})
    assert "nodes" in problems(response)


def test_a_providers_key_goes_in_and_is_never_shown(console: Client) -> None:
    form = {"name": "acme", "url": "https://api.example.com/v1/", "enabled": "on", "new_key": PROVIDER_KEY}
    response = console.post(url("provider", "add"), form)
    assert response.status_code == 302, problems(response)
    provider = Provider.objects.get()
    assert provider.url == "https://api.example.com/v1"
    assert providers.unsealed(provider.pk, provider.sealed_key) == PROVIDER_KEY
    pages = [console.get(url("provider")), console.get(url("provider", provider.pk, "change"))]
    kept = {**form, "new_key": ""}
    pages.append(console.post(url("provider", provider.pk, "change"), {**kept, "name": "other"}, follow=True))
    assert Provider.objects.get().key_set
    pages.append(console.get(url("provider", provider.pk, "history")))
    for secret in (PROVIDER_KEY, provider.sealed_key):
        assert not any(secret in page.content.decode() for page in pages)
    moved = {**form, "url": "https://elsewhere.example.com/v1"}
    response = console.post(url("provider", provider.pk, "change"), {**moved, "new_key": ""})
    assert any("was given for" in text for texts in problems(response).values() for text in texts)
    console.post(url("provider", provider.pk, "change"), {**moved, "clear_key": "on", "new_key": "sk-next"})
    provider.refresh_from_db()
    assert provider.url == moved["url"]
    assert providers.unsealed(provider.pk, provider.sealed_key) == "sk-next"
    console.post(url("provider", provider.pk, "change"), {**moved, "new_key": "", "clear_key": "on"})
    assert not Provider.objects.get().key_set


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"url": "ftp://x"}, "url"),
        ({"url": "https://user:pw@example.com"}, "url"),
        ({"new_key": "a b"}, "new_key"),
        ({"new_key": "sk-1", "api_key_file": "/etc/llmgw/key"}, "api_key_file"),
        ({"api_key_file": "relative"}, "api_key_file"),
        ({"name": ""}, "name"),
    ],
)
def test_a_wrong_provider_is_an_error_of_its_field(wrong: dict[str, str], field: str, console: Client) -> None:
    response = console.post(url("provider", "add"), {"name": "acme", "url": "https://example.com/v1", **wrong})
    assert field in problems(response)
    assert not Provider.objects.exists()


def test_a_provider_is_deleted_once_no_model_is_answered_by_it(console: Client) -> None:
    provider = a_provider()
    model = a_model("gpt", weights_path="", provider=provider, provider_model="gpt-9")
    response = console.post(url("provider", provider.pk, "delete"), {"post": "yes"})
    assert any("still has" in text for text in said(response))
    console.post(url("model", model.pk, "delete"), {"post": "yes"})
    console.post(url("provider", provider.pk, "delete"), {"post": "yes"})
    assert not Provider.objects.exists()


def test_models_are_enabled_and_disabled_from_the_list(console: Client) -> None:
    model = a_model()
    console.post(url("model"), {"action": "disable_selected", "_selected_action": [model.pk]})
    model.refresh_from_db()
    assert not model.enabled
    console.post(url("model"), {"action": "enable_selected", "_selected_action": [model.pk]})
    model.refresh_from_db()
    assert model.enabled
    assert Event.objects.filter(kind__in=("model_enabled", "model_disabled"), actor="user:root").count() == 2


def test_models_are_deleted_one_by_one_and_from_the_list(console: Client) -> None:
    one, two = a_model("one"), a_model("two")
    console.post(url("model", one.pk, "delete"), {"post": "yes"})
    console.post(url("model"), {"action": "delete_selected", "_selected_action": [two.pk], "post": "yes"})
    assert not Model.objects.exists()
    assert Event.objects.filter(kind="model_removed", actor="user:root").count() == 2


def test_who_may_only_look_can_only_look() -> None:
    model = a_model()
    client = Client()
    client.force_login(a_user("ann", "catalog.view_model", "catalog.view_profile"))
    assert client.get(url("model")).status_code == 200
    assert client.get(url("model", model.pk, "change")).status_code == 200
    assert client.post(url("model", model.pk, "change"), {"name": "x"}).status_code == 403
    assert client.post(url("model", model.pk, "delete"), {"post": "yes"}).status_code == 403
    client.post(url("model"), {"action": "disable_selected", "_selected_action": [model.pk]})
    model.refresh_from_db()
    assert model.enabled
    assert client.get(url("apikey")).status_code == 403


def test_a_model_is_given_to_a_team_and_has_one_owner(console: Client) -> None:
    project = a_project()
    model = a_model(weights_path=str(tiny_gguf()))
    path = url("model", model.pk, "change")

    def save(**owner: str) -> Any:
        form = console.get(path).context["adminform"].form
        values = {name: form.initial.get(name) for name in form.fields}
        management = {
            f"profiles-{name}": 0 for name in ("TOTAL_FORMS", "INITIAL_FORMS", "MIN_NUM_FORMS", "MAX_NUM_FORMS")
        }
        kept = {name: value for name, value in values.items() if value not in (None, False)}
        return console.post(path, {**kept, **management, **owner}, follow=True)

    save(team=project.team.pk)
    model.refresh_from_db()
    assert model.team == project.team
    assert str(project.team) in console.get(url("model")).content.decode()
    assert "A model has one owner" in save(project=project.pk).content.decode()
    save(team="", project=project.pk)
    model.refresh_from_db()
    assert (model.project, model.team) == (project, None)


def test_sizes_of_a_profile_are_written_with_units(console: Client) -> None:
    model = a_model("sized", profile={"memory": 8 << 30})
    profile = model.profiles.get()
    page = url("model", model.pk, "change")
    assert 'value="8 GiB"' in console.get(page).content.decode()

    def post(memory: str) -> Any:
        ours = {"id": profile.pk, "model": model.pk, "name": "default", "memory": memory}
        form = {"name": "sized", "replicas": 1, "enabled": "on", "weights_path": model.weights_path}
        return console.post(page, {**form, **inline(ours, initial=1)})

    assert post("12 gib").status_code == 302
    profile.refresh_from_db()
    assert profile.memory == 12 << 30
    before = Event.objects.count()
    assert post("12 GiB").status_code == 302
    assert Event.objects.count() == before  # as it is
    for wrong in ("much", "-1", "9" * 25):
        assert "memory" in problems(post(wrong)), wrong
    assert "'much' is no size" in str(problems(post("much")))


def test_the_pages_of_a_model_lead_to_its_card(console: Client) -> None:
    model = a_model("linked", replicas=1, max_replicas=3)
    card = f"/admin/model/{model.pk}"
    assert f'href="{card}">1 to 3</a>' in console.get(url("model")).content.decode()
    page = console.get(url("model", model.pk, "change")).content.decode()
    way = re.search(r'href="([^"]*)"[^>]*>(?:\s|<[^>]*>)*Replicas, scaling, decisions', page)
    assert way is not None
    assert console.get(way[1]).headers["location"] == card
