"""Weights on several nodes: one fetches them from the hub, another takes them from it while both are killed again and again; and
what two nodes serve is replaced and taken back while clients ask all the time."""

from __future__ import annotations

import hashlib
import logging
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from catalog.domain.spans import SEGMENT
from catalog.mirror.fetch import CONNECTIONS
from llmgw_site.cli.client import CliError
from llmgw_site.lib.units import MIB
from tests import tiny
from tests.cluster.harness.node import Node
from tests.cluster.harness.three import Three
from tests.e2e.fetch_kills import padded
from tests.e2e.test_update import FILE, NAME, NEW, OLD, REPO, Traffic, job
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.hub.serve import running
from tests.processes import fair, wait_for

log = logging.getLogger(__name__)
pytestmark = [pytest.mark.prove, pytest.mark.slow, pytest.mark.live("three"), pytest.mark.timeout(2400)]
SIZE, KILLS = 500 * 10**6, 20  # of each
RATE = 2 * 10**6
"""Bytes a second on each connection to the node that has the weights."""
PATIENT = {"LLMGW_STALE_AFTER": "60", "LLMGW_OFFLINE_AFTER": "240"}
"""A node whose agent was killed is not given up: what is tested is that it goes on."""


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running() as hub:
        yield hub


@pytest.fixture
def cluster(hub: Hub) -> Iterator[Three]:
    """c1 decides, d1 fetches from the hub, i1 and i2 run engines."""
    cluster = Three(**PATIENT, HF_ENDPOINT=hub.base, LLMGW_PRIVATE_ADDRESSES="1")
    try:
        cluster.start()
        cluster.extra("d1", "data")
        yield cluster
    finally:
        cluster.close()


def files(node: Node, ending: str = "") -> list[Path]:
    """Files of versions in a node's store: `.map` is there exactly while a file is not whole."""
    return list((node.data / "weights").glob(f"ver_*/files/*{ending}"))


def ended(cluster: Three, job_id: str) -> dict[str, Any] | None:
    """The job, if it has ended and somebody answers who knows it."""
    try:
        found = cluster.api().get(f"jobs/{job_id}")
    except CliError:
        return None
    return dict(found) if found["state"] not in ("queued", "running") else None


def test_f11_twenty_kills_of_who_gives_and_twenty_of_who_takes_cost_the_segments_on_their_way(
    cluster: Three, hub: Hub, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=__name__)
    seed = random.randrange(1 << 30)
    log.info("seed %d", seed)
    dice = random.Random(seed)
    source = tmp_path / "large-F16.gguf"
    sha256 = padded(source, SIZE, dice)
    hub.add(Repo("org/large-GGUF")).commit({source.name: source})
    giver = cluster["d1"]
    giver.link.slow(rate=RATE)

    args = {"source": ["org/large-GGUF"], "name": "large", "way": "processor"}
    opened = cluster.api().post("jobs", {"kind": "serve", "args": args})
    began = lambda: next((cluster[name] for name in ("i1", "i2") if files(cluster[name], ".map")), None)  # noqa: E731
    taker = wait_for(began, seconds=fair(120), what=f"the fetch between nodes: {giver.tail('agent')}")
    assert taker is not None
    fetched = hub.sent()
    moments = sorted(dice.uniform(0.02, 0.9) * SIZE for _ in range(2 * KILLS))
    for number, moment in enumerate(moments):
        wait_for(
            lambda moment=moment: giver.link.given >= moment,  # type: ignore[misc]
            seconds=fair(300),
            what=f"{moment:.0f} bytes: {taker.tail('agent')}",
        )
        node, service = ((taker, "agent"), (giver, "gateway"))[number % 2]
        node.kill(service)
        log.info("%s of %s killed at %.1f MB", service, node.name, giver.link.given / 1e6)
        node.start(service)
    assert files(taker, ".map"), "every kill was in the fetch"
    giver.link.slow()

    done = wait_for(partial(ended, cluster, opened["id"]), seconds=fair(300), what=taker.tail("agent"), every=0.2)
    assert done is not None
    assert done["state"] == "done", done
    assert done["result"]["answer"].strip() == tiny.TEXT
    (path,) = files(taker)  # and no part and no map beside it
    with path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == sha256
    assert hub.sent() == fetched, "what a node has is not asked of the hub again"
    twice = giver.link.given - SIZE
    log.info("%.1f MB twice; each was killed %d times", twice / 1e6, KILLS)
    # of a giver that dies only what the network swallows comes again: held to less than was promised
    assert 0 <= twice <= KILLS * CONNECTIONS * (SEGMENT + MIB)
    assert cluster.chat("large").status_code == 200


def replaced(cluster: Three, before: set[str]) -> bool:
    """Whether both nodes serve the model by replicas that were not there before."""
    return cluster.ready(NAME) == ["i1", "i2"] and not before & {row["id"] for row in cluster.replicas(NAME)}


def test_an_update_of_two_nodes_and_the_way_back_cost_no_request(cluster: Three, hub: Hub) -> None:
    old, new = (tiny.tiny_gguf(text=text).read_bytes() for text in (OLD, NEW))
    repo = hub.add(Repo(REPO))
    first = repo.commit({FILE: old})
    args = {"source": [REPO], "name": NAME, "replicas": 2, "slots": 2, "way": "processor"}
    made = job(cluster, "jobs", {"kind": "serve", "args": args})
    assert made["state"] == "done", made["message"]
    wait_for(lambda: cluster.ready(NAME) == ["i1", "i2"], seconds=fair(60), what="a replica on each node", every=0.2)
    before = {row["id"] for row in cluster.replicas(NAME)}

    newest = repo.commit({FILE: new})
    traffic = Traffic(cluster, clients=4)
    with traffic.flowing():
        wait_for(lambda: traffic.answers["old"] > 20, seconds=fair(60), what="traffic")
        for path, answers, commit, differs in (("update", "new", newest, []), ("rollback", "old", first, [FILE])):
            hub.seen.clear()
            done = job(cluster, f"models/{NAME}/{path}")
            assert done["state"] == "done", done["message"]
            count = traffic.answers[answers]
            wait_for(lambda: traffic.answers[answers] > count + 40, seconds=fair(60), what=f"answers after {path}")  # noqa: B023
            what = f"a new replica on each node after {path}, and the old ones to end"
            wait_for(partial(replaced, cluster, before), seconds=fair(60), what=what, every=0.2)
            before = {row["id"] for row in cluster.replicas(NAME)}
            (row,) = [row for row in cluster.api().get("updates") if row["name"] == NAME]
            assert (row["commit"], row["changed"]) == (commit, differs)
        assert hub.sent() == 0, "nothing is fetched on the way back"
    assert traffic.failed == []
    log.info("%s answered, none failed", dict(traffic.answers))
