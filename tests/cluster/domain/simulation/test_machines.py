"""The made-up nodes behave as real ones do, for otherwise the runs prove nothing."""

from __future__ import annotations

from typing import Any

from cluster.domain.simulation.case import Case, Habits, Happening, Load
from cluster.domain.simulation.run import Simulation
from cluster.domain.states import NodeState, ReplicaState
from cluster.domain.types import Klass, ModelView
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_card, a_model, a_node, a_profile


def running(model: ModelView, *, habits: Habits, happenings: tuple[Happening, ...] = (), **fields: Any) -> Simulation:
    nodes = fields.pop("nodes", (a_node(), a_node("two")))
    case = Case(
        name="case", tick=10.0, nodes=nodes, models=(model,), habits={model.name: habits}, happenings=happenings,
        **fields,
    )  # fmt: skip
    return Simulation(case)


def to(simulation: Simulation, moment: float) -> Simulation:
    while simulation.moment < moment:
        simulation.now += 10.0
        simulation.step()
    return simulation


def state(simulation: Simulation) -> ReplicaState:
    (replica,) = [item for item in simulation.replicas.values() if item.run]
    return replica.state


def test_a_replica_fetches_loads_and_is_ready_in_its_time() -> None:
    model = a_model(weights="w", weights_size=GIB)
    simulation = running(model, habits=Habits(fetch=100, start=60))
    assert state(to(simulation, 10)) is ReplicaState.PENDING
    assert state(to(simulation, 20)) is ReplicaState.STARTING
    assert state(to(simulation, 170)) is ReplicaState.STARTING
    assert state(to(simulation, 180)) is ReplicaState.READY
    assert any("w" in node.weights for node in simulation.machines.nodes.values())


def test_a_silent_node_is_stale_then_offline_and_its_replica_is_made_elsewhere() -> None:
    model, off = a_model(), Happening(at=200, kind="node_off", subject="one")
    simulation = running(model, habits=Habits(), happenings=(off,))
    (first,) = to(simulation, 190).replicas.values()
    assert first.node_id == "node_one"
    states = {moment: to(simulation, moment).machines.nodes["node_one"].state for moment in (280, 290, 490, 500)}
    assert [*states.values()] == [NodeState.ONLINE, NodeState.STALE, NodeState.STALE, NodeState.OFFLINE]
    ready = to(simulation, 600).replicas.values()
    assert {item.node_id for item in ready if item.state is ReplicaState.READY and item.run} == {"node_two"}


def test_an_engine_that_finds_its_card_taken_is_looked_at_again_and_started_elsewhere() -> None:
    """It restarts on its own card while another program takes that, and half a minute later there is another card."""
    model = a_model(profiles=(a_profile("gpu", cards=1, card_memory=20 * GIB),))
    nodes = (a_node("one", cards=(a_card("c0"),)), a_node("two", cards=(a_card("c1", problem="Xid 79"),)))
    happenings = (
        Happening(at=200, kind="model_restart", subject="small", values={"in_place": True}),
        Happening(at=210, kind="foreign", subject="one", values={"bytes": 22 * GIB}),
        Happening(at=300, kind="card_good", subject="two"),
    )
    simulation = running(model, habits=Habits(), nodes=nodes, happenings=happenings)
    (first,) = to(simulation, 250).replicas.values()
    assert (first.node_id, first.state, first.code) == ("node_one", ReplicaState.BACKOFF, "card_memory_taken")
    ready = [item for item in to(simulation, 500).replicas.values() if item.state is ReplicaState.READY]
    assert [item.node_id for item in ready] == ["node_two"]
    assert simulation.watch.found == []


def test_a_model_that_cannot_start_is_parked_after_five_starts_and_tried_again_when_asked() -> None:
    retry = Happening(at=1500, kind="model_retry", subject="small")
    simulation = running(a_model(), habits=Habits(start=10, breaks=1.0), happenings=(retry,))
    standing = to(simulation, 1490).models["mod_small"].standing
    assert standing.parked_at is not None
    assert standing.failures == 5
    started = simulation.figures.ops["start"]
    assert to(simulation, 1520).figures.ops["start"] == started + 1
    assert simulation.watch.found == []


def test_load_adds_replicas_and_quiet_takes_them_back() -> None:
    model = a_model(base=1, most=3)
    bursts = Load(kind="bursts", rate=2.0, low=0.0, period=7200, share=0.25)
    simulation = running(model, habits=Habits(load=bursts, start=20, work=8, slots=4), hours=2.0)
    assert len([item for item in to(simulation, 1700).replicas.values() if item.run]) == 3
    assert len([item for item in to(simulation, 5400).replicas.values() if item.run]) == 1
    assert simulation.watch.found == []


def test_a_model_on_demand_starts_at_the_first_request_and_rests_when_nobody_asks() -> None:
    model = a_model(base=0, most=1, klass=Klass.OPPORTUNISTIC, rest_after=300.0)
    bursts = Load(kind="bursts", rate=0.5, low=0.0, period=7200, share=0.1, shift=600)
    simulation = running(model, habits=Habits(load=bursts, start=20), hours=2.0)
    assert not to(simulation, 590).replicas
    assert state(to(simulation, 700)) is ReplicaState.READY
    assert not to(simulation, 2400).replicas
    assert simulation.demand.answered > 0


def test_memory_of_other_programs_takes_a_card_out_and_gives_it_back() -> None:
    cards = (a_card("GPU-0"),)
    happenings = (
        Happening(at=0, kind="foreign", subject="one", values={"bytes": 20 * GIB}),
        Happening(at=300, kind="foreign", subject="one", values={"bytes": 0}),
    )
    model = a_model(profiles=(a_profile(cards=1, card_memory=16 * GIB),))
    simulation = running(model, habits=Habits(), happenings=happenings, nodes=(a_node(cards=cards),))
    assert not to(simulation, 290).replicas
    assert simulation.figures.waits.keys() == {"no_card_memory_now"}
    assert state(to(simulation, 300)) is ReplicaState.PENDING


def test_a_second_planner_that_works_from_an_old_picture_does_no_harm() -> None:
    case = Case(
        name="two", tick=10.0, hours=0.5, twice=1.0,
        nodes=(a_node(), a_node("two"), a_node("three")), models=(a_model(base=3), a_model("other", base=2)),
    )  # fmt: skip
    simulation = Simulation(case)
    outcome = simulation.run()
    assert outcome.violations == ()
    assert len([item for item in outcome.world.replicas if item.run]) == 5
