"""The cluster setup against what nodes run."""

from __future__ import annotations

from cluster.models import Node
from cluster.services import setup
from llmgw_site.console import selectors
from tests.llmgw_site.console.conftest import Cluster

DEFAULT = ("controller", "inference", "router", "edge", "data")


def test_without_a_setup_every_node_goes_by_its_own_roles(cluster: Cluster) -> None:
    Node.objects.filter(id=cluster.another("beta").id).update(roles=["cloud"])
    page = selectors.setup()
    assert (page.version, page.tier, page.updated_by) == (0, (), "")
    assert [(row.name, set(row.own), row.assigned, set(row.after)) for row in page.rows] == [
        ("alpha", set(DEFAULT), None, set(DEFAULT)),
        ("beta", {"cloud"}, None, {"cloud"}),
    ]


def test_a_row_tells_what_is_due_and_what_shall_stop(cluster: Cluster) -> None:
    node = cluster.runs("controller", "router", "edge")
    setup.put(actor="user:ann", controller_tier=["controller", "data"], nodes={node.id: ["controller", "router"]})
    page = selectors.setup()
    (row,) = page.rows
    assert (page.version, page.tier, page.updated_by) == (1, ("controller", "data"), "user:ann")
    assert (row.assigned, set(row.after)) == (("controller", "router"), {"controller", "router", "data"})
    assert (row.due, row.leaving) == (("data",), ("edge",))


def test_of_a_node_that_says_nothing_nothing_is_due(cluster: Cluster) -> None:
    assert [row.due for row in selectors.setup().rows] == [()]


def test_the_queries_do_not_grow_with_the_nodes(cluster: Cluster, django_assert_num_queries: object) -> None:
    for name in ("beta", "gamma"):
        cluster.another(name)
        with django_assert_num_queries(4):  # type: ignore[operator]
            selectors.setup()
