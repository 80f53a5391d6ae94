"""cluster.selectors: what a node is told, and what names it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from catalog import selectors as catalog
from catalog.domain.types import ModelView, ProfileView
from catalog.models import Organisation, Team
from catalog.services import quotas, scopes
from cluster import selectors
from cluster.models import Node
from cluster.selectors.fleet import node_rows
from cluster.wire import Serve, Weights
from llmgw_site.lib.units import GIB, MIB
from tests.cluster.rows import ACTOR, Machine, a_model_row, tick

pytestmark = pytest.mark.django_db


def told(**profile: Any) -> Serve:
    a_model_row(profile=profile, weights_size=100 * MIB, weights_sha256="ab" * 32)
    (model,) = catalog.model_views()
    return selectors.serve_of(model, model.profiles[0])


def test_a_profile_is_resolved_for_its_model() -> None:
    serve = told(context=512, slots=3, threads=2, args=["-b", "64"], env={"A": "1"}, start_timeout=9.0, memory=GIB)
    assert (serve.model, serve.weights.path, serve.weights.size) == ("small", "/models/small.gguf", 100 * MIB)
    assert serve.weights.sha256 == "ab" * 32
    assert (serve.context, serve.slots, serve.threads, serve.start_timeout) == (512, 3, 2, 9.0)
    assert (serve.args, serve.env, serve.memory) == (("-b", "64"), {"A": "1"}, GIB)


def test_memory_that_no_profile_names_is_estimated_from_the_weights() -> None:
    assert told(memory=0).memory > 100 * MIB


@pytest.mark.parametrize(
    ("where", "change", "same"),
    [
        ("profile", {"memory": 7}, True),
        ("profile", {"priority": 9}, True),
        ("profile", {"name": "other"}, True),
        ("model", {"replicas": 5}, True),
        ("model", {"enabled": False}, True),
        ("profile", {"context": 1024}, False),
        ("profile", {"slots": 9}, False),
        ("profile", {"threads": 9}, False),
        ("profile", {"args": ("-b", "1")}, False),
        ("profile", {"env": {"B": "1"}}, False),
        ("profile", {"engine": "vllm"}, False),
        ("profile", {"drain_timeout": 3.0}, False),
        ("profile", {"labels": {"zone": "b"}}, True),
        ("profile", {"card_classes": ("H100",)}, True),  # it uses none
        ("profile", {"gpus_per_node": 1}, False),
        ("profile", {"tp": 2}, False),
        ("model", {"weights_path": "/other"}, False),
        ("model", {"weights_sha256": "cd" * 32}, False),
        ("model", {"embeddings": True}, False),
    ],
)
def test_a_digest_changes_with_what_an_engine_is_started_with_and_with_nothing_else(
    where: str, change: dict[str, Any], same: bool
) -> None:
    a_model_row()
    (model,) = catalog.model_views()
    profile = model.profiles[0]
    before = selectors.digest_of(selectors.serve_of(model, profile), profile)
    changed: tuple[ModelView, ProfileView] = (
        (replace(model, **change), profile) if where == "model" else (model, replace(profile, **change))
    )
    assert (selectors.digest_of(selectors.serve_of(*changed), changed[1]) == before) == same


@pytest.mark.parametrize("change", [{"gpus_per_node": 3}, {"card_memory": 7}, {"card_classes": ("H100",)}])
def test_another_use_of_cards_is_another_digest_and_a_better_estimate_is_not(change: dict[str, Any]) -> None:
    a_model_row(profile={"gpus_per_node": 2})
    (model,) = catalog.model_views()
    profile = model.profiles[0]
    before = selectors.digest_of(selectors.serve_of(model, profile), profile)
    changed = replace(profile, **change)
    assert selectors.digest_of(selectors.serve_of(model, changed), changed) != before
    better = replace(profile, memory=profile.memory + 1)
    assert selectors.digest_of(selectors.serve_of(model, better), better) == before


def test_the_clock_is_the_databases_and_close_to_ours() -> None:
    before, found, after = timezone.now().timestamp(), selectors.database_now(), timezone.now().timestamp()
    assert before - 2 < found < after + 2
    assert selectors.database_now() <= selectors.database_now()


def test_the_digest_of_a_profile_without_cards_is_the_one_that_it_always_had() -> None:
    """Another one would restart every replica of every cluster when it is upgraded."""
    serve = Serve(engine="llama.cpp", model="m", weights=Weights(path="/x.gguf", size=1), memory=5)
    a_model_row()
    (model,) = catalog.model_views()
    known = "45edb10eacd2a03bf8e317440132a1b5a13a826a97f51b7c2dd33845db6e14fd"
    assert selectors.digest_of(serve, model.profiles[0]) == known


def test_a_node_that_is_read_without_the_orm_is_the_node_that_the_orm_reads() -> None:
    machine, silent, other = Machine("b"), Machine("c"), Machine("a")
    card = {"uuid": "GPU-1", "name": "L4", "memory_total": 24 * GIB, "memory_used": 3 * GIB, "problem": "Xid 79"}
    Node.objects.filter(id=machine.node.id).update(
        hardware={"cores": 8, "memory_total": 64 * GIB, "memory_available": 5, "disk_free": 7, "cards": [card]},
        engines=[{"kind": "vllm", "version": "1", "problem": "no CUDA: äöü \u2028"}],
        modules=[{"name": "inference", "state": "running", "code": "", "message": ""}],
        roles=["inference"],
        labels={"zone": "ö"},
        fabric="ib-0",
        maintenance="cordoned",
        maintenance_why='fan "2"',
        cards_maintenance={"GPU-1": {"state": "drained", "why": "", "by": "", "at": ""}},
        last_seen_at=timezone.now(),
    )
    Node.objects.filter(id=other.node.id).update(removed_at=timezone.now())
    listening, now = selectors.clock()
    held, setup = {"GPU-1": GIB}, selectors.cluster_setup()
    by_orm = [machine.node, silent.node]
    for node in by_orm:
        node.refresh_from_db()
    wanted = tuple(selectors.node_view(node, setup, listening, now, held) for node in by_orm)
    assert tuple(selectors.node_view(row, setup, listening, now, held) for row in node_rows()) == wanted
    assert wanted[0].cards[0].foreign == 2 * GIB
    assert [node.name for node in selectors.world(now).nodes] == ["b", "c"]


def test_the_world_says_how_often_nodes_report() -> None:
    """A short idle time is judged by it."""
    assert selectors.world().heard_every == settings.CONFIG.heartbeat


def test_the_world_is_read_in_a_handful_of_queries_however_large_it_is(django_assert_num_queries: Any) -> None:
    def grow(number: int) -> None:
        Machine().heartbeat()
        owner = scopes.create_organisation(actor=ACTOR, name=f"o{number}")
        team = scopes.create_team(actor=ACTOR, organisation=owner, name=f"t{number}")
        a_model_row(f"m{number}", team=team)
        a_model_row(f"n{number}", replicas=0, max_replicas=2, organisation=owner)

    grow(0)
    tick()
    with django_assert_num_queries(10):
        selectors.world(1.0)
    quotas.put(actor=ACTOR, scope=Organisation.objects.get(), guarantee={}, limit={"cores": 99})
    for number in range(1, 8):
        grow(number)
        quotas.put(actor=ACTOR, scope=Team.objects.get(name=f"t{number}"), guarantee={"cores": 1}, limit={})
    tick()
    with django_assert_num_queries(10 + 3):
        assert len(selectors.world(1.0).nodes) == 8
