"""Models and their profiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from catalog.models import Event, Model, Profile
from catalog.selectors import events_about
from catalog.services import profiles, served
from llmgw_site.lib.errors import Kind, Refused
from tests.rows import ACTOR, a_model, a_project
from tests.tiny import tiny_gguf

pytestmark = pytest.mark.django_db


def test_a_model_comes_with_a_profile_and_what_its_file_says() -> None:
    path = tiny_gguf()
    model = a_model("org/tiny:1", weights_path=str(path), profile={"context": 512, "args": ["-b", "64"]})
    assert model.facts["layers"] == 2
    assert model.weights_size == path.stat().st_size
    assert not model.embeddings
    profile = model.profiles.get()
    assert (profile.name, profile.engine, profile.context, profile.args) == ("default", "llama.cpp", 512, ["-b", "64"])
    assert [event.kind for event in Event.objects.order_by("at", "id")] == ["model_added", "profile_added"]


def test_an_embedding_model_is_known_by_its_file() -> None:
    assert a_model(weights_path=str(tiny_gguf(pooling="mean"))).embeddings


def test_weights_that_are_elsewhere_are_taken_on_trust() -> None:
    model = a_model()
    assert (model.facts, model.weights_size) == ({}, None)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"name": "with space"}, "invalid_value", "name"),
        ({"name": "-x"}, "invalid_value", "name"),
        ({"name": "x\n"}, "invalid_value", "name"),
        ({"name": "x" * 129}, "invalid_value", "name"),
        ({"name": ""}, "invalid_value", "name"),
        ({"replicas": -1}, "invalid_value", "replicas"),
        ({"replicas": 10_001}, "invalid_value", "replicas"),
        ({"weights_sha256": "ABC"}, "invalid_value", "weights_sha256"),
        ({"weights_size": -1}, "invalid_value", "weights_size"),
        ({"weights_path": ""}, "invalid_value", "weights_path"),
        ({"weights_path": "models/x.gguf"}, "invalid_value", "weights_path"),
        ({"weights_path": "/srv/../etc/x.gguf"}, "invalid_value", "weights_path"),
        ({"weights_path": "/srv/a\x00b"}, "invalid_value", "weights_path"),
        ({"weights_path": "/etc/hostname"}, "gguf_not_gguf", "weights_path"),
        ({"weights_path": "/tmp"}, "weights_not_a_file", "weights_path"),
        ({"profile": {"engine": "magic"}}, "engine_unknown", "engine"),
        ({"profile": {"slots": 0}}, "invalid_value", "slots"),
        ({"profile": {"slots": 257}}, "invalid_value", "slots"),
        ({"profile": {"context": -1}}, "invalid_value", "context"),
        ({"profile": {"context": 1 << 25}}, "invalid_value", "context"),
        ({"profile": {"start_timeout": -0.1}}, "invalid_value", "start_timeout"),
        ({"profile": {"args": ["--tools", "all"]}}, "arg_not_allowed", "args"),
        ({"profile": {"args": "-b 64"}}, "invalid_value", "args"),
        ({"profile": {"args": [64]}}, "invalid_value", "args"),
        ({"profile": {"env": {"LD_PRELOAD": "x"}}}, "env_not_allowed", "env"),
        ({"profile": {"env": ["a"]}}, "invalid_value", "env"),
        ({"profile": {"colour": "red"}}, "unknown_field", "colour"),
        ({"weights_path": "/elsewhere/m.gguf"}, "memory_required", "memory"),
        ({"weights_path": "/elsewhere/m.gguf", "profile": {"gpus_per_node": 1}}, "card_memory_required", "card_memory"),
        (
            {"weights_path": "/elsewhere/m", "weights_size": 9, "profile": {"engine": "vllm"}},
            "memory_required",
            "memory",
        ),
        ({"profile": {"tp": 2}}, "llama_cpp_by_layers", "tp"),
        ({"profile": {"pp": 2}}, "llama_cpp_by_layers", "pp"),
        ({"profile": {"engine": "vllm", "pp": 2}}, "cards_needed", "pp"),
        ({"profile": {"engine": "vllm", "gpus_per_node": 2}}, "vllm_by_tp", "gpus_per_node"),
        ({"profile": {"card_memory": 1 << 30}}, "cards_needed", "card_memory"),
        ({"profile": {"gpus_per_node": 65, "card_memory": 1 << 30}}, "invalid_value", "gpus_per_node"),
        ({"profile": {"memory": 5}}, "invalid_value", "memory"),
        ({"profile": {"labels": {"a b": "c"}}}, "invalid_value", "labels"),
        ({"profile": {"labels": ["zone"]}}, "invalid_value", "labels"),
        ({"profile": {"card_classes": "H100"}}, "invalid_value", "card_classes"),
    ],
)
def test_a_wrong_value_is_refused_and_nothing_is_written(fields: dict[str, Any], code: str, param: str) -> None:
    with pytest.raises(Refused) as refused:
        a_model(**{"name": "m", **fields})
    assert (refused.value.kind, refused.value.code, refused.value.param) == (Kind.INVALID, code, param)
    assert not Model.objects.exists()
    assert not Profile.objects.exists()
    assert not Event.objects.exists()


def test_every_refused_argument_is_listed() -> None:
    with pytest.raises(Refused) as refused:
        a_model(profile={"args": ["--tools", "all"], "env": {"LD_PRELOAD": "x"}})
    assert [item["code"] for item in refused.value.extra["refusals"]] == ["arg_not_allowed", "env_not_allowed"]


def test_a_name_is_taken_once() -> None:
    a_model("m")
    with pytest.raises(Refused) as refused:
        a_model("m")
    assert (refused.value.kind, refused.value.code) == (Kind.CONFLICT, "name_taken")
    assert refused.value.message == "There is a model named 'm' already: choose another name."
    assert Profile.objects.count() == 1


@pytest.mark.parametrize(
    "values", [{"name": "a b"}, {"replicas": 10_001}, {"replicas": -1}], ids=["name", "replicas", "negative"]
)
def test_the_table_itself_refuses_what_the_services_would(values: dict[str, Any]) -> None:
    model = a_model()
    with pytest.raises(IntegrityError), transaction.atomic():
        Model.objects.filter(pk=model.pk).update(**values)


@pytest.mark.parametrize("values", [{"engine": "magic"}, {"slots": 0}, {"context": 1 << 25}, {"drain_timeout": -1.0}])
def test_the_table_refuses_a_profile_that_makes_no_sense(values: dict[str, Any]) -> None:
    a_model()
    with pytest.raises(IntegrityError), transaction.atomic():
        Profile.objects.update(**values)


def test_disabling_and_enabling_are_recorded_with_their_reason_once() -> None:
    model = a_model()
    served.disable(actor=ACTOR, model=model, why="too slow")
    served.disable(actor=ACTOR, model=model, why="again")
    assert not model.enabled
    event = Event.objects.get(kind="model_disabled")
    assert (event.before, event.after, event.why) == ({"enabled": True}, {"enabled": False}, "too slow")
    served.enable(actor=ACTOR, model=model)
    assert Model.objects.get().enabled


def test_other_weights_are_looked_at_and_forget_what_was_known() -> None:
    model = a_model(weights_path=str(tiny_gguf()), weights_sha256="a" * 64)
    served.update(actor=ACTOR, model=model, weights_path="/elsewhere/x.gguf")
    assert (model.facts, model.weights_size, model.weights_sha256) == ({}, None, "")
    with pytest.raises(Refused) as refused:
        served.update(actor=ACTOR, model=model, weights_path="/etc/hostname")
    assert refused.value.code == "gguf_not_gguf"
    model.refresh_from_db()
    assert model.weights_path == "/elsewhere/x.gguf"


def test_two_people_change_different_fields_and_both_succeed() -> None:
    a_model()
    ann, bob = Model.objects.get(), Model.objects.get()
    served.update(actor="user:ann", model=ann, description="by ann")
    served.update(actor="user:bob", model=bob, max_replicas=3)
    row = Model.objects.get()
    assert (row.description, row.max_replicas) == ("by ann", 3)


def test_an_unknown_field_is_refused_not_ignored() -> None:
    model = a_model()
    with pytest.raises(Refused, match="no field 'facts'"):
        served.update(actor=ACTOR, model=model, facts={"layers": 1})


def test_removing_takes_the_profiles_and_leaves_the_events() -> None:
    model = a_model(project=a_project())
    served.remove(actor=ACTOR, model=model)
    assert not Model.objects.exists()
    assert not Profile.objects.exists()
    assert Event.objects.get(kind="model_removed").subject_id == model.pk
    with pytest.raises(Refused, match="removed meanwhile") as refused:
        served.disable(actor=ACTOR, model=model)
    assert refused.value.kind == Kind.NOT_FOUND


def test_profiles_are_added_changed_and_removed() -> None:
    model = a_model()
    profile = profiles.add(actor=ACTOR, model=model, name="big", context=8192, priority=5, memory=1 << 30)
    profiles.update(actor=ACTOR, profile=profile, context=4096, args=["-fa", "on"])
    event = Event.objects.get(kind="profile_changed")
    assert (event.before, event.after) == ({"args": [], "context": 8192}, {"args": ["-fa", "on"], "context": 4096})
    with pytest.raises(Refused) as refused:
        profiles.update(actor=ACTOR, profile=profile, engine="vllm")
    assert refused.value.param == "args", "arguments are vetted again for the new engine"
    profiles.remove(actor=ACTOR, profile=profile)
    assert [row.name for row in model.profiles.all()] == ["default"]


def test_a_profile_on_cards_is_kept_with_all_that_it_says_and_vetted_when_it_changes() -> None:
    cards = {"gpus_per_node": 2, "card_classes": ["H100", "H100"], "card_memory": 1 << 34, "labels": {"zone": "b"}}
    profile = profiles.add(actor=ACTOR, model=a_model(), name="cards", **cards)
    assert (profile.gpus_per_node, profile.card_classes, profile.labels) == (2, ["H100"], {"zone": "b"})
    for changes, code in (
        ({"tp": 2}, "llama_cpp_by_layers"),
        ({"gpus_per_node": 0}, "cards_needed"),
        ({"card_memory": 0}, "card_memory_required"),
        ({"gpus_per_node": 0, "card_memory": 0, "card_classes": []}, "memory_required"),
        ({"labels": {"": "x"}}, "invalid_value"),
    ):
        with pytest.raises(Refused) as refused:
            profiles.update(actor=ACTOR, profile=profile, **changes)
        assert refused.value.code == code
    profiles.update(actor=ACTOR, profile=profile, slots=4)  # what is as it was is not asked for again
    assert profile.slots == 4


def test_heads_that_cannot_be_divided_over_the_cards_are_refused_with_what_can() -> None:
    model = a_model(weights_path=str(tiny_gguf()))
    heads = model.facts["heads"]
    with pytest.raises(Refused, match=f"{heads} attention heads") as refused:
        profiles.add(actor=ACTOR, model=model, name="v", engine="vllm", tp=heads + 1)
    assert refused.value.code == "heads_not_divisible"
    assert profiles.add(actor=ACTOR, model=model, name="v", engine="vllm", tp=heads).tp == heads


def test_a_cut_off_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "cut.gguf"
    file.write_bytes(tiny_gguf().read_bytes()[:-1])
    with pytest.raises(Refused, match="not complete") as refused:
        a_model(weights_path=str(file))
    assert refused.value.code == "gguf_truncated"


def test_the_log_of_a_model_says_what_was_changed_of_it_and_of_its_profiles() -> None:
    model = a_model("chat", replicas=3)
    served.update(actor=ACTOR, model=model, priority_class="critical", replicas=2, description="x" * 100)
    profiles.update(actor=ACTOR, profile=model.profiles.get(), threads=4, memory=3 << 29, args=["-b", "64"], labels={})
    served.disable(actor=ACTOR, model=model)
    said = [event.message for event in events_about(model.pk)]
    assert said[:3] == [
        "model chat disabled",
        "profile default of chat changed: threads 0 → 4, memory 64 MiB → 1536 MiB, args none → -b, 64",
        "model chat changed: description, replicas 3 → 2, priority_class none → critical",
    ]
