"""Nodes, models and replicas as the overview shows them."""

from __future__ import annotations

from datetime import timedelta

from django.db.models import F

from cluster.domain.modules import Module, ModuleReport
from cluster.domain.states import NodeState, ReplicaState
from cluster.models import ClusterIdentity, Node, Replica
from llmgw_site.console import selectors
from tests.cluster.rows import Machine
from tests.llmgw_site.console.conftest import GIB, Cluster
from tests.rows import a_model, a_provider


def test_a_node_is_shown_with_what_it_reported_and_nothing_else(cluster: Cluster) -> None:
    (node,) = selectors.cluster().nodes
    assert (node.name, node.state, node.cores) == ("alpha", NodeState.ONLINE, 4)
    assert (node.memory_total, node.memory_used, node.memory_percent) == (16 * GIB, 4 * GIB, 25.0)
    assert node.load_1m is None
    assert node.disk_free is None
    (card,) = node.cards
    assert (card.name, card.memory_total, card.memory_used, card.memory_percent) == ("Card One", 8 * GIB, None, None)
    assert node.engines == ("llama.cpp b1",)
    assert node.missing == ("no vllm: it is not installed",)


def test_a_model_is_shown_with_how_it_stands(cluster: Cluster) -> None:
    cluster.model("answering", in_flight=1)
    cluster.model("waiting", ready=False)
    cluster.model("off", ready=False, enabled=False)
    shown = {model.name: model for model in selectors.cluster().models}
    assert {name: model.state for name, model in shown.items()} == {
        "answering": "ready", "waiting": "not ready", "off": "disabled",
    }  # fmt: skip
    ready = shown["answering"]
    assert (ready.engine, ready.context, ready.slots, ready.in_flight) == ("llama.cpp", 2048, 2, 1)
    assert shown["waiting"].status.reason
    assert shown["waiting"].slots is None


def test_replicas_of_a_node_that_went_silent_are_lost(cluster: Cluster) -> None:
    cluster.model("tiny", in_flight=1)
    assert [replica.state for replica in selectors.cluster().replicas] == [ReplicaState.READY]
    hour = timedelta(hours=1)
    Node.objects.update(last_seen_at=F("last_seen_at") - hour)
    ClusterIdentity.objects.update(listening_since=F("listening_since") - hour)
    Replica.objects.update(state_since=F("state_since") - 2 * hour)
    now = selectors.cluster()
    assert [replica.state for replica in now.replicas] == [ReplicaState.LOST]
    heard = Node.objects.get().last_seen_at
    assert [replica.state_since for replica in now.replicas] == [heard]  # not since it became ready
    card = selectors.model_card(Replica.objects.get().model_id)
    assert card is not None
    assert [(item.state, item.since) for item in card.replicas] == [(ReplicaState.LOST, heard)]
    assert (now.in_flight, now.slots) == (0, 0)


def test_the_queries_do_not_grow_with_the_cluster(cluster: Cluster, django_assert_num_queries: object) -> None:
    for count in (1, 4):
        for n in range(count):
            cluster.model(f"model-{count}-{n}")
        with django_assert_num_queries(16):  # type: ignore[operator]
            selectors.cluster()


def test_an_external_model_says_so_and_can_be_chatted_with_once_a_node_runs_cloud(cluster: Cluster) -> None:
    a_model("gpt", weights_path="", provider=a_provider(), provider_model="gpt-9")
    (model,) = selectors.cluster().models
    assert (model.state, model.engine, model.status.code) == ("not ready", "external provider", "no_cloud_node")
    assert [item["ready"] for item in selectors.chat_models()] == [False]
    Machine("cloudy").heartbeat(modules=(ModuleReport(name=Module.CLOUD),))
    (model,) = selectors.cluster().models
    assert (model.state, model.status.reason) == ("external", "")
    assert [item["ready"] for item in selectors.chat_models()] == [True]
