"""`llmgw node token|cordon|drain|uncordon` and `llmgw setup` against the real admin API of a live server."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from catalog.models import Event
from cluster.models import ClusterSetup, JoinToken, Node
from cluster.wire import CardReport, Hardware
from llmgw_site.lib.config import load
from llmgw_site.up.lock import Lock
from tests.cluster.rows import Machine
from tests.llmgw_site.cli.conftest import Llmgw

pytestmark = pytest.mark.django_db(transaction=True)
CARD = "GPU-1111"


def a_machine(name: str, *modules: str) -> Node:
    machine = Machine(name)
    hardware = Hardware(
        cores=8, memory_total=1 << 33, cards=(CardReport(uuid=CARD, name="Card", memory_total=1 << 34),)
    )
    machine.heartbeat(hardware=hardware)
    rows = [{"name": item, "state": "running", "code": "", "message": ""} for item in modules]
    Node.objects.filter(id=machine.node.id).update(modules=rows)
    return Node.objects.get(id=machine.node.id)


def test_a_node_is_shown_with_its_modules_cards_and_maintenance(llmgw: Llmgw) -> None:
    node = a_machine("alpha", "edge", "router")
    unavailable = {"name": "controller", "state": "unavailable", "code": "store_not_shared", "message": "no store"}
    Node.objects.filter(id=node.id).update(modules=[*node.modules, unavailable], roles=["edge"])
    assert llmgw("node", "cordon", "alpha", "--reason", "new disk").code == 0
    shown = llmgw("node", "show", "alpha").out
    for text in (
        "edge, router, controller (unavailable: store_not_shared)",
        "cordoned: new disk",
        "16.0 GiB",
        "GPU-1111",
    ):
        assert text in shown, text
    listed = llmgw("node", "list").out
    for text in ("alpha", "online", "edge, router", "cordoned: new disk", "http://127.0.0.1:1"):
        assert text in listed, text


def test_a_node_is_cordoned_drained_and_taken_back_each_with_its_reason(llmgw: Llmgw) -> None:
    node = a_machine("alpha")
    assert "being drained" in llmgw("node", "drain", "alpha", "--reason", "new memory").out
    node.refresh_from_db()
    assert (node.maintenance, node.maintenance_why) == ("drained", "new memory")
    assert "(user root)" in node.maintenance_by
    assert llmgw("node", "uncordon", node.id, "--json").json["maintenance"] == ""
    assert Event.objects.filter(kind="node_drained", why="new memory").exists()


def test_a_node_gets_labels_and_a_fabric_and_loses_them(llmgw: Llmgw) -> None:
    node = a_machine("alpha")
    assert "node alpha has the labels rack=1, zone=b" in llmgw("node", "label", "alpha", "zone=b", "rack=1").out
    assert (
        "node alpha has the labels zone=" in llmgw("node", "label", "alpha", "rack-", "zone=", "--reason", "moved").out
    )
    assert llmgw("node", "label", "alpha", "zone").code == 2
    wrong = llmgw("node", "label", "alpha", "zone=b c")
    assert (wrong.code, "no value of the label zone" in wrong.err) == (1, True)
    assert "is on fabric ib-1" in llmgw("node", "fabric", "alpha", "ib-1").out
    shown = llmgw("node", "show", "alpha").out
    assert "ib-1" in shown
    assert "is on no fabric" in llmgw("node", "fabric", "alpha").out
    node.refresh_from_db()
    assert (node.labels, node.fabric) == ({"zone": ""}, "")


def test_what_a_card_is_out_for_and_what_others_hold_of_it_is_shown(llmgw: Llmgw) -> None:
    machine = Machine("alpha")
    cards = (
        CardReport(uuid="GPU-1", name="Card", memory_total=80 << 30, memory_used=79 << 30, memory_foreign=79 << 30),
        CardReport(uuid="GPU-2", name="Card", memory_total=80 << 30, problem="it has fallen off the bus"),
    )
    machine.heartbeat(hardware=Hardware(cores=8, memory_total=1 << 33, cards=cards))
    shown = " ".join(llmgw("node", "show", "alpha").out.split())
    assert "79.0 GiB" in shown
    assert "it has fallen off the bus" in shown


def test_a_single_card_is_cordoned(llmgw: Llmgw) -> None:
    node = a_machine("alpha")
    assert (
        f"card {CARD} of node alpha is cordoned"
        in llmgw("node", "cordon", "alpha", "--card", CARD, "--reason", "hot").out
    )
    node.refresh_from_db()
    assert (node.maintenance, node.cards_maintenance[CARD]["why"]) == ("", "hot")
    assert "card 0 cordoned: hot" in llmgw("node", "list").out
    unknown = llmgw("node", "cordon", "alpha", "--card", "GPU-9")
    assert (unknown.code, "GPU-9" in unknown.err) == (1, True)
    llmgw("node", "uncordon", "alpha", "--card", CARD)
    node.refresh_from_db()
    assert node.cards_maintenance == {}


@pytest.mark.parametrize("verb", ["cordon", "drain", "uncordon", "remove", "show"])
def test_a_node_that_is_not_there_ends_with_4(verb: str, llmgw: Llmgw) -> None:
    assert llmgw("node", verb, "nobody").code == 4


def test_a_join_token_is_one_command_on_standard_output(llmgw: Llmgw) -> None:
    made = llmgw("node", "token", "--uses", "3", "--hours", "2")
    assert made.code == 0
    words = made.out.split()
    assert words[:3] == ["llmgw", "node", "join"]
    assert words[3].startswith("llmgw-join.")
    assert "3 machines" in made.err
    token = JoinToken.objects.get()
    assert token.uses_allowed == 3
    listed = llmgw("node", "token", "--list").out
    assert token.id in listed
    assert "open" in listed
    assert words[3] not in listed
    assert llmgw("node", "token", "--revoke", token.id).code == 0
    assert "revoked" in llmgw("node", "token", "--list").out
    assert llmgw("node", "token", "--revoke", "join_none").code == 4


def test_a_controller_that_no_other_machine_reaches_is_told(llmgw: Llmgw) -> None:
    err = llmgw("node", "token").err
    assert "no other machine can reach" in err
    assert "LLMGW_NODE_HOST" in err
    assert "LLMGW_NODE_ADDRESS" in err


def test_a_token_for_scripts_is_json_alone(llmgw: Llmgw) -> None:
    made = llmgw("node", "token", "--json").json
    assert made["token"] in made["command"]
    assert llmgw("node", "token", "--uses", "0").code == 2


def test_a_folder_in_use_is_refused_before_a_token_is_spent(
    command: Llmgw, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LLMGW_DATA", str(tmp_path))
    held = Lock(load())
    held.take()
    refused = command("node", "join", "llmgw-join.not-even-read", "--controller", "http://127.0.0.1:1")
    held.release()
    assert (refused.code, "is in use by another `llmgw up`" in refused.err) == (1, True)


def test_the_setup_that_is_shown_can_be_applied_again(llmgw: Llmgw, tmp_path: Path) -> None:
    a_machine("ctl", "controller", "router", "edge")
    a_machine("gpu", "inference")
    shown = llmgw("setup", "show")
    assert (shown.code, shown.json) == (0, {"controller_tier": [], "nodes": {}, "version": 0})
    assert "nothing is set" in shown.err
    file = tmp_path / "setup.json"
    file.write_text(json.dumps({"controller_tier": ["controller", "data"], "nodes": {"gpu": ["inference"]}}))
    assert "gpu: inference" in llmgw("setup", "apply", str(file), "--reason", "as planned").out
    assert Event.objects.get(kind="cluster_setup_changed").why == "as planned"
    file.write_text(llmgw("setup", "show").out)
    assert json.loads(file.read_text())["version"] == 1
    assert llmgw("setup", "apply", str(file)).code == 0
    late = llmgw("setup", "apply", str(file))
    assert (late.code, "somebody else has changed" in late.err) == (1, True)
    file.write_text("{}")
    assert "nothing is set" in llmgw("setup", "apply", str(file)).out


def test_a_setup_comes_from_standard_input_too(llmgw: Llmgw, monkeypatch: pytest.MonkeyPatch) -> None:
    a_machine("ctl", "controller", "router", "edge")
    monkeypatch.setattr("sys.stdin", io.StringIO('{"controller_tier": ["controller", "router"]}'))
    assert llmgw("setup", "apply", "-", "--json").json["controller_tier"] == ["controller", "router"]


def test_a_setup_that_is_refused_changes_nothing_and_says_why(llmgw: Llmgw, tmp_path: Path) -> None:
    a_machine("ctl", "controller", "router", "edge")
    file = tmp_path / "setup.json"
    for text, why in [
        ('{"nodes": {"ctl": ["edge", "router"]}}', "without a controller"),
        ('{"nodes": {"nobody": []}}', "'nobody'"),
        ('{"controller_tier": ["king"]}', "'king'"),
    ]:
        file.write_text(text)
        done = llmgw("setup", "apply", str(file))
        assert (done.code, done.out) == (1, "")
        assert why in done.err
    assert not ClusterSetup.objects.filter(version__gt=0).exists()


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"\xff\xfe", None])
def test_a_file_that_is_no_setup_ends_with_2(text: bytes | None, llmgw: Llmgw, tmp_path: Path) -> None:
    file = tmp_path / "setup.json"
    if text is not None:
        file.write_bytes(text)
    done = llmgw("setup", "apply", str(file))
    assert (done.code, str(file) in done.err) == (2, True)
