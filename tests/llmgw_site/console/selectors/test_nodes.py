"""A page of nodes, and the tokens that let more in."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from cluster.models import JoinToken, Node
from cluster.services import joining, maintenance
from llmgw_site.console import selectors
from tests.cluster.rows import age
from tests.llmgw_site.console.conftest import Cluster


def names(found: selectors.Machines) -> list[str]:
    return [machine.node.name for machine in found.machines]


def four_nodes(cluster: Cluster) -> None:
    """alpha online, beta stale, gamma offline and never seen, delta online and cordoned."""
    for name in ("beta", "gamma", "delta"):
        cluster.another(name, seen=name != "gamma")
    cluster.listened_for(400)
    age(Node.objects.get(name="beta"), 120)
    maintenance.cordon(actor="test", node_id=Node.objects.get(name="delta").id, why="new disk")


def test_nodes_are_counted_and_narrowed_by_state_maintenance_and_name(cluster: Cluster) -> None:
    four_nodes(cluster)
    every = selectors.machines()
    assert names(every) == ["alpha", "beta", "delta", "gamma"]
    assert every.counts == {"": 4, "online": 2, "stale": 1, "offline": 1, "maintenance": 1}
    assert names(selectors.machines(only="stale")) == ["beta"]
    assert names(selectors.machines(only="offline")) == ["gamma"]
    assert names(selectors.machines(only="maintenance")) == ["delta"]
    assert names(selectors.machines(name="LT")) == ["delta"]
    assert names(selectors.machines(only="online", name="beta")) == []


def test_pages_follow_each_other(cluster: Cluster) -> None:
    four_nodes(cluster)
    second = selectors.machines(offset=2, limit=2)
    assert (names(second), second.total) == (["delta", "gamma"], 4)


def test_a_node_comes_with_its_replicas_and_its_maintenance(cluster: Cluster) -> None:
    cluster.model("tiny", in_flight=1)
    maintenance.drain(actor="user:ann", node_id=cluster.node.id, why="new memory")
    maintenance.cordon(actor="user:ann", node_id=cluster.node.id, why="hot", card="GPU-1")
    (machine,) = selectors.machines().machines
    assert [(item.model, item.in_flight) for item in machine.replicas] == [("tiny", 1)]
    kept, card = machine.node.maintenance, machine.node.cards[0].maintenance
    assert kept is not None
    assert card is not None
    assert (kept.state, kept.why, kept.by) == ("drained", "new memory", "user:ann")
    assert (card.state, card.why, card.at is not None) == ("cordoned", "hot", True)
    assert [model for model, _ in machine.waiting] == ["tiny"]


def test_a_card_that_was_taken_out_for_maintenance_is_still_shown(cluster: Cluster) -> None:
    maintenance.drain(actor="user:ann", node_id=cluster.node.id, why="broken fan", card="GPU-1")
    Node.objects.filter(id=cluster.node.id).update(hardware={"cores": 4, "cards": []})
    (machine,) = selectors.machines().machines
    (card,) = machine.node.cards
    assert (card.uuid, card.name, card.memory_total) == ("GPU-1", "GPU-1, not reported", None)
    assert card.maintenance is not None
    assert card.maintenance.why == "broken fan"


def test_the_queries_do_not_grow_with_the_nodes(cluster: Cluster, django_assert_num_queries: object) -> None:
    for count in (1, 5):
        for number in range(count):
            cluster.another(f"n{count}-{number}")
        with django_assert_num_queries(6):  # type: ignore[operator]
            selectors.machines()


def test_only_tokens_that_still_let_machines_in_are_open(cluster: Cluster) -> None:
    kept, used, revoked, old = (joining.issue(actor="test", uses=2).token for _ in range(4))
    JoinToken.objects.filter(id=used.id).update(uses=2)
    joining.revoke(actor="test", token_id=revoked.id)
    JoinToken.objects.filter(id=old.id).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert [(token.id, token.uses_allowed) for token in selectors.open_tokens()] == [(kept.id, 2)]
