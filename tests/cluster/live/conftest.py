"""The cluster that these tests share: whole before each of them, and made whole again after it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import pytest

from tests.cluster.harness.cluster import Cluster, running
from tests.cluster.harness.three import Three
from tests.cluster.harness.three import running as three_running
from tests.processes import fair, wait_for

C = TypeVar("C", bound=Cluster)


def _whole(shared: C) -> Iterator[C]:
    """Whole before a test and made whole after it; once, where one test follows another."""
    if not shared.left_whole:
        shared.until_whole()
    shared.left_whole = False
    yield shared
    shared.mend()
    shared.until_whole()
    shared.left_whole = True


@pytest.fixture(scope="package")
def shared_cluster() -> Iterator[Cluster]:
    yield from running()


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """Eight nodes: c1, e1, r1, r2, i1, i2, i3, x1, named after their roles."""
    yield from _whole(shared_cluster)


@pytest.fixture(scope="package")
def shared_three() -> Iterator[Three]:
    yield from three_running()


@pytest.fixture
def three(shared_three: Three) -> Iterator[Three]:
    """Three nodes: c1 is asked and decides, i1 and i2 run engines; no model is there."""
    yield from _whole(shared_three)


@pytest.fixture
def one_router(cluster: Cluster) -> Cluster:
    """Only r1 can be reached, so that it alone chooses, and has seen what happened before."""
    cluster["r2"].link.set("refuse")
    wait_for(cluster.answers, seconds=fair(30), what="an answer by r1")
    return cluster


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the cluster are slow and run on one worker; marks that nobody can forget."""
    for item in items:
        shared = {"shared_cluster", "shared_three"} & set(getattr(item, "fixturenames", ()))
        if shared:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.live("cluster" if "shared_cluster" in shared else "three"))
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(180))
