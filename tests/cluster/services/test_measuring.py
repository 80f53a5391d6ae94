"""Measured memory replaces what was estimated or declared, in what is reserved and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cluster import selectors
from cluster.models import Measurement, Replica
from cluster.services import apply, measuring
from cluster.wire import CardReport, EngineBuild, ReplicaReport
from llmgw_site.lib.units import GIB, MIB
from tests.cluster.rows import HARDWARE, Machine, a_model_row

pytestmark = pytest.mark.django_db


def planned() -> None:
    now = selectors.database_now()
    plan, _ = selectors.statuses(selectors.world(now), now)
    apply.commit(plan)


def ready(row: Replica, memory: int, **fields: Any) -> ReplicaReport:
    now = selectors.database_now()
    values = {"ready_at": now - 100, "last_used_at": now, "memory": memory, "state": "ready", "pid": 1, **fields}
    return ReplicaReport(replica_id=row.id, generation=row.generation, **values)


def later(seconds: float = 0.0) -> Any:
    return selectors.from_unix(selectors.database_now()) + timedelta(seconds=seconds)


def reserved_now() -> int:
    return selectors.world().models[0].profiles[0].memory


def test_what_was_measured_and_a_tenth_is_reserved_and_the_engine_is_told_as_before() -> None:
    machine = Machine()
    machine.heartbeat()
    a_model_row(profile={"memory": 2 * GIB})
    planned()
    row = Replica.objects.get()
    assert (row.reserved, reserved_now()) == (2 * GIB, 2 * GIB)
    machine.heartbeat(ready(row, 500 * MIB))
    assert measuring.record(later()) == 1
    assert reserved_now() == 550 * MIB
    digest, serve = selectors.world().models[0].profiles[0].digest, selectors.picture()[1][row.profile_id or ""]
    assert (digest, serve.memory) == (row.digest, 2 * GIB)  # nothing restarts, and its caches stay as large
    row.model.replicas = 2
    row.model.save()
    planned()
    assert Replica.objects.exclude(id=row.id).get().reserved == 550 * MIB


def test_it_grows_with_what_is_seen_and_never_falls() -> None:
    machine = Machine()
    machine.heartbeat()
    a_model_row()
    planned()
    row = Replica.objects.get()
    for seen, kept in ((300 * MIB, 300), (400 * MIB, 400), (100 * MIB, 400)):
        machine.heartbeat(ready(row, seen))
        measuring.record(later())
        assert Measurement.objects.get().memory == kept * MIB
    assert measuring.record(later()) == 0


@pytest.mark.parametrize(
    "fields", [{"last_used_at": None}, {"ready_at": 0.0}, {"memory": None}], ids=["not used", "just ready", "not told"]
)
def test_an_engine_that_has_not_worked_for_a_while_counts_for_nothing(fields: dict[str, Any]) -> None:
    machine = Machine()
    machine.heartbeat()
    a_model_row()
    planned()
    if "ready_at" in fields:
        fields = {"ready_at": selectors.database_now()}
    machine.heartbeat(ready(Replica.objects.get(), **{"memory": 300 * MIB, **fields}))
    assert measuring.record(later()) == 0


def test_two_replicas_that_share_the_pages_of_a_file_count_for_nothing() -> None:
    machine = Machine()
    machine.heartbeat()
    a_model_row(replicas=2, profile={"memory": GIB})
    planned()
    rows = list(Replica.objects.all())
    assert len(rows) == 2
    machine.heartbeat(*(ready(row, 200 * MIB) for row in rows))
    assert measuring.record(later()) == 0


def test_what_nothing_runs_as_any_more_is_forgotten_in_time() -> None:
    Measurement.objects.create(digest="d", memory=1, replica_id="r", measured_at=later())
    assert measuring.prune(later()) == 0
    assert measuring.prune(later(31 * 86_400)) == 1


def test_what_ran_a_moment_ago_is_remembered_however_long_ago_it_took_the_most() -> None:
    """A model on demand that rests is reserved what it was seen to take when it comes up again."""
    machine = Machine()
    machine.heartbeat()
    a_model_row()
    planned()
    machine.heartbeat(ready(Replica.objects.get(), 300 * MIB))
    assert measuring.record(later()) == 1
    for day in range(1, 41):
        assert measuring.record(later(day * 86_400)) == 0
    Replica.objects.all().delete()
    assert measuring.prune(later(41 * 86_400)) == 0
    assert Measurement.objects.get().memory == 300 * MIB
    assert measuring.prune(later(71 * 86_400)) == 1


def test_f09_a_card_that_others_use_is_out_of_placement_and_back_when_it_is_freed() -> None:
    machine = Machine("gpu")
    profile = {"gpus_per_node": 1, "card_memory": 40 * GIB, "memory": GIB}
    a_model_row("large", profile=profile)

    def beat(**card: Any) -> None:
        cards = (CardReport(uuid="GPU-1", name="H100", memory_total=80 * GIB, **card),)
        machine.heartbeat(hardware=replace(HARDWARE, cards=cards))

    def why() -> str:
        now = selectors.database_now()
        plan, _ = selectors.statuses(selectors.world(now), now)
        return " ".join(wait.message for wait in plan.waits)

    beat(memory_foreign=79 * GIB)
    assert "79.0 GiB held by other programs" in why()
    beat(problem="Xid 79 in the kernel's log")
    assert "Xid 79" in why()
    beat(memory_foreign=0)
    assert why() == ""
    planned()
    row = Replica.objects.get()
    assert (row.serve["cards"], row.serve["card_memory"]) == (["GPU-1"], [40 * GIB])


def test_a_card_way_whose_memory_is_not_declared_is_estimated_with_its_layers() -> None:
    facts = {"kind": "model", "bytes": GIB, "layers": 10, "heads": 8, "heads_kv": 8, "key_length": 64, "value_length": 64,
             "embedding": 512, "vocabulary": 1000, "parameters": 10**9}  # fmt: skip
    a_model_row(facts=facts, profile={"gpus_per_node": 2, "memory": 0, "context": 1024})
    found = selectors.world().models[0].profiles[0]
    assert GIB < found.card_memory < 4 * GIB
    assert 0 < found.layer < GIB // 5
    assert 0 < found.memory < GIB + 512 * MIB


def test_layers_are_divided_as_they_were_planned_also_where_a_measurement_was_small() -> None:
    """What each card gets, what of it is for no layer, and how many layers lie there must be of the same plan."""
    machine = Machine("gpu")
    cards = (
        CardReport(uuid="GPU-1", name="L4", memory_total=24 * GIB, memory_foreign=0),
        CardReport(uuid="GPU-2", name="L4", memory_total=24 * GIB, memory_foreign=10 * GIB),
    )
    machine.heartbeat(hardware=replace(HARDWARE, cards=cards))
    facts = {"kind": "model", "bytes": 64 * MIB, "layers": 12, "heads": 8, "heads_kv": 8, "key_length": 64,
             "value_length": 64, "embedding": 512, "vocabulary": 1000, "parameters": 10**8}  # fmt: skip
    row = a_model_row("m", facts=facts, profile={"gpus_per_node": 2, "memory": GIB, "context": 256, "slots": 1})
    digest = selectors.world().models[0].profiles[0].digest
    Measurement.objects.create(digest=digest, memory=GIB, card_memory=300 * MIB, replica_id="r", measured_at=later())
    profile = selectors.world().models[0].profiles[0]
    assert profile.card_base < selectors.picture()[1][profile.id].card_base  # less than was estimated
    planned()
    told = Replica.objects.get(model=row).serve
    assert told["card_base"] == profile.card_base
    assert sum(told["card_layers"]) == 13  # twelve and the output layer
    first, last = told["card_layers"]
    assert 1 <= first < last  # the card that another program fills gets the smaller part
    assert told["card_memory"][0] == told["card_base"] + first * profile.pieces.size
    assert told["card_memory"][1] == told["card_base"] + last * profile.pieces.size + profile.pieces.extra


def test_where_the_driver_does_not_tell_whose_memory_it_is_what_replicas_do_not_hold_is_others() -> None:
    machine = Machine("gpu")
    card = CardReport(uuid="GPU-1", name="H100", memory_total=80 * GIB, memory_used=10 * GIB)
    machine.heartbeat(hardware=replace(HARDWARE, cards=(card,)))
    a_model_row("large", profile={"gpus_per_node": 1, "card_memory": 40 * GIB, "memory": GIB})
    assert selectors.world().nodes[0].cards[0].foreign == 10 * GIB
    planned()
    for used, foreign in ((10, 0), (50, 10)):  # it loads; then it has what it holds, and the others still have theirs
        card = replace(card, memory_used=used * GIB)
        machine.heartbeat(hardware=replace(HARDWARE, cards=(card,)))
        assert selectors.world().nodes[0].cards[0].foreign == foreign * GIB


def test_f68_one_of_eight_cards_with_errors_is_out_alone_and_is_named() -> None:
    machine = Machine("gpu")
    cards = [CardReport(uuid=f"GPU-{n}", name="H100", memory_total=80 * GIB, memory_foreign=0) for n in range(8)]
    cards[5] = replace(cards[5], problem="2 uncorrectable memory errors (ECC)")
    machine.heartbeat(hardware=replace(HARDWARE, cards=tuple(cards)))
    a_model_row("large", replicas=8, profile={"gpus_per_node": 1, "card_memory": 60 * GIB, "memory": 64 * MIB})
    planned()
    used = {uuid for row in Replica.objects.all() for uuid in row.serve["cards"]}
    assert used == {f"GPU-{n}" for n in range(8) if n != 5}
    now = selectors.database_now()
    plan, _ = selectors.statuses(selectors.world(now), now)
    assert len(plan.waits) == 1
    cards[5] = replace(cards[5], problem="")
    machine.heartbeat(
        *(ReplicaReport(replica_id=row.id, generation=1, state="ready") for row in Replica.objects.all()),
        hardware=replace(HARDWARE, cards=tuple(cards)),
    )
    planned()
    assert Replica.objects.filter(run=True).count() == 8


def test_f19_another_number_of_cards_replaces_the_replica_and_is_never_silently_old() -> None:
    machine = Machine("gpu")
    cards = tuple(CardReport(uuid=f"GPU-{n}", name="L4", memory_total=24 * GIB, memory_foreign=0) for n in range(4))
    machine.heartbeat(hardware=replace(HARDWARE, cards=cards))
    model = a_model_row("m", profile={"gpus_per_node": 1, "card_memory": 16 * GIB, "memory": 64 * MIB})
    planned()
    row = Replica.objects.get()
    machine.heartbeat(ready(row, 64 * MIB), hardware=replace(HARDWARE, cards=cards))
    model.profiles.update(gpus_per_node=2)
    planned()
    (new,) = Replica.objects.exclude(id=row.id)
    assert len(new.serve["cards"]) == 2
    assert not {*new.serve["cards"]} & {*row.serve["cards"]}


@pytest.mark.parametrize("engine", ["llama.cpp", "vllm"])
def test_measured_memory_of_cards_is_reserved_except_of_an_engine_that_takes_all_it_is_given(engine: str) -> None:
    machine = Machine("gpu")
    cards = tuple(CardReport(uuid=f"GPU-{n}", name="L4", memory_total=24 * GIB, memory_foreign=0) for n in range(2))
    way = {"gpus_per_node": 2} if engine == "llama.cpp" else {"tp": 2}
    builds = (EngineBuild(kind=engine, version="1"),)
    hardware = replace(HARDWARE, cards=cards)
    machine.heartbeat(hardware=hardware, engines=builds)
    a_model_row("m", profile={**way, "engine": engine, "card_memory": 30 * GIB, "memory": GIB})
    planned()
    report = ready(Replica.objects.get(), 64 * MIB, card_memory=20 * GIB)
    machine.heartbeat(report, hardware=hardware, engines=builds)
    assert Replica.objects.get().card_memory == 20 * GIB
    assert measuring.record(later()) == 1
    found = selectors.world().models[0].profiles[0]
    assert found.card_memory == (22 * GIB if engine == "llama.cpp" else 30 * GIB)
    assert found.memory == 64 * MIB + 64 * MIB // 10
    machine.heartbeat(replace(report, card_memory=None), hardware=hardware, engines=builds)
    assert measuring.record(later()) == 0  # not told once is no reason to forget
