"""External providers and the models that they answer for."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.core import serializers
from django.db import IntegrityError, transaction
from django.utils import timezone

from catalog import selectors
from catalog.models import Event, Model, Provider
from catalog.services import profiles, providers, served, tokens
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.sealing import WrongSecret
from tests.rows import ACTOR, a_model, a_provider, a_token, a_user

pytestmark = pytest.mark.django_db

KEY = "sk-provider-51f0c2"


def test_a_provider_with_a_key_shows_that_it_has_one_and_no_more() -> None:
    provider = a_provider(api_key=f" {KEY}\n")
    assert provider.key_set
    assert providers.unsealed(provider.pk, provider.sealed_key) == KEY
    assert KEY not in str(vars(provider))
    assert KEY not in serializers.serialize("json", [*Provider.objects.all(), *Event.objects.all()])
    assert "sealed_key" not in str(list(Event.objects.values("before", "after")))


def test_a_key_opens_for_its_own_provider_and_secret_only(settings: Any) -> None:
    one, two = a_provider("one", api_key=KEY), a_provider("two")
    with pytest.raises(WrongSecret):
        providers.unsealed(two.pk, one.sealed_key)
    settings.SECRET_KEY = "another"
    with pytest.raises(WrongSecret):
        providers.unsealed(one.pk, one.sealed_key)


def test_a_new_key_has_a_new_digest_and_is_recorded_without_itself() -> None:
    provider = a_provider(api_key=KEY)
    before = provider.key_digest
    providers.set_key(actor=ACTOR, provider=provider, key="sk-next")
    assert providers.unsealed(provider.pk, provider.sealed_key) == "sk-next"
    assert provider.key_digest != before
    providers.clear_key(actor=ACTOR, provider=provider)
    providers.clear_key(actor=ACTOR, provider=provider)
    assert not provider.key_set
    kinds = list(Event.objects.filter(subject_id=provider.pk).order_by("at", "id").values_list("kind", flat=True))
    assert kinds == ["provider_added", "provider_key_set", "provider_key_cleared"]
    assert not Event.objects.filter(after__icontains="sk-next").exists()


@pytest.mark.parametrize("key", ["", "  ", "a b", "a\nb", "ä", "x" * 4097, "a\x00"])
def test_what_no_header_could_carry_is_no_key(key: str) -> None:
    provider = a_provider()
    with pytest.raises(Refused) as refused:
        providers.set_key(actor=ACTOR, provider=provider, key=key)
    assert (refused.value.code, refused.value.param) == ("invalid_value", "key")
    assert not key.strip() or key not in refused.value.message


def test_a_key_or_a_key_file_not_both() -> None:
    with pytest.raises(Refused, match="not both"):
        a_provider(api_key=KEY, api_key_file="/etc/llmgw/key")
    kept, filed = a_provider("kept", api_key=KEY), a_provider("filed", api_key_file="/etc/llmgw/key")
    with pytest.raises(Refused) as refused:
        providers.change(actor=ACTOR, provider=kept, api_key_file="/etc/llmgw/key")
    assert refused.value.code == "provider_has_key"
    with pytest.raises(Refused) as refused:
        providers.set_key(actor=ACTOR, provider=filed, key=KEY)
    assert refused.value.code == "provider_has_key"
    with pytest.raises(IntegrityError), transaction.atomic():
        Provider.objects.filter(pk=kept.pk).update(api_key_file="/etc/llmgw/key")


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1",
        "http://10.0.0.7:8000/v1",
        "https://[2001:db8::1]:8443/openai/v1",
        "http://localhost",
    ],
)
def test_base_urls_that_are_taken(url: str) -> None:
    assert a_provider(url=f" {url}/ ").url == url


@pytest.mark.parametrize(
    "url",
    [
        "", "api.example.com", "ftp://example.com/v1", "file:///etc/passwd", "https://user:pw@example.com/v1",
        "https://example.com/v1?key=1", "https://example.com/v1#x", "https://exa mple.com", "https://example.com:0",
        "https://example.com:70000", "https://example.com/v1\r\nx: y", "https://", "javascript:alert(1)",
        "https://-x.example.com", "https://ex\u00e4mple.com",
    ],
)  # fmt: skip
def test_what_is_no_base_url_is_refused(url: str) -> None:
    with pytest.raises(Refused) as refused:
        a_provider(url=url)
    assert (refused.value.code, refused.value.param) == ("invalid_value", "url")
    with pytest.raises(IntegrityError), transaction.atomic():
        Provider.objects.create(name="raw", url=url if ":0" not in url and ":7" not in url else "x")


@pytest.mark.parametrize("path", ["key", "/a/../b", "/", "/a\n", "/a/.."])
def test_what_is_no_key_file_is_refused(path: str) -> None:
    with pytest.raises(Refused) as refused:
        a_provider(api_key_file=path)
    assert refused.value.param == "api_key_file"


def test_a_kept_key_does_not_move_to_another_server() -> None:
    provider = a_provider(url="https://api.example.com/v1", api_key=KEY)
    providers.change(actor=ACTOR, provider=provider, url="https://api.example.com/v2")
    for url in ("https://evil.example.com/v2", "http://api.example.com/v2", "https://api.example.com:444/v2"):
        with pytest.raises(Refused) as refused:
            providers.change(actor=ACTOR, provider=provider, url=url)
        assert (refused.value.kind, refused.value.code) == (Kind.CONFLICT, "provider_key_set")
    assert Provider.objects.get().url == "https://api.example.com/v2"
    providers.clear_key(actor=ACTOR, provider=provider)
    providers.change(actor=ACTOR, provider=provider, url="https://evil.example.com/v2")


def test_names_are_taken_once_and_unknown_fields_are_refused() -> None:
    provider = a_provider("acme")
    for wrong, code in (({"name": ""}, "invalid_value"), ({"sealed_key": "x"}, "unknown_field")):
        with pytest.raises(Refused) as refused:
            providers.change(actor=ACTOR, provider=provider, **wrong)
        assert refused.value.code == code
    with pytest.raises(Refused) as refused:
        a_provider("acme")
    assert refused.value.code == "name_taken"


def test_a_provider_stays_while_models_are_answered_by_it() -> None:
    provider = a_provider()
    model = a_model("gpt", weights_path="", provider=provider, provider_model="gpt-9")
    with pytest.raises(Refused) as refused:
        providers.remove(actor=ACTOR, provider=provider)
    assert refused.value.code == "still_in_use"
    served.remove(actor=ACTOR, model=model)
    providers.remove(actor=ACTOR, provider=provider)
    assert not Provider.objects.exists()


# --- external models


def test_an_external_model_has_no_weights_no_profiles_and_no_copies() -> None:
    provider = a_provider()
    model = a_model("gpt", weights_path="", provider=provider, provider_model="gpt-9", embeddings=True)
    assert (model.replicas, model.weights_path, model.profiles.count(), model.embeddings) == (0, "", 0, True)
    view = selectors.model_views()[0]
    assert (view.external, view.provider_id, view.provider_model) == (True, provider.pk, "gpt-9")
    with pytest.raises(Refused) as refused:
        profiles.add(actor=ACTOR, model=model)
    assert refused.value.code == "model_is_external"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"weights_path": "/x.gguf"}, "weights_path"),
        ({"weights_size": 5}, "weights_size"),
        ({"weights_sha256": "a" * 64}, "weights_sha256"),
        ({"replicas": 2}, "replicas"),
        ({"profile": {"slots": 2}}, "profile"),
        ({"further": [{"name": "b"}]}, "further"),
        ({"rest_after": 60.0}, "rest_after"),
        ({"priority_class": "critical"}, "priority_class"),
        ({"queue_length": 0}, "queue_length"),
        ({"queue_wait": 5.0}, "queue_wait"),
        ({"provider_model": ""}, None),
        ({"provider_model": "a\n"}, "provider_model"),
    ],
)
def test_weights_or_a_provider_not_both(fields: dict[str, Any], param: str | None) -> None:
    with pytest.raises(Refused) as refused:
        a_model("gpt", **{"weights_path": "", "provider": a_provider(), "provider_model": "gpt-9", **fields})
    assert (refused.value.code, refused.value.param) == ("invalid_value", param)
    assert not Model.objects.exists()


def test_a_model_stays_of_its_kind() -> None:
    provider, local = a_provider(), a_model("local")
    external = a_model("gpt", weights_path="", provider=provider, provider_model="gpt-9")
    for model, changes in (
        (local, {"provider": provider, "provider_model": "x"}),
        (local, {"provider_model": "x"}),
        (external, {"provider": None}),
        (external, {"weights_path": "/x.gguf"}),
        (external, {"replicas": 1}),
        (external, {"rest_after": 60.0}),
        (external, {"priority_class": "critical"}),
        (external, {"provider_model": ""}),
    ):
        with pytest.raises(Refused) as refused:
            served.update(actor=ACTOR, model=model, **changes)
        assert refused.value.code == "invalid_value"
    other = a_provider("other")
    served.update(actor=ACTOR, model=external, provider=other, provider_model="gpt-10", replicas=0)
    assert (external.provider_id, external.provider_model) == (other.pk, "gpt-10")


def test_the_table_itself_knows_weights_or_a_provider() -> None:
    provider = a_provider()
    for fields in (
        {},
        {"provider": provider},
        {"provider": provider, "provider_model": "m"},
        {"provider": provider, "provider_model": "m", "replicas": 0, "weights_path": "/x"},
        {"weights_path": "/x", "provider_model": "m"},
    ):
        with pytest.raises(IntegrityError), transaction.atomic():
            Model.objects.create(name="raw", **fields)
    Model.objects.create(name="raw", provider=provider, provider_model="m", replicas=0)


@pytest.mark.parametrize("field", ["first_byte_timeout", "idle_timeout"])
def test_timeouts_of_a_model_are_bounded(field: str) -> None:
    model = a_model(**{field: 1800.0})
    assert getattr(selectors.model_views()[0], field) == 1800.0
    for wrong in (0.0, -1.0, 86_401.0, float("nan")):
        with pytest.raises(Refused) as refused:
            served.update(actor=ACTOR, model=model, **{field: wrong})
        assert refused.value.param == field


# --- nodes of a profile


def test_a_profile_may_name_the_only_nodes_it_runs_on() -> None:
    model = a_model(profile={"nodes": ["alpha", "beta", "alpha"]})
    assert selectors.model_views()[0].profiles[0].nodes == ("alpha", "beta")
    profile = model.profiles.get()
    profiles.update(actor=ACTOR, profile=profile, nodes=[])
    assert selectors.model_views()[0].profiles[0].nodes == ()
    for wrong in ("alpha", [1], [""], ["a\n"], [" a"], ["x" * 101], None, {"a": 1}):
        with pytest.raises(Refused) as refused:
            profiles.update(actor=ACTOR, profile=profile, nodes=wrong)
        assert (refused.value.code, refused.value.param) == ("invalid_value", "nodes")


# --- administrators


def test_only_tokens_of_active_superusers_are_handed_out(django_assert_num_queries: Any) -> None:
    texts = [a_token(a_user("root", superuser=True)), a_token(a_user("ann"))]
    gone = a_user("gone", superuser=True)
    a_token(gone)
    gone.is_active = False
    gone.save()
    revoked = tokens.issue(actor=ACTOR, user=a_user("two", superuser=True), name="t")[0]
    tokens.revoke(actor=ACTOR, token=revoked)
    now = timezone.now()
    with django_assert_num_queries(1):
        views = selectors.admin_views(now=now)
    assert [view.user for view in views] == ["root"]
    assert not any(text in repr(views) for text in texts)
    assert selectors.admin_views(now=now + timedelta(days=91)) == ()
