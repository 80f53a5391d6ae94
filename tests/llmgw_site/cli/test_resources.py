"""`llmgw model resources` and the cards of `llmgw model add` against a real server."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.models import Model, Profile
from catalog.services import profiles
from cluster.models import Measurement, Replica
from cluster.selectors import database_now, world
from cluster.wire import CardReport, Hardware, ReplicaReport
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.units import GIB, MIB
from tests.cluster.rows import Machine, tick
from tests.llmgw_site.cli.conftest import Llmgw
from tests.rows import a_model

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_model_is_added_on_cards_and_moved_to_the_processor(llmgw: Llmgw) -> None:
    done = llmgw("model", "add", "m", "/w/m.gguf", "--gpus-per-node", "2", "--card-memory", "40GiB", "--card-class", "H100",
                 "--label", "zone=b", "--memory", "2GiB")  # fmt: skip
    assert done.code == 0, done.err
    profile = Profile.objects.get()
    assert (profile.gpus_per_node, profile.card_memory, profile.card_classes) == (2, 40 * GIB, ["H100"])
    assert profile.labels == {"zone": "b"}
    shown = llmgw("model", "resources", "m").out
    assert "40.0 GiB declared" in shown
    assert "2.0 GiB declared" in shown
    assert "H100, zone=b" in shown
    done = llmgw("model", "resources", "m", "--gpus-per-node", "0")
    assert (done.code, "uses no card" in done.err) == (1, True)
    done = llmgw("model", "resources", "m", "--gpus-per-node", "0", "--card-memory", "0", "--card-class", "any", "--label",
                 "any", "--threads", "2")  # fmt: skip
    assert done.code == 0, done.err
    profile.refresh_from_db()
    assert (profile.gpus_per_node, profile.card_memory, profile.card_classes, profile.labels, profile.threads) == (
        0, 0, [], {}, 2,
    )  # fmt: skip
    for words, nodes in ((("alpha", "--node", "beta"), ["alpha", "beta"]), (("any",), [])):
        done = llmgw("model", "resources", "m", "--node", *words)
        assert (done.code, "alpha, beta" in done.out) == (0, bool(nodes))
        profile.refresh_from_db()
        assert profile.nodes == nodes


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--tp", "2"), "write gpus_per_node=2"),
        (("--engine", "vllm", "--pp", "2"), "write tp=1 or more"),
        (("--engine", "vllm", "--gpus-per-node", "2", "--card-memory", "9GiB"), "write tp=2"),
        (("--gpus-per-node", "1"), "card_memory"),
    ],
)
def test_a_way_that_no_engine_knows_is_refused_with_what_to_write(
    llmgw: Llmgw, words: tuple[str, ...], told: str
) -> None:
    done = llmgw("model", "add", "m", "/w/m.gguf", *words)
    assert (done.code, told in done.err) == (1, True), done.err
    assert not Model.objects.exists()


def test_what_is_reserved_stands_beside_what_was_measured_with_a_warning(llmgw: Llmgw) -> None:
    machine = Machine("alpha")
    machine.heartbeat()
    a_model("tiny", profile={"memory": 300 * MIB, "threads": 1})
    tick()
    row, now = Replica.objects.get(), database_now()
    machine.heartbeat(ReplicaReport(replica_id=row.id, generation=1, state="ready", ready_at=now, memory=500 * MIB))
    shown = llmgw("model", "resources", "tiny", "--json").json
    assert [(item["memory"], item["memory_source"], item["memory_measured"]) for item in shown["profiles"]] == [
        (300 * MIB, "declared", None)
    ]
    assert [(item["node"], item["reserved"], item["memory"], item["cores"]) for item in shown["replicas"]] == [
        ("alpha", 300 * MIB, 500 * MIB, 1)
    ]
    assert "takes 500.0 MiB and holds 300.0 MiB" in shown["replicas"][0]["warning"]
    shares = [{"node_id": row.node_id, "memory": 300 * MIB, "cores": 1, "cards": [["GPU-1", 100 * MIB]]}]
    Replica.objects.filter(id=row.id).update(shares=shares, card_memory=200 * MIB)
    told = llmgw("model", "resources", "tiny", "--json").json["replicas"][0]["warning"]
    assert "takes 500.0 MiB and holds 300.0 MiB" in told
    assert "takes 200.0 MiB of its cards and holds 100.0 MiB" in told
    digest = world().models[0].profiles[0].digest
    Measurement.objects.create(digest=digest, memory=500 * MIB, replica_id=row.id, measured_at=row.created_at)
    shown = llmgw("model", "resources", "tiny", "--json").json
    assert [(item["memory"], item["memory_source"]) for item in shown["profiles"]] == [(550 * MIB, "measured")]
    assert "550.0 MiB measured" in llmgw("model", "resources", "tiny").out


def test_a_replica_on_cards_shows_what_it_holds_of_each(llmgw: Llmgw) -> None:
    cards = tuple(CardReport(uuid=f"GPU-{n}", name="L4", memory_total=24 * GIB, memory_foreign=0) for n in range(2))
    Machine("gpu").heartbeat(hardware=Hardware(cores=8, memory_total=64 * GIB, memory_available=60 * GIB, cards=cards))
    a_model("big", profile={"gpus_per_node": 2, "card_memory": 32 * GIB, "memory": GIB})
    tick()
    (found,) = llmgw("model", "resources", "big", "--json").json["replicas"]
    assert found["cards"] == {"GPU-0": 16 * GIB, "GPU-1": 16 * GIB}


def test_a_figure_beyond_every_node_is_refused_and_what_mends_it_is_not(llmgw: Llmgw) -> None:
    """1. nobody knows the nodes; 2. they are known, and one is away; 3. a profile that is too large already is made smaller; 4. it is
    switched off, for a node to come."""
    model = a_model("tiny", profile={"memory": GIB, "threads": 1})
    assert llmgw("model", "resources", "tiny", "--memory", "50TiB").code == 0  # 1
    assert llmgw("model", "resources", "tiny", "--memory", "1GiB").code == 0
    Machine("n1").heartbeat()
    for option, value, words in (("--memory", "999TiB", "999.0 TiB of memory"), ("--threads", "1000", "1000 threads")):
        done = llmgw("model", "resources", "tiny", option, value)  # 2
        assert done.code == 1
        assert words in done.err
        assert "n1" in done.err
    assert llmgw("model", "resources", "tiny", "--memory", "2GiB", "--priority", "3").code == 0
    Profile.objects.update(memory=50 << 40)
    assert llmgw("model", "resources", "tiny", "--priority", "4").code == 0  # 3
    assert llmgw("model", "resources", "tiny", "--memory", "40TiB").code == 0
    assert llmgw("model", "resources", "tiny", "--memory", "2GiB").code == 0
    profiles.update(actor="t", profile=model.profiles.get(), enabled=False, memory=50 << 40)  # 4


def test_cards_that_no_node_has_so_many_of_are_refused_where_there_are_some(llmgw: Llmgw) -> None:
    a_model("tiny", profile={"memory": GIB, "threads": 1})
    Machine("plain").heartbeat()
    assert (
        llmgw("model", "resources", "tiny", "--gpus-per-node", "8", "--card-memory", "1GiB").code == 0
    )  # for nodes to come
    assert llmgw("model", "resources", "tiny", "--gpus-per-node", "1").code == 0
    card = CardReport(uuid="GPU-1", name="L4", memory_total=24 * GIB, memory_used=0, memory_foreign=0)
    hardware = Hardware(cores=4, memory_total=16 * GIB, memory_available=12 * GIB, disk_free=GIB, cards=(card,))
    Machine("cards").heartbeat(hardware=hardware)
    done = llmgw("model", "resources", "tiny", "--gpus-per-node", "8")
    assert (done.code, "it has 1 (" in done.err) == (1, True)
    done = llmgw("model", "resources", "tiny", "--card-memory", "100GiB")
    assert (done.code, "its cards can give" in done.err) == (1, True)


def test_a_slip_of_a_name_or_a_unit_is_refused_with_what_there_is(llmgw: Llmgw) -> None:
    """1. a node that is not there; 2. one that has left stays until somebody takes it out; 3. bytes where more was meant."""
    model = a_model("tiny", profile={"memory": GIB, "threads": 1, "nodes": ["gone"]})
    for name in ("n1", "n2"):
        Machine(name).heartbeat()
    done = llmgw("model", "resources", "tiny", "--node", "n1", "--node", "nosuch")  # 1
    assert (done.code, "no node 'nosuch'" in done.err, "n1, n2" in done.err) == (1, True, True), done.err
    assert llmgw("model", "resources", "tiny", "--node", "gone", "--node", "n2", "--priority", "2").code == 0  # 2
    assert model.profiles.get().nodes == ["gone", "n2"]
    for option, words in (("--memory", "memory: 5 bytes"), ("--card-memory", "card_memory: 5 bytes")):  # 3
        done = llmgw("model", "resources", "tiny", option, "5")
        assert (done.code, words in done.err, "5GiB" in done.err) == (1, True, True), done.err
    assert model.profiles.get().memory == GIB


def test_a_new_profile_or_one_that_is_switched_on_names_only_nodes_that_there_are(llmgw: Llmgw) -> None:
    """1. nothing is known of any node; 2. a model is added; 3. a profile beside its first; 4. one is for nodes to come, and
    switched on when they are there."""
    assert llmgw("model", "add", "early", "/w/m.gguf", "--memory", "1GiB", "--node", "n1", "--disabled").code == 0  # 1
    Machine("n1").heartbeat()
    add = ("model", "add", "m", "/w/m.gguf", "--memory", "1GiB", "--node", "n1")
    done = llmgw(*add, "--node", "nosuch")  # 2
    assert (done.code, "no node 'nosuch'" in done.err) == (1, True), done.err
    assert not Model.objects.filter(name="m").exists()
    assert llmgw(*add).code == 0
    model = Model.objects.get(name="m")
    fields: dict[str, Any] = {"actor": "t", "model": model, "name": "late", "memory": GIB, "nodes": ["n2"]}
    with pytest.raises(Refused, match="no node 'n2'") as caught:  # 3
        profiles.add(**fields)
    assert (caught.value.code, caught.value.param) == ("unknown_node", "nodes")
    late = profiles.add(**fields, enabled=False)  # 4
    with pytest.raises(Refused, match="no node 'n2'"):
        profiles.update(actor="t", profile=late, enabled=True)
    Machine("n2").heartbeat()
    assert profiles.update(actor="t", profile=late, enabled=True).enabled


def test_the_profile_must_be_named_where_there_are_several(llmgw: Llmgw) -> None:
    model = a_model("tiny")
    Profile.objects.create(model=model, name="big", memory=GIB)
    done = llmgw("model", "resources", "tiny", "--threads", "2")
    assert (done.code, "default" in done.err, "big" in done.err) == (2, True, True)
    assert llmgw("model", "resources", "tiny", "--profile", "big", "--threads", "2").code == 0
    assert Profile.objects.get(name="big").threads == 2
