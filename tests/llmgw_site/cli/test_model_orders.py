"""`llmgw model class|scale|target|restart|retry` and `show --why` against a real server."""

from __future__ import annotations

import re

import pytest

from catalog.models import Model, Profile
from catalog.services import served
from cluster.models import ModelStanding, Replica
from tests.cluster.rows import a_model_row, a_ready_replica, tick
from tests.llmgw_site.cli.conftest import Llmgw
from tests.rows import ACTOR, a_model, a_version

pytestmark = pytest.mark.django_db(transaction=True)


def test_scale_says_what_a_model_has_then(llmgw: Llmgw) -> None:
    a_ready_replica()
    for words, said in (
        (["--max", "3"], "small has 1 to 3 replicas, by its load.\n"),
        (["--min", "2", "--max", "none"], "small has 2 replicas.\n"),
        (["--min", "0", "--max", "1", "--rest-after", "60"],
         "small runs on demand, with at most 1 replica, and rests after 60 s without a request.\n"),
        (["--max", "0"], "small has no replicas.\n"),
    ):  # fmt: skip
        done = llmgw("model", "scale", "small", *words)
        assert (done.code, done.err, done.out) == (0, "", said)
    done = llmgw("model", "scale", "small", "--min", "50")
    assert done.code == 1
    assert "small cannot have 50 replicas now" in done.err
    assert llmgw("model", "scale", "small").code == 2
    for words in (
        ("--max", "many"),
        ("--max", "2.5"),
        ("--max", "inf"),
        ("--max", "-1"),
        ("--rest-after", "nan"),
        ("--rest-after", "inf"),
    ):
        done = llmgw("model", "scale", "small", *words)
        assert (done.code, f"{words[0]}: '{words[1]}' is no " in done.err) == (2, True), done.err
    done = llmgw("model", "scale", "small", "--min", "3", "--max", "1")
    assert (done.code, "a maximum of 1 is below those that shall run, 3" in done.err) == (1, True)


def test_class_is_set_and_taken_back(llmgw: Llmgw) -> None:
    a_model_row()
    assert llmgw("model", "class", "small", "critical").out == "small is critical.\n"
    assert Model.objects.get().priority_class == "critical"
    assert llmgw("model", "class", "small", "default").out.startswith("small goes by its scaling")
    assert Model.objects.get().priority_class == ""
    assert llmgw("model", "class", "small", "urgent").code == 2


def test_target_keeps_what_was_measured_and_sizes_the_model(llmgw: Llmgw) -> None:
    a_ready_replica()
    done = llmgw("model", "target", "small", "--tps", "250")
    assert done.code == 1
    assert "llmgw bench small" in done.err
    done = llmgw("model", "target", "small", "--tps", "250", "--each", "100", "--at-once", "4")
    assert (done.code, done.out) == (0, "small has 3 replicas for 250 tokens/s: each was measured to give 100.\n")
    profile = Profile.objects.get()
    assert (profile.measured_tps, profile.measured_concurrency) == (100.0, 4.0)
    assert Model.objects.get().replicas == 3
    assert llmgw("model", "target", "small", "--tps", "1", "--each", "1", "--profile", "other").code == 4


def test_restart_and_retry(llmgw: Llmgw) -> None:
    _, row = a_ready_replica()
    assert llmgw("model", "retry", "small").code == 1
    assert llmgw("model", "restart", "small").out == "1 replica will be replaced.\n"
    assert ModelStanding.objects.get().restarting == [f"{row.pk}:1"]
    ModelStanding.objects.update(parked_at=1.0, failures=5, parked_message="broken", restarting=[])
    assert "is parked after 5 failed starts" in llmgw("model", "restart", "small").err
    assert llmgw("model", "retry", "small", "--why", "mended").out == "small is tried again.\n"
    assert ModelStanding.objects.get().parked_at is None


def test_show_why_tells_the_state_and_every_decision(llmgw: Llmgw) -> None:
    _, row = a_ready_replica()
    Replica.objects.filter(pk=row.pk).update(
        state="backoff", attempt=6, code="engine_start_failed", message="broken file"
    )
    tick()
    done = llmgw("model", "show", "small", "--why")
    assert done.code == 0
    assert "small: 0 of 1 replicas ready, class standard." in done.out
    assert "model_parked: the model small is parked after 5 failed starts in a row" in done.out
    for kind in ("replica_placed", "replica_ready", "model_decided", "replica_stopping"):
        assert kind in done.out
    told = llmgw("model", "show", "small", "--why", "--json").json
    assert told["standing"]["parked_code"] == "engine_start_failed"
    assert told["decisions"][0]["actor"] == "reconciler"


def test_the_list_says_how_each_model_stands(llmgw: Llmgw) -> None:
    a_ready_replica()
    a_model_row("sleepy", replicas=0, max_replicas=1)
    a_model_row("huge", profile={"memory": 1 << 44})
    listed = {line.split()[0]: line for line in llmgw("model", "list").out.splitlines() if line.strip()}
    assert "1/1 ready" in listed["small"]
    assert "at rest" in listed["sleepy"]
    assert "0/1 ready, too_little_memory" in listed["huge"]


def test_fetched_weights_are_listed_and_shown_with_their_commit_and_quantization(llmgw: Llmgw) -> None:
    a_model_row("plain")
    assert "WEIGHTS" not in llmgw("model", "list").out.upper().splitlines()[0]
    old, new = a_version(), a_version(commit="d" * 40)
    model = a_model("fetched", version=old)
    served.update(actor=ACTOR, model=model, version=new, previous=old)
    listed = {line.split()[0]: line for line in llmgw("model", "list").out.splitlines() if line.strip()}
    assert "acme/tiny-GGUF dddddddd Q4_K_M" in listed["fetched"]
    shown = llmgw("model", "show", "fetched").out
    assert re.search(r"version +acme/tiny-GGUF dddddddd Q4_K_M", shown)
    assert re.search(r"previous +acme/tiny-GGUF cccccccc Q4_K_M", shown)
    assert "previous" not in llmgw("model", "show", "plain").out
    assert llmgw("model", "show", "fetched", "--json").json["version"]["commit"] == "d" * 40


def test_a_model_is_added_with_its_scaling_and_class(llmgw: Llmgw) -> None:
    words = ("--replicas", "0", "--max", "2", "--rest-after", "30", "--class", "critical", "--memory", "1GiB")
    done = llmgw("model", "add", "new", "/models/none.gguf", *words)
    assert done.code == 0
    row = Model.objects.get(name="new")
    assert (row.replicas, row.max_replicas, row.rest_after, row.priority_class) == (0, 2, 30.0, "critical")
    done = llmgw("model", "add", "other", "/models/none.gguf", "--class", "urgent")
    assert (done.code, "write critical, standard, opportunistic or default" in done.err) == (2, True)
