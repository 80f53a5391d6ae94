"""The nodes page: what it shows, maintenance, taking a node out."""

from __future__ import annotations

import html
import re

import pytest
from django.test import Client

from catalog.models import Event
from cluster.models import Node
from cluster.services import maintenance
from tests.cluster.rows import age
from tests.llmgw_site.console.conftest import Cluster, Person


def text(client: Client, path: str = "/admin/nodes") -> str:
    return html.unescape(client.get(path).content.decode())


def maintain(client: Client, node: Node, **fields: str) -> str:
    answer = client.post(f"/admin/nodes/{node.id}/maintenance", fields, follow=True)
    return html.unescape(answer.content.decode())


def test_a_node_is_shown_with_all_that_is_known_of_it(admin: Client, cluster: Cluster) -> None:
    cluster.model("tiny", in_flight=1)
    node = cluster.runs("inference", "router")
    broken = {"name": "controller", "state": "unavailable", "code": "store_not_shared", "message": "no <way> to it"}
    Node.objects.filter(id=node.id).update(modules=[*node.modules, broken], problems=["disk short"])
    page = admin.get("/admin/nodes").content.decode()
    for part in (
        "alpha", "online", "seen ", "http://127.0.0.1:8880", "llmgw 0.1.0", "4 cores", "4.0 GiB of 16.0 GiB", "Card One",
        ">inference</li>", "controller <span>unavailable</span>", "Module controller cannot run", "no &lt;way&gt; to it", "store_not_shared", "Disk short",
        "tiny", "1 of 2 in flight", "300.0 MiB", "llama.cpp b1", "no vllm: it is not installed",
    ):  # fmt: skip
        assert part in page, part
    assert "<way>" not in page


def test_labels_fabric_and_what_keeps_a_card_out_of_use_are_shown(admin: Client, cluster: Cluster) -> None:
    hardware = Node.objects.get(id=cluster.node.id).hardware
    hardware["cards"][0] |= {"memory_foreign": 7 << 30, "problem": "2 uncorrectable <memory> errors"}
    Node.objects.filter(id=cluster.node.id).update(labels={"zone": "b", "spot": ""}, fabric="ib-1", hardware=hardware)
    page = admin.get("/admin/nodes").content.decode()
    for part in (
        "fabric ib-1",
        "zone=b",
        ">spot<",
        "7.0 GiB held by other programs",
        "2 uncorrectable &lt;memory&gt; errors",
    ):
        assert part in page, part


def test_a_node_that_was_never_seen_shows_nothing_that_was_not_measured(admin: Client, cluster: Cluster) -> None:
    cluster.another("beta", seen=False)
    page = text(admin, "/admin/nodes?name=beta")
    assert "never seen" in page
    assert "No modules reported yet" in page
    assert "GiB" not in page
    assert "0 cores" not in page


def test_states_narrow_the_list_and_are_counted(admin: Client, cluster: Cluster) -> None:
    cluster.another("beta")
    cluster.listened_for(1000)
    age(Node.objects.get(name="beta"), 600)
    offline = text(admin, "/admin/nodes?state=offline")
    assert 'aria-label="beta"' in offline
    assert 'aria-label="alpha"' not in offline
    assert 'Offline <span class="lg-count num">1</span>' in offline
    assert "No node is like that" in text(admin, "/admin/nodes?state=stale")
    assert "No node is like that" in text(admin, "/admin/nodes?name=zeta")


def test_an_empty_cluster_says_how_to_begin(admin: Client) -> None:
    page = text(admin)
    assert "No node has joined" in page
    assert "/admin/nodes/add" in page


@pytest.mark.parametrize(
    "query", ["?page=0", "?page=x", "?page=99999999", "?state=nonsense", "?page=900", "?name=%00%3C"]
)
def test_nonsense_in_the_address_opens_a_page_all_the_same(query: str, admin: Client, cluster: Cluster) -> None:
    assert admin.get(f"/admin/nodes{query}").status_code == 200


def test_pages_are_turned(admin: Client, cluster: Cluster) -> None:
    for number in range(22):
        cluster.another(f"n{number:02}")
    first, second = text(admin), text(admin, "/admin/nodes?page=2")
    assert "1 to 20 of 23" in first
    assert "?page=2" in first
    assert "21 to 23 of 23" in second
    assert 'aria-label="n21"' in second


def test_a_node_is_drained_and_taken_back_with_who_and_why(admin: Client, cluster: Cluster) -> None:
    cluster.model("tiny")
    page = maintain(admin, cluster.node, verb="drain", reason="new memory on Friday", back="?state=maintenance")
    assert "The node is drained" in page
    for part in ("Draining", "new memory on Friday", "1 replica still here", "by user:root", "tiny cannot leave yet"):
        assert part in page, part
    assert 'Maintenance <span class="lg-count num">1</span>' in page
    assert Event.objects.get(kind="node_drained").why == "new memory on Friday"
    assert "takes replicas again" in maintain(admin, cluster.node, verb="uncordon")
    assert Node.objects.get(id=cluster.node.id).maintenance == ""


def test_one_card_is_cordoned_and_shown_beside_its_memory(admin: Client, cluster: Cluster) -> None:
    page = maintain(admin, cluster.node, verb="cordon", reason="hot", card="GPU-1")
    assert "Cordoned</strong>: hot" in page
    assert 'name="card" value="GPU-1"' in page
    assert Node.objects.get(id=cluster.node.id).cards_maintenance["GPU-1"]["state"] == "cordoned"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"verb": "cordon", "card": "GPU-9", "reason": "x"}, "unknown_card"),
        ({"verb": "explode", "reason": "x"}, "Choose cordon or drain"),
        ({}, "Choose cordon or drain"),
        ({"verb": "uncordon", "card": "GPU-9"}, "(unknown_card)"),
    ],
)
def test_what_is_refused_is_said_and_changes_nothing(
    fields: dict[str, str], said: str, admin: Client, cluster: Cluster
) -> None:
    assert said in maintain(admin, cluster.node, **fields)
    node = Node.objects.get(id=cluster.node.id)
    assert (node.maintenance, node.cards_maintenance) == ("", {})


def test_a_form_that_is_refused_stands_open_with_what_was_typed_over_the_list_it_came_from(
    admin: Client, cluster: Cluster
) -> None:
    fields = {"verb": "drain", "card": "GPU-9", "reason": "new <memory>", "back": "?state=online&name=alp"}
    answer = admin.post(f"/admin/nodes/{cluster.node.id}/maintenance", fields)
    page = answer.content.decode()
    assert answer.status_code == 409
    assert re.search(r'<dialog[^>]* id="maintain"[^>]* open>', page)
    for part in (
        f'action="/admin/nodes/{cluster.node.id}/maintenance"', 'value="new &lt;memory&gt;"', 'value="drain" checked',
        'value="GPU-1" data-own>', 'id="error-card"', '<span data-slot="name">alpha</span>', 'value="alp"',
        'data-live="/admin/nodes?state=online&amp;name=alp&amp;parts=1"', 'name="back" value="?state=online&amp;name=alp"',
    ):  # fmt: skip
        assert part in page, part
    assert re.search(r'<dialog[^>]* id="remove"[^>]*[^n]>', page)


def test_the_only_controller_is_not_taken_out_and_the_reason_stays_typed(admin: Client, cluster: Cluster) -> None:
    node = cluster.runs("controller")
    answer = admin.post(f"/admin/nodes/{node.id}/remove", {"reason": "sold"})
    page = answer.content.decode()
    assert answer.status_code == 409
    assert re.search(r'<dialog[^>]* id="remove"[^>]* open>', page)
    assert "last_controller" in page
    assert page.count('value="sold"') == 1
    assert Node.objects.get(id=node.id).removed_at is None


@pytest.mark.parametrize("path", ["maintenance", "remove"])
def test_a_node_that_is_not_there_is_said(path: str, admin: Client) -> None:
    answer = admin.post(f"/admin/nodes/node_none/{path}", {"verb": "cordon", "reason": "x"}, follow=True)
    assert "(node_unknown)" in answer.content.decode()


def test_a_character_that_no_database_keeps_does_no_harm(admin: Client, cluster: Cluster) -> None:
    """NUL, which PostgreSQL refuses: in a reason it is replaced, as an id it is nobody's."""
    maintain(admin, cluster.node, verb="cordon", reason="a\x00b")
    assert Node.objects.get(id=cluster.node.id).maintenance_why == "a\ufffdb"
    for path in ("nodes/a%00b/maintenance", "nodes/a%00b/remove", "nodes/tokens/a%00b/revoke", "jobs/a%00b/cancel"):
        assert admin.post(f"/admin/{path}", {"verb": "cordon", "reason": "x"}).status_code == 404, path
    assert admin.get("/admin/jobs/a%00b").status_code == 404


def test_a_node_is_taken_out(admin: Client, cluster: Cluster) -> None:
    answer = admin.post(f"/admin/nodes/{cluster.node.id}/remove", {"reason": "sold"}, follow=True)
    assert "alpha is out of the cluster" in answer.content.decode()
    assert Node.objects.get(id=cluster.node.id).removed_at is not None
    assert Event.objects.get(kind="node_removed").why == "sold"


def test_forms_lead_back_to_the_list_they_came_from_and_nowhere_else(admin: Client, cluster: Cluster) -> None:
    path = f"/admin/nodes/{cluster.node.id}/maintenance"
    for back, leads in [("?state=online", "/admin/nodes?state=online"), ("//evil.example", "/admin/nodes")]:
        answer = admin.post(path, {"verb": "uncordon", "back": back})
        assert answer.headers["Location"] == leads


def test_buttons_are_there_for_who_may_and_work_for_nobody_else(person: Person, cluster: Cluster) -> None:
    maintenance.cordon(actor="test", node_id=cluster.node.id, why="new disk")
    looker = person("cluster.view_node", name="looker")
    page = text(looker)
    assert "new disk" in page
    for button in ("Uncordon", "Maintenance…", "Remove…", "Add a node", "In flight"):
        assert button not in page
    for path in ("maintenance", "remove"):
        assert looker.post(f"/admin/nodes/{cluster.node.id}/{path}", {"verb": "uncordon"}).status_code == 403
    keeper = person("cluster.view_node", "cluster.change_node", name="keeper")
    assert "Uncordon" in text(keeper)
    assert "Remove…" not in text(keeper)
    assert keeper.get(f"/admin/nodes/{cluster.node.id}/maintenance")["Location"] == "/admin/nodes"
    assert Node.objects.get(id=cluster.node.id).maintenance == "cordoned"


def test_the_live_parts_are_those_of_the_page(admin: Client, cluster: Cluster) -> None:
    parts = text(admin, "/admin/nodes?parts=1")
    assert "<html" not in parts
    assert 'data-part="filters"' in parts
    assert 'data-part="nodes"' in parts


def test_the_overview_leads_to_the_node(admin: Client, cluster: Cluster) -> None:
    page = text(admin, "/admin/")
    assert 'href="/admin/nodes"' in page
    assert 'href="/admin/nodes?name=alpha"' in page
