"""cluster.domain.setup: who is named, what a node runs, and which setups are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.modules import DEFAULT_ROLES, Module, ModuleReport
from cluster.domain.setup import Setup, SetupNode, check, check_removal, in_order, roles_after, roles_of
from llmgw_site.lib.errors import Kind, Refused

DEFAULTS = tuple(item.value for item in DEFAULT_ROLES)


def a_node(name: str, *modules: str, unavailable: str = "", **fields: Any) -> SetupNode:
    """A node that reports these modules as running, and the controller as unavailable with this code."""
    reports = [ModuleReport(name=item) for item in modules]
    if unavailable:
        reports.append(ModuleReport(name="controller", state="unavailable", code=unavailable, message="no database"))
    return SetupNode(id=f"node_{name}", name=name, modules=tuple(reports), **fields)


def a_setup(*tier: str, **nodes: tuple[str, ...]) -> Setup:
    return Setup(controller_tier=tier, nodes={f"node_{name}": roles for name, roles in nodes.items()})


HEAD = a_node("head", "controller", "router", "edge")
JOINED = a_node("joined", "inference", unavailable="store_not_shared")
WORKER = a_node("worker", "inference", own=("inference",))


@pytest.mark.parametrize(
    ("setup", "node", "roles"),
    [
        (a_setup(), HEAD, None),
        (a_setup(worker=("inference",)), HEAD, None),
        (a_setup(worker=("inference", "data")), WORKER, ("inference", "data")),
        (a_setup(worker=()), WORKER, ()),
        (a_setup("data"), WORKER, None),
        (a_setup("data", "cloud"), HEAD, ("controller", "edge", "router", "inference", "cloud", "data")),
        (a_setup("cloud", head=("controller",)), HEAD, ("controller", "cloud")),
        (a_setup("cloud", head=("edge",)), HEAD, ("edge",)),
        (a_setup("cloud"), JOINED, None),
        (a_setup("cloud", joined=("controller", "edge")), JOINED, ("controller", "edge")),
        (a_setup("cloud", worker=("controller",)), WORKER, ("controller", "cloud")),
    ],
)
def test_what_the_setup_gives_a_node(setup: Setup, node: SetupNode, roles: tuple[str, ...] | None) -> None:
    assert roles_of(setup, node) == roles
    assert roles_after(setup, node) == (node.own_roles if roles is None else roles)


def test_a_node_without_roles_of_its_own_has_the_defaults() -> None:
    assert roles_after(Setup(), HEAD) == DEFAULTS
    assert set(DEFAULTS) == {"controller", "inference", "router", "edge", "data"}


def refused(setup: Setup, *nodes: SetupNode) -> Refused:
    with pytest.raises(Refused) as caught:
        check(setup, nodes)
    return caught.value


def test_a_role_that_does_not_exist_is_refused_with_those_that_do() -> None:
    for setup, param in ((a_setup("king"), "controller_tier"), (a_setup(head=("king",)), "nodes")):
        error = refused(setup, HEAD)
        assert (error.code, error.kind, error.param) == ("unknown_role", Kind.INVALID, param)
        assert "controller, edge, router, inference, cloud, data" in error.message


def test_a_node_that_is_not_in_the_cluster_is_refused() -> None:
    assert refused(a_setup(ghost=("edge",)), HEAD).code == "unknown_node"


@pytest.mark.parametrize(
    ("setup", "nodes", "words"),
    [
        (a_setup(head=("edge", "router")), [HEAD, WORKER], "no node has the role"),
        (
            a_setup(head=("router",), joined=("controller",)),
            [HEAD, JOINED],
            "joined has no way to the cluster's stores",
        ),
        (a_setup(head=("router",), worker=("controller",)), [HEAD, WORKER], "worker does not run it yet"),
        (a_setup(head=("router",)), [HEAD, a_node("b", "controller", offline=True)], "b is offline"),
        (a_setup(head=("router",)), [HEAD, a_node("b", own=("controller",))], "b does not run it yet"),
        (a_setup(head=("router",)), [HEAD, a_node("b", unavailable="stores_down")], "b cannot: no database"),
    ],
)
def test_a_setup_without_a_controller_that_works_is_refused_with_the_reason(
    setup: Setup, nodes: list[SetupNode], words: str
) -> None:
    error = refused(setup, *nodes)
    assert (error.code, error.kind) == ("setup_without_controller", Kind.CONFLICT)
    assert words in error.message


def test_a_controller_that_was_switched_off_on_its_node_counts_only_where_the_setup_names_it() -> None:
    off = SetupNode(id="node_off", name="off", modules=(ModuleReport(name="controller", state="stopped"),))
    assert "off has switched it off" in refused(a_setup(head=("router",)), HEAD, off).message
    check(a_setup(head=("router",), off=("controller",)), [HEAD, off])


def test_the_last_controller_may_go_when_another_runs_already() -> None:
    check(a_setup(head=("router",)), [HEAD, a_node("b", "controller", own=("controller",)), WORKER])


@pytest.mark.parametrize(
    ("head", "worker", "fine"),
    [
        (("controller", "edge"), ("data",), False),
        (("controller", "edge"), ("inference",), False),  # an edge asks a router, and there is none
        (("controller", "edge"), ("router",), True),
        (("controller", "edge", "inference"), ("data",), True),
        (("controller", "edge", "cloud"), ("data",), True),
        (("controller",), ("data",), True),
    ],
)
def test_an_edge_needs_something_behind_it(head: tuple[str, ...], worker: tuple[str, ...], fine: bool) -> None:
    setup = a_setup(head=head, worker=worker)
    if fine:
        check(setup, [HEAD, WORKER])
    else:
        error = refused(setup, HEAD, WORKER)
        assert (error.code, error.kind) == ("edge_without_upstream", Kind.CONFLICT)
        assert "head" in error.message


@pytest.mark.parametrize(
    ("leaves", "others", "fine"),
    [
        (HEAD, [], False),
        (HEAD, [JOINED, WORKER], False),
        (HEAD, [a_node("other", "controller", offline=True)], False),
        (HEAD, [a_node("other", "controller")], True),
        (WORKER, [HEAD], True),
        (WORKER, [], True),
        (a_node("late", "controller", offline=True), [HEAD], True),
    ],
)
def test_the_only_controller_that_works_is_not_taken_out(
    leaves: SetupNode, others: list[SetupNode], fine: bool
) -> None:
    if fine:
        check_removal(leaves.id, [leaves, *others])
        return
    with pytest.raises(Refused, match="is the only controller that works") as refused:
        check_removal(leaves.id, [leaves, *others])
    assert (refused.value.kind, refused.value.code) == (Kind.CONFLICT, "last_controller")


def test_an_empty_setup_is_always_fine() -> None:
    check(Setup(), [])
    check(Setup(), [JOINED])


roles = st.lists(st.sampled_from([item.value for item in Module]), max_size=6)


@given(st.lists(roles, min_size=1, max_size=3), roles)
def test_what_passes_leaves_a_controller_and_no_edge_alone(lists: list[list[str]], tier: list[str]) -> None:
    nodes = [HEAD, JOINED, WORKER][: len(lists)]
    setup = Setup(controller_tier=tuple(tier), nodes={n.id: tuple(r) for n, r in zip(nodes, lists, strict=True)})
    try:
        check(setup, nodes)
    except Refused:
        return
    after = {node.name: set(roles_after(setup, node)) for node in nodes}
    assert "controller" in after["head"]
    assert all(
        "edge" not in r or r & {"inference", "cloud"} or any("router" in x for x in after.values())
        for r in after.values()
    )


@given(roles)
def test_roles_stand_once_and_in_order(names: list[str]) -> None:
    ordered = in_order(names)
    assert set(ordered) == set(names)
    assert in_order(reversed(ordered)) == ordered
