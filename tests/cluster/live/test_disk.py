"""A node whose disk is full: it serves on, and catches up when there is room again."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.harness.cluster import Cluster
from tests.cluster.live.test_chat import an_id
from tests.processes import fair, wait_for


@pytest.fixture
def small_disk(cluster: Cluster) -> Iterator[Path]:
    """A file system of 6 MB where the data of a further node will stand."""
    place = cluster.folder / "i4"
    place.mkdir(mode=0o700)
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m,mode=0700", "none", str(place)], capture_output=True
    ).returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield place
    finally:
        if "i4" in cluster.nodes:
            cluster.drop("i4")
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.prove
def test_f24_a_node_with_a_full_disk_serves_on_says_so_and_catches_up_when_there_is_room(
    cluster: Cluster, small_disk: Path
) -> None:
    node = cluster.extra("i4", "inference,edge")
    cluster.serve("tiny-full", profile={"nodes": ["i4"]})
    wait_for(lambda: cluster.answers("tiny-full", via="i4"), seconds=fair(30), what="an answer of i4", every=0.2)
    filler = small_disk / "filler"
    with filler.open(
        "wb", buffering=0
    ) as file:  # what a buffer still held would be written, in vain, when it is closed
        try:
            while True:
                file.write(b"x" * 65536)
        except OSError:
            pass
    names: list[str] = []

    def told() -> bool:
        problems = cluster.api().get("status")["problems"]
        return any(item["node"] == "i4" and "usage records cannot be written" in item["problem"] for item in problems)

    def asked_until_told() -> bool:  # what is left of the last page of its file takes some lines more
        names.append(an_id())
        assert cluster.outcome("tiny-full", via="i4", request_id=names[-1]) == "200"
        assert cluster.outcome("tiny-full") == "200"
        return len(names) >= 5 and told()

    wait_for(asked_until_told, seconds=fair(30), what="the problem of i4", every=0.3)
    key = cluster.api().post("keys", {"name": an_id(), "project": "default"})[
        "key"
    ]  # a snapshot that cannot be written
    time.sleep(3)  # a few heartbeats on the full disk
    assert cluster.states()["i4"] == "online"
    assert len(node.engines("tiny-full")) == 1
    filler.unlink()
    wait_for(
        lambda: cluster.request("GET", "/v1/models", via="i4", token=key).status_code == 200,
        seconds=fair(15),
        what="the new key at i4",
        every=0.3,
    )
    assert node.missing() == ()
    name = an_id()
    assert cluster.outcome("tiny-full", via="i4", request_id=name) == "200"
    wait_for(
        lambda: {*names, name} <= {row["request_id"] for row in cluster.api().all("usage", page_size=500)},
        seconds=fair(15), what="the records of then and after", every=0.3,
    )  # fmt: skip
    wait_for(lambda: not told(), seconds=fair(15), what="the end of the problem", every=0.3)
