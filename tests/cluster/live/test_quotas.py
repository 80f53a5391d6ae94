"""Quotas on real nodes: a limit refuses with its sums, and what is borrowed is given back to whom it is guaranteed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from llmgw_site.cli.client import part
from tests.cluster.harness.three import Three
from tests.processes import fair, wait_for

Team = Callable[..., str]


@pytest.fixture
def team(three: Three) -> Iterator[Team]:
    """A team with a quota, by name; gone when the test is over, with its models."""
    api, made = three.api(), list[dict[str, Any]]()
    organisation = api.post("organisations", {"name": "acme"})

    def make(name: str, **amounts: Any) -> str:
        made.append(api.post("teams", {"name": name, "organisation": organisation["id"]}))
        api.put(f"quotas/{part(name)}", amounts)
        return name

    yield make
    for row in api.all("models"):
        three.remove_model(row["name"])
    for row in made:
        api.delete(f"teams/{row['id']}")
    api.delete(f"organisations/{organisation['id']}")


def test_a_limit_stops_a_model_before_it_starts_and_a_request_is_told_the_sums(three: Three, team: Team) -> None:
    search = team("search", limit={"cores": 1})
    three.model("tiny", replicas=1, team=search)
    wait_for(lambda: len(three.ready("tiny")) == 1, seconds=fair(30), what="the first model")
    three.model("second", team=search)
    began = time.monotonic()
    answer = three.chat("second", timeout=60)
    assert time.monotonic() - began < fair(30)
    assert answer.status_code == 503, answer.text
    error = answer.json()["error"]
    assert error["code"] == "model_not_ready"
    said = "the team search may have at most 1 core, it holds 1, and one more replica of second takes 1"
    assert said in error["message"]
    assert "tiny" not in error["message"], "who asks is not told what else the team runs"
    assert three.replicas("second") == []
    three.api().put("quotas/search", {"limit": {"cores": 2}})
    wait_for(lambda: three.chat("second", timeout=60).status_code == 200, seconds=fair(60), what="an answer")
    (row,) = three.api().all("quotas")
    assert (row["held"]["cores"], row["limit"]) == (2, {"cores": 2})


@pytest.mark.prove
def test_what_is_borrowed_is_given_back_when_its_guarantee_is_asked_for(three: Three, team: Team) -> None:
    cores = sum(row["hardware"]["cores"] for row in three.api().all("nodes") if row["name"] in ("i1", "i2"))
    three.model(
        "tiny", replicas=cores, max_replicas=cores, priority_class="critical", team=team("others", limit={"cores": 999})
    )
    wait_for(lambda: len(three.ready("tiny")) == cores, seconds=fair(60), what="all cores to be in use")
    owner = team("search", guarantee={"cores": 1})
    three.model("second", replicas=1, team=owner)
    wait_for(lambda: len(three.ready("second")) == 1, seconds=fair(60), what="what is guaranteed")
    wait_for(lambda: three.answers("second", via="c1"), seconds=fair(15), what="an answer")
    assert len(three.ready("tiny")) == cores - 1
    held = {row["name"]: row["held"]["cores"] for row in three.api().all("quotas")}
    assert held == {"others": cores - 1, "search": 1}
