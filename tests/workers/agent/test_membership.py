"""The whole agent as a node of a cluster: nudges, several controllers, the map, roles, removal. No engine runs here."""

from __future__ import annotations

import time
from collections.abc import Iterator

import orjson
import pytest

from cluster.domain.modules import MapFile, MapNode, ModuleMap, ModuleReport, ModulesFile
from cluster.wire import from_dict
from tests.processes import fair, wait_for
from tests.workers.agent.node import NODE_ID, Controller, Node

pytestmark = pytest.mark.slow


@pytest.fixture
def second() -> Iterator[Controller]:
    controller = Controller()
    controller.start()
    try:
        yield controller
    finally:
        controller.stop()


def a_map(version: str, *controllers: str) -> ModuleMap:
    nodes = [
        MapNode(
            node_id=f"node_c{number}", name=f"c{number}", address=url, public_key="00" * 32,
            modules=(ModuleReport(name="controller"),),
        )
        for number, url in enumerate(controllers)
    ]  # fmt: skip
    me = MapNode(node_id=NODE_ID, name="me", address="http://127.0.0.1:1", public_key="00" * 32)
    return ModuleMap(version=version, made_at=1.0, nodes=(*nodes, me))


def map_file(node: Node) -> MapFile | None:
    path = node.data / "cluster" / "module-map.json"
    return from_dict(MapFile, orjson.loads(path.read_bytes())) if path.exists() else None


def modules(node: Node) -> dict[str, str]:
    found = from_dict(ModulesFile, orjson.loads((node.data / "cluster" / "modules.json").read_bytes()))
    return {item.name: item.state for item in found.modules}


def start(node: Node, **environ: str) -> None:
    """Started, connected, and with nothing more to say by itself."""
    node.start_agent(**environ)
    wait_for(lambda: node.controller.connections == 1, what=f"a websocket; {node.tail}")
    wait_for(lambda: node.controller.beats and node.controller.beats[-1].hardware.cores, what="the first readings")
    quiet(node)


def quiet(node: Node) -> None:
    """Until no heartbeat has come for a moment, where they are rare: that nothing comes can only be waited for."""
    before = -1
    while node.controller.heartbeat > 10 and len(node.controller.beats) != before:
        before = len(node.controller.beats)
        time.sleep(0.3)


def turned_away(node: Node, times: int) -> None:
    """Until so many further heartbeats got the answer that the controller gives now."""
    before = node.controller.turned_away
    wait_for(lambda: node.controller.turned_away >= before + times, what=f"heartbeats; {node.tail}")


def test_a_nudge_makes_a_change_known_in_under_a_second_between_rare_heartbeats(node: Node) -> None:
    node.controller.heartbeat = 600.0
    start(node)
    took = []
    for version in ("e:1", "e:2", "e:3"):
        node.controller.map = a_map(version)
        began = time.monotonic()
        node.controller.nudge(reason="map")
        wait_for(lambda: (found := map_file(node)) and found.map.version == version, what=version)  # noqa: B023
        took.append(time.monotonic() - began)
    assert min(took) < fair(1.0)  # a busy machine may stand still for a second


def test_a_nudge_takes_a_removed_node_out_of_the_map_before_any_answer(node: Node) -> None:
    node.controller.heartbeat, node.controller.map = 600.0, a_map("e:1", "http://127.0.0.1:2")
    start(node)
    node.controller.status = 500
    node.controller.nudge(reason="removed", removed=("node_c0",))
    wait_for(lambda: (found := map_file(node)) and found.map.removed == ("node_c0",))
    found = map_file(node)
    assert found is not None
    assert [item.name for item in found.map.nodes] == ["me"]


def test_a_dead_controller_is_followed_by_the_next_one_in_seconds(node: Node, second: Controller) -> None:
    node.controller.heartbeat = second.heartbeat = 600.0
    start(node, LLMGW_CONTROLLERS=f"{node.controller.url},{second.url}")
    assert second.beats == []
    node.controller.stop()
    wait_for(lambda: second.connections == 1 and second.beats, what=f"the next one; {node.tail}")


def test_a_controller_that_only_the_map_names_takes_over(node: Node, second: Controller) -> None:
    node.controller.map = a_map("e:1", second.url)
    start(node)
    node.controller.stop()
    wait_for(lambda: second.connections == 1 and second.beats, what=f"the next one; {node.tail}")
    assert second.beats[-1].map_version == "e:1"


def test_f06_heartbeats_go_on_by_themselves_after_errors_of_the_controller(node: Node) -> None:
    start(node)
    node.controller.status = 500
    turned_away(node, 4)
    node.controller.beats.clear()
    node.controller.status = 200
    assert wait_for(lambda: len(node.controller.beats) >= 2, what=f"heartbeats; {node.tail}")


def test_a_restarted_agent_knows_its_peers_before_the_first_answer(node: Node) -> None:
    node.controller.map = a_map("e:1", "http://127.0.0.1:2")
    start(node)
    node.end_agent()
    node.controller.status = 500
    node.start_agent()
    turned_away(node, 1)
    assert (found := map_file(node)) is not None
    assert found.map == node.controller.map
    node.controller.status = 200
    wait_for(lambda: node.controller.beats and node.controller.beats[0].map_version == "e:1", what="its first report")


def test_roles_of_the_setup_are_followed_with_the_next_heartbeat_and_told_at_once(node: Node) -> None:
    node.controller.heartbeat = 600.0
    start(node)
    assert modules(node)["inference"] == "running"
    node.controller.roles = ("edge", "cloud")
    node.controller.nudge(reason="setup")
    wait_for(lambda: modules(node).get("cloud") == "running")
    assert modules(node)["inference"] == "stopped"
    told = wait_for(lambda: any(item.name == "cloud" for item in node.controller.beats[-1].modules))
    assert told
    assert "inference" in node.controller.beats[-1].roles


def test_a_switch_on_the_node_is_told_at_once(node: Node) -> None:
    node.controller.heartbeat = 600.0
    start(node)
    (node.data / "node" / "switches.json").write_text('{"modules": {"router": false}}')
    assert wait_for(
        lambda: any((m.name, m.state) == ("router", "stopped") for m in node.controller.beats[-1].modules),
        what=node.tail,
    )


def test_a_removed_node_puts_its_files_aside_and_says_no_word_more(node: Node) -> None:
    node.controller.map = a_map("e:1")
    start(node)
    node.controller.status, node.controller.error = 401, "node_removed"
    aside = node.data / "removed" / NODE_ID
    wait_for(lambda: (aside / "identity.json").exists(), what=node.tail)
    assert set(modules(node).values()) <= {"stopped", "unavailable"}
    assert map_file(node) is None
    wait_for(lambda: node.controller.connections == 0, what="the websocket to end")
    node.controller.beats.clear()
    node.controller.status = 200
    time.sleep(0.6)  # that nothing comes can only be waited for: a node of the cluster says six words in that time
    assert node.controller.beats == []
    assert node.agent is not None
    assert node.agent.poll() is None
    assert node.end_agent() == 0
    assert node.start_agent().wait(60) != 0
    assert "llmgw node join" in node.tail


def test_an_unsigned_word_of_removal_changes_nothing(node: Node) -> None:
    start(node)
    node.controller.sign_with, node.controller.status, node.controller.error = None, 401, "node_removed"
    turned_away(node, 2)  # who says a second word has not left at the first answer
    node.controller.sign_with = b"\x00" * 32
    turned_away(node, 2)
    assert not (node.data / "removed").exists()
