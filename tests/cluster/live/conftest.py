"""The cluster that these tests share: whole before each of them, and made whole again after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.harness.cluster import Cluster, running
from tests.cluster.harness.three import Three
from tests.cluster.harness.three import running as three_running
from tests.processes import fair, wait_for


@pytest.fixture(scope="package")
def shared_cluster() -> Iterator[Cluster]:
    yield from running()


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """Eight nodes: c1, e1, r1, r2, i1, i2, i3, x1, named after their roles."""
    shared_cluster.until_whole()
    yield shared_cluster
    shared_cluster.mend()
    shared_cluster.until_whole()


@pytest.fixture(scope="package")
def shared_three() -> Iterator[Three]:
    yield from three_running()


@pytest.fixture
def three(shared_three: Three) -> Iterator[Three]:
    """Three nodes: c1 is asked and decides, i1 and i2 run engines; no model is there."""
    shared_three.until_whole()
    yield shared_three
    shared_three.mend()
    shared_three.until_whole()


@pytest.fixture
def one_router(cluster: Cluster) -> Cluster:
    """Only r1 can be reached, so that it alone chooses, and has seen what happened before."""
    cluster["r2"].link.set("refuse")
    wait_for(cluster.answers, seconds=fair(10), what="an answer by r1")
    return cluster


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the cluster are slow and run on one worker; marks that nobody can forget."""
    for item in items:
        shared = {"shared_cluster", "shared_three"} & set(getattr(item, "fixturenames", ()))
        if shared:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.xdist_group("cluster" if "shared_cluster" in shared else "three"))
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(180))
