"""Who is told of external providers, and who gets their keys: nodes that run the cloud module, each sealed to itself."""

from __future__ import annotations

import json
from typing import Any

import pytest
from django.test import Client

from catalog.models import Event, Model
from catalog.services import providers, served
from cluster.domain.modules import Module, ModuleReport
from cluster.services import setup
from cluster.wire import from_dict, to_dict
from llmgw_site.lib.sealing import WrongSecret, unseal
from routing import selectors, services
from routing.domain.snapshot import Snapshot
from routing.models import PublishedSnapshot
from tests.cluster.rows import Machine, a_model_row
from tests.rows import ACTOR, a_model, a_provider, a_token, a_user

pytestmark = pytest.mark.django_db

SNAPSHOT = "/api/v1/agent/snapshot"
KEY = "sk-provider-51f0c2"
CLOUD = (ModuleReport(name=Module.CLOUD), ModuleReport(name=Module.ROUTER))


def a_cloud_node(name: str = "cloudy", modules: tuple[ModuleReport, ...] = CLOUD) -> Machine:
    machine = Machine(name)
    machine.heartbeat(modules=modules)
    return machine


def an_external_model(**fields: Any) -> Model:
    provider = a_provider(**{"api_key": KEY, **fields})
    return a_model("gpt", weights_path="", provider=provider, provider_model="gpt-9")


def fetched(client: Client, machine: Machine, have: str = "") -> Snapshot:
    response = machine.get(client, f"{SNAPSHOT}?have={have}")
    assert response.status_code == 200
    assert machine.proves(response)
    assert KEY not in response.content.decode()
    return from_dict(Snapshot, json.loads(response.content))


def test_a_node_that_runs_cloud_gets_the_providers_with_their_keys_sealed_to_it(client: Client) -> None:
    model = an_external_model()
    machine = a_cloud_node()
    (provider,) = fetched(client, machine).providers
    assert (provider.provider_id, provider.url) == (model.provider_id, "https://api.example.com/v1")
    assert unseal(provider.sealed_key, secret=machine.key, about=provider.provider_id) == KEY
    with pytest.raises(WrongSecret):
        unseal(provider.sealed_key, secret=Machine("other").key, about=provider.provider_id)


@pytest.mark.parametrize(
    "modules",
    [
        (),
        (ModuleReport(name=Module.INFERENCE), ModuleReport(name=Module.EDGE)),
        (ModuleReport(name=Module.CLOUD, state="stopped"),),
        (ModuleReport(name=Module.CLOUD, state="unavailable"),),
    ],
    ids=["none", "others", "stopped", "unavailable"],
)
def test_a_node_that_does_not_run_cloud_gets_no_provider(client: Client, modules: tuple[ModuleReport, ...]) -> None:
    an_external_model()
    machine = a_cloud_node("plain", modules)
    snapshot = fetched(client, machine)
    assert snapshot.providers == ()
    assert snapshot.version == services.publish()
    assert [item.external is not None for item in snapshot.models] == [True]


def test_a_node_that_says_cloud_where_the_setup_says_otherwise_gets_none(client: Client) -> None:
    an_external_model()
    machine, other = a_cloud_node(), a_cloud_node("controller", ())
    assert fetched(client, machine).providers
    tier = ["controller", "edge", "router", "inference"]
    setup.put(actor=ACTOR, controller_tier=[], nodes={"cloudy": ["inference"], "controller": tier})
    assert fetched(client, machine).providers == ()
    assert fetched(client, other).providers == ()


def test_starting_and_stopping_cloud_is_another_version_so_that_the_node_asks_anew(client: Client) -> None:
    an_external_model()
    machine = a_cloud_node("n", ())
    plain = fetched(client, machine).version
    assert services.version_for(machine.node) == plain
    machine.heartbeat(modules=CLOUD)
    cloud = fetched(client, machine, have=plain).version
    assert cloud == services.version_for(machine.node) != plain
    assert machine.get(client, f"{SNAPSHOT}?have={cloud}").status_code == 304
    machine.heartbeat(modules=())
    assert fetched(client, machine, have=cloud).version == plain


def test_the_same_node_with_a_new_key_pair_asks_anew() -> None:
    an_external_model()
    machine = a_cloud_node()
    services.publish()
    before = services.version_for(machine.node)
    machine.node.public_key = "ab" * 32
    assert services.version_for(machine.node) != before


def test_a_new_key_or_address_of_a_provider_makes_a_new_version() -> None:
    model = an_external_model()
    assert model.provider is not None
    seen = {services.publish()}
    providers.set_key(actor=ACTOR, provider=model.provider, key="sk-next")
    seen.add(services.publish())
    providers.change(actor=ACTOR, provider=model.provider, url="https://api.example.com/v2")
    seen.add(services.publish())
    assert services.publish() in seen
    assert len(seen) == 3


def test_what_is_published_holds_no_key_in_any_form() -> None:
    model = an_external_model()
    assert model.provider is not None
    services.publish()
    row = PublishedSnapshot.objects.get()
    assert "providers" not in json.loads(row.payload)
    for secret in (KEY, model.provider.sealed_key):
        assert secret not in row.payload
        assert not Event.objects.filter(after__icontains=secret).exists()


def test_the_heartbeats_answer_names_the_version_of_this_node(client: Client) -> None:
    an_external_model()
    services.publish()
    machine = Machine("n")
    for modules in ((), CLOUD):
        beat = machine.beat(modules=modules)
        answer = machine.post(client, "/api/v1/agent/heartbeat", json.dumps(to_dict(beat)).encode())
        machine.node.refresh_from_db()
        assert json.loads(answer.content)["snapshot_version"] == services.version_for(machine.node)
        assert ("." in json.loads(answer.content)["snapshot_version"]) is bool(modules)


def test_a_key_that_was_sealed_under_another_secret_is_left_out_and_said_so(
    client: Client, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model = an_external_model()
    machine = a_cloud_node()
    sealed = providers.seal("x", secret="another", about=model.provider_id)
    type(model.provider).objects.update(sealed_key=sealed)  # type: ignore[union-attr]
    assert fetched(client, machine).providers[0].sealed_key == ""
    assert "provider_key_sealed" in caplog.text


def test_a_disabled_provider_is_not_told_of_and_its_models_are_refused_with_the_reason() -> None:
    model = an_external_model()
    assert model.provider is not None
    providers.change(actor=ACTOR, provider=model.provider, enabled=False)
    snapshot = selectors.compile_snapshot(now=1.0)
    assert snapshot.providers == ()
    assert (snapshot.models[0].enabled, snapshot.models[0].code) == (False, "provider_disabled")


def test_an_external_model_needs_no_replica_to_be_there() -> None:
    an_external_model()
    a_cloud_node()
    (model,) = selectors.compile_snapshot(now=1.0).models
    assert (model.enabled, model.replicas, model.placed) == (True, (), ())
    assert model.external is not None
    assert model.external.model == "gpt-9"


def test_a_models_own_timeouts_reach_the_data_path() -> None:
    row = a_model_row()
    served.update(actor=ACTOR, model=row, first_byte_timeout=1800.0, idle_timeout=900.0)
    (model,) = selectors.compile_snapshot(now=1.0).models
    assert (model.first_byte_timeout, model.idle_timeout) == (1800.0, 900.0)


def test_tokens_of_administrators_reach_the_data_path_by_their_hash() -> None:
    text = a_token(a_user("root", superuser=True))
    a_token(a_user("ann"))
    services.publish()
    payload = PublishedSnapshot.objects.get().payload
    (admin,) = from_dict(Snapshot, json.loads(payload)).admins
    assert admin.user == "root"
    assert text not in payload
