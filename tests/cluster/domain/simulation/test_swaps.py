"""Models that push each other out for a long time leave nothing behind."""

from __future__ import annotations

import pytest

from cluster.domain.simulation.case import Case, Habits, Load
from cluster.domain.simulation.dice import Dice
from cluster.domain.simulation.run import Simulation
from cluster.domain.types import Klass
from llmgw_site.lib.units import GIB
from tests.cluster.builders import a_model, a_node, a_profile

REST = 300.0
PATIENT = Load(kind="none", rate=10.0)
"""None comes by itself, and nobody goes away."""


def test_f43_a_thousand_swaps_of_three_models_neither_hang_nor_leak() -> None:
    swaps(1_000, seed=43)


@pytest.mark.prove
@pytest.mark.parametrize("seed", range(8))
def test_f43_many_thousand_swaps(seed: int) -> None:
    swaps(4_000, seed=seed)


def swaps(count: int, *, seed: int) -> None:
    """Each time one of three is asked for, of which only one fits; often while another is still loading or draining."""
    models = tuple(
        a_model(
            name, base=0, most=1, klass=Klass.OPPORTUNISTIC, rest_after=REST,
            profiles=(a_profile(name, memory=5 * GIB, threads=3),),
        )
        for name in ("one", "two", "three")
    )  # fmt: skip
    habits = {model.name: Habits(load=PATIENT, start=10, work=4, slots=2) for model in models}
    simulation = Simulation(Case(name="swaps", tick=5.0, nodes=(a_node(),), models=models, habits=habits))
    dice, demand, answered = Dice(seed), simulation.demand, 0
    for number in range(count):
        asked = dice.pick(models)
        demand.backlog[asked.id] = demand.backlog.get(asked.id, 0.0) + 1.0
        answered += 1
        for _ in range(60):
            simulation.now += 5.0
            simulation.step()
            if demand.backlog[asked.id] < 1.0 or dice.chance(0.05):  # answered; or another is asked for meanwhile
                break
        else:
            pytest.fail(f"request {number}, for {asked.name}, was not answered within 5 min")
    for _ in range(int(2 * REST / 5)):
        simulation.now += 5.0
        simulation.step()
    assert demand.answered == pytest.approx(answered)
    assert simulation.watch.found == []
    assert simulation.replicas == {}
    assert simulation.claims == ()
    assert simulation.machines.engines == {}
    assert simulation.machines.preempted == set()
    assert {item.standing.asked_at for item in simulation.models.values()} == {None}
    assert simulation.figures.ops["preempted"] > count / 4
    assert simulation.figures.ops["start"] == simulation.figures.ops["remove"]
