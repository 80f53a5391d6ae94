"""The cluster setup page."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from django.test import Client

from cluster.models import ClusterSetup, Node
from cluster.services import setup
from tests.llmgw_site.console.conftest import Cluster, Person

SETUP = "/admin/setup"


@pytest.fixture
def controller(cluster: Cluster) -> Node:
    return cluster.runs("controller", "router", "edge")


def page_of(client: Client) -> str:
    return html.unescape(client.get(SETUP).content.decode())


def ticked(page: str, name: str) -> list[str]:
    """Values of the ticked boxes of this name."""
    boxes = re.findall(r"<input type=\"checkbox\"[^>]*>", page)
    return [re.findall(r'value="([^"]+)"', box)[0] for box in boxes if f'name="{name}"' in box and " checked" in box]


def save(client: Client, *, version: int = 0, **fields: Any) -> Any:
    return client.post(f"{SETUP}/save", {"version": version, **fields}, follow=True)


def test_a_node_that_is_not_set_shows_its_own_roles_in_grey(admin: Client, controller: Node) -> None:
    page = page_of(admin)
    assert ticked(page, f"roles-{controller.id}") == ["controller", "edge", "router", "inference", "data"]
    assert ticked(page, "listed") == []
    assert ticked(page, "tier") == []
    assert "nothing is set" in page
    assert all(" disabled" in box for box in re.findall(rf"<input[^>]*roles-{controller.id}[^>]*>", page))


def test_what_is_ticked_is_kept(admin: Client, cluster: Cluster, controller: Node) -> None:
    beta = cluster.another("beta")
    fields = {
        "tier": ["controller", "data"],
        "listed": [controller.id, beta.id],
        f"roles-{controller.id}": ["controller", "router"],
        f"roles-{beta.id}": ["inference"],
    }
    page = html.unescape(save(admin, **fields).content.decode())
    assert "Saved" in page
    view = setup.get()
    assert view.controller_tier == ("controller", "data")
    assert view.nodes == {"alpha": ("controller", "router"), "beta": ("inference",)}
    assert view.updated_by == "user:root"
    assert ticked(page, f"roles-{beta.id}") == ["inference"]
    assert "version 1, by user:root" in page
    assert 'edge <span class="dim">shall stop</span>' in page
    assert "data <span>due</span>" in page


def test_a_module_that_a_node_switched_on_by_itself_is_not_said_to_stop(admin: Client, cluster: Cluster) -> None:
    beta = cluster.another("beta")
    running = [{"name": "router", "state": "running", "code": "", "message": ""}]
    Node.objects.filter(id=beta.id).update(roles=["edge"], modules=running)
    assert "shall stop" not in admin.get("/admin/setup").content.decode()


def test_a_node_that_is_listed_without_a_role_runs_nothing(admin: Client, cluster: Cluster, controller: Node) -> None:
    beta = cluster.another("beta")
    save(admin, listed=[beta.id])
    assert setup.get().nodes == {"beta": ()}


def test_boxes_of_a_node_that_is_not_listed_count_for_nothing(admin: Client, controller: Node) -> None:
    save(admin, tier=["controller"], **{f"roles-{controller.id}": ["cloud"]})
    assert setup.get().nodes == {}


def test_a_refusal_is_shown_above_the_form_as_it_was_filled_in(admin: Client, controller: Node) -> None:
    answer = save(admin, listed=[controller.id], **{f"roles-{controller.id}": ["edge", "cloud"]})
    page = html.unescape(answer.content.decode())
    assert answer.status_code == 409
    assert "Nothing was changed" in page
    assert "setup_without_controller" in page
    assert ticked(page, f"roles-{controller.id}") == ["edge", "cloud"]
    assert not ClusterSetup.objects.exclude(version=0).exists()
    assert f'data-live="{SETUP}?' in page


def test_an_unknown_role_of_the_tier_is_refused(admin: Client, controller: Node) -> None:
    page = save(admin, tier=["king"]).content.decode()
    assert "unknown_role" in page
    assert 'class="tier wrong"' in page
    assert 'id="error-controller_tier"' in page


def test_who_was_slower_sees_that_and_may_save_again(admin: Client, controller: Node) -> None:
    setup.put(actor="user:ann", controller_tier=["controller"], nodes={})
    page = html.unescape(save(admin, version=0, tier=["controller", "data"]).content.decode())
    assert "setup_changed" in page
    assert ticked(page, "tier") == ["controller", "data"]
    assert setup.get().controller_tier == ("controller",)
    version = re.findall(r'name="version" value="(\d+)"', page)[0]
    save(admin, version=int(version), tier=["controller", "data"])
    assert setup.get().controller_tier == ("controller", "data")


def test_the_setup_is_cleared(admin: Client, controller: Node) -> None:
    setup.put(actor="user:ann", controller_tier=["controller"], nodes={})
    page = admin.post(f"{SETUP}/clear", follow=True).content.decode()
    assert "The setup is empty" in page
    assert (setup.get().controller_tier, setup.get().nodes) == ((), {})


def test_a_module_that_cannot_run_says_why(admin: Client, controller: Node) -> None:
    broken = {"name": "data", "state": "unavailable", "code": "x", "message": "no room"}
    Node.objects.filter(id=controller.id).update(modules=[*controller.modules, broken])
    assert "Data: no room" in page_of(admin)


def test_an_empty_cluster_says_how_to_begin(admin: Client) -> None:
    page = page_of(admin)
    assert "No node has joined" in page
    assert ">Save<" not in page


def test_the_live_parts_are_what_runs_and_whether_nodes_came_or_went(
    admin: Client, cluster: Cluster, controller: Node
) -> None:
    same = admin.get(f"{SETUP}?parts=1&shown=1").content.decode()
    assert f'data-part="runs-{controller.id}"' in same
    assert "<form" not in same
    assert "have joined or left" not in same
    cluster.another("beta")
    assert "have joined or left" in admin.get(f"{SETUP}?parts=1&shown=1").content.decode()


def test_who_may_only_look_cannot_tick_or_save(person: Person, controller: Node) -> None:
    looker = person("cluster.view_clustersetup", "cluster.view_node")
    page = page_of(looker)
    assert ">Save<" not in page
    assert all(" disabled" in box for box in re.findall(r'<input type="checkbox"[^>]*>', page))
    for path in ("save", "clear"):
        assert looker.post(f"{SETUP}/{path}").status_code == 403


def test_a_thousand_nodes_can_be_saved_at_once(admin: Client, cluster: Cluster, controller: Node) -> None:
    fields = {f"roles-node_{number}": ["inference", "data"] for number in range(1000)}
    answer = admin.post(f"{SETUP}/save", {"version": 0, "listed": list(range(1000)), **fields})
    assert answer.status_code == 409
    assert "unknown_node" in answer.content.decode()
