"""The front page."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from cluster.services import jobs
from tests.llmgw_site.console.conftest import Cluster, Person


def test_the_overview_shows_nodes_models_replicas_and_jobs(admin: Client, cluster: Cluster) -> None:
    cluster.model("tiny", in_flight=1)
    jobs.open(kind="serve", subject="other", args={}, actor="user:root")
    page = admin.get("/admin/").content.decode()
    for text in (
        "alpha",
        "4.0 GiB of 16.0 GiB",
        "tiny",
        "2,048 tokens of context",
        "Serve other",
        '1 <span class="dim">of 1</span>',
        "300.0 MiB",
    ):
        assert text in page, text
    assert "Serve a first model" not in page
    assert "&quot;model&quot;: &quot;tiny&quot;" in page or '"model": "tiny"' in page


def test_an_empty_cluster_says_how_to_begin(admin: Client) -> None:
    page = admin.get("/admin/").content.decode()
    for text in ("Serve a first model", "No node has joined", "No replica runs", "Nothing runs", "Nothing can answer"):
        assert text in page, text
    assert "curl" not in page


@pytest.mark.parametrize(
    ("permission", "shown", "hidden"),
    [
        ("cluster.view_node", "nodes", ("models", "replicas", "jobs", "traffic")),
        ("catalog.view_model", "models", ("nodes", "replicas", "jobs", "traffic")),
        ("cluster.view_replica", "replicas", ("nodes", "models", "jobs", "traffic")),
        ("cluster.view_job", "jobs", ("nodes", "models", "replicas", "traffic")),
    ],
)
def test_a_part_is_there_only_for_who_may_see_its_rows(
    permission: str, shown: str, hidden: tuple[str, ...], person: Person, cluster: Cluster
) -> None:
    cluster.model("tiny")
    client = person(permission)
    for path in ("/admin/", "/admin/overview/parts"):
        page = client.get(path).content.decode()
        assert f'data-part="{shown}"' in page
        assert [part for part in hidden if f'data-part="{part}"' in page] == []


def test_of_many_nodes_those_to_look_at_come_first(admin: Client, cluster: Cluster) -> None:
    for number in range(14):
        cluster.another(f"n{number:02}", seen=number != 13)
    page = admin.get("/admin/").content.decode()
    assert "All 15 nodes" in page
    assert "?name=n13" in page
    assert "?name=n12" not in page


def test_who_may_see_nothing_is_told_so(person: Person) -> None:
    assert "Nothing to see yet" in person().get("/admin/").content.decode()


def test_the_parts_are_the_same_as_on_the_page_and_say_the_servers_time(admin: Client, cluster: Cluster) -> None:
    cluster.model("tiny")
    answer = admin.get("/admin/overview/parts")
    assert "no-store" in answer.headers["Cache-Control"]
    assert answer.headers["X-Llmgw-Now"].startswith("20")
    parts = answer.content.decode()
    assert "<html" not in parts
    page = admin.get("/admin/").content.decode()
    for part in ("traffic", "models", "replicas", "nodes", "jobs", "use", "hint"):
        assert f'data-part="{part}"' in parts
        assert f'data-part="{part}"' in page


def test_a_look_costs_a_bounded_number_of_queries(
    admin: Client, cluster: Cluster, django_assert_max_num_queries: Any
) -> None:
    for n in range(5):
        cluster.model(f"model-{n}")
        jobs.open(kind="serve", subject=f"job-{n}", args={}, actor="user:root")
    with django_assert_max_num_queries(22):  # 2 for the session, 16 cluster, 2 jobs, 2 requests
        admin.get("/admin/overview/parts")


def test_names_from_outside_are_text(admin: Client, cluster: Cluster) -> None:
    jobs.open(kind="serve", subject="<script>x</script>", args={}, actor="<b>me</b>")
    page = admin.get("/admin/").content.decode() + admin.get("/admin/jobs").content.decode()
    assert "<script>x" not in page
    assert "<b>me" not in page
    assert "&lt;script&gt;x" in page
