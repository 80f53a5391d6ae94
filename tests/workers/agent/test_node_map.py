"""The module map on a node: known after a restart, replaced by newer ones only, never half-written."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from cluster.domain.modules import MapFile, MapNode, ModuleMap, ModuleReport
from cluster.wire import from_dict
from llmgw_site.lib import files
from workers.agent.node_map import NodeMap


def a_map(version: str, *names: str, controller: str = "") -> ModuleMap:
    nodes = tuple(
        MapNode(
            node_id=f"node_{name}", name=name, address=f"http://{name}:8880", public_key="00" * 32,
            modules=(ModuleReport(name="controller"),) if name in controller else (),
        )
        for name in names
    )  # fmt: skip
    return ModuleMap(version=version, made_at=1.0, nodes=nodes)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "module-map.json"


def keeper(path: Path) -> NodeMap:
    return NodeMap(path, lambda: 50.0)


def on_disk(path: Path) -> MapFile:
    return from_dict(MapFile, files.read_json(path))


def test_a_restarted_node_knows_its_peers_and_the_clusters_time_before_any_answer(path: Path) -> None:
    keeper(path).take(a_map("e:1", "a", "b", controller="b"), 3.0)
    again = keeper(path)
    assert (again.version, again.offset) == ("e:1", 3.0)
    assert again.controllers() == [("http://b:8880", "node_b")]
    assert on_disk(path).received_at == 50.0


@pytest.mark.parametrize(
    ("first", "second", "taken"),
    [
        ("e:1", "e:2", True),
        ("e:9", "e:10", True),
        ("e:2", "e:1", False),
        ("e:2", "e:2", False),
        ("e:2", "f:1", True),
        ("odd", "odd", False),
        ("odd", "other", True),
    ],
)
def test_only_a_newer_map_of_the_same_epoch_is_taken(path: Path, first: str, second: str, taken: bool) -> None:
    held = keeper(path)
    assert held.take(a_map(first, "a"), 0.0)
    assert held.take(a_map(second, "b"), 0.0) is taken
    assert held.version == on_disk(path).map.version == (second if taken else first)


def test_a_removed_node_is_gone_at_once_and_no_late_map_brings_it_back(path: Path) -> None:
    held = keeper(path)
    held.take(a_map("e:1", "a", "b"), 0.0)
    assert held.drop(["node_b", "node_x"], 0.0)
    found = on_disk(path).map
    assert ([node.name for node in found.nodes], found.removed) == (["a"], ("node_b",))
    held.take(a_map("e:2", "a", "b", "c"), 0.0)
    assert [node.name for node in on_disk(path).map.nodes] == ["a", "c"]
    assert not held.drop(["node_b"], 0.0)


def test_a_clock_that_was_set_is_told_to_the_gateway(path: Path) -> None:
    held = keeper(path)
    held.take(a_map("e:1", "a"), 0.0)
    held.keep(0.2)
    assert on_disk(path).offset == 0.0
    held.keep(-3600.0)
    assert on_disk(path).offset == -3600.0


def test_a_damaged_or_deleted_file_is_written_anew(path: Path) -> None:
    held = keeper(path)
    held.take(a_map("e:1", "a"), 0.0)
    for spoil in (lambda: path.write_text("{"), path.unlink):
        spoil()
        held.keep(0.0)
        assert on_disk(path).map.version == "e:1"
    path.write_text('{"map": 7}')
    assert keeper(path).map is None


def test_a_full_disk_costs_the_file_and_leaves_the_old_one_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = keeper(path)
    held.take(a_map("e:1", "a"), 0.0)

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomic", full)
        assert held.take(a_map("e:2", "b"), 0.0)
        assert held.version == "e:2"
        assert on_disk(path).map.version == "e:1"
    held.keep(0.0)
    assert on_disk(path).map.version == "e:2"
