"""Tests that share a running stack or cluster stay on one worker: two of them on two cores would spoil each other's times."""

from __future__ import annotations

import pytest


@pytest.mark.xdist_group("proof")
def test_a_group_is_told_to_the_workers(request: pytest.FixtureRequest) -> None:
    """pytest-xdist tells it by the end of a test's id; a pytest that it does not fit loses it without a word."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("groups need `--dist loadgroup`, as `make test` passes it")
    assert request.node.nodeid.endswith("@proof")
