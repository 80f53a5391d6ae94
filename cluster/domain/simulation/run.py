"""One simulated run: the same functions as in a cluster, with a clock that is a number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from cluster.domain import plan as plans
from cluster.domain.board import Board
from cluster.domain.parking import unparked
from cluster.domain.plan import Op, Plan, Remember, Start, Stop, recheck
from cluster.domain.reconcile import reconcile
from cluster.domain.simulation.case import Case, Habits, Happening
from cluster.domain.simulation.demand import Demand
from cluster.domain.simulation.dice import Dice
from cluster.domain.simulation.figures import Figures
from cluster.domain.simulation.machines import Machines
from cluster.domain.simulation.watch import Violation, Watch
from cluster.domain.types import Claim, Klass, ReplicaView, World

EPOCH = 1_800_000_000.0
"""Unix time at which every run starts."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a run. `log`: one line for each operation; equal for equal cases."""

    case: Case
    figures: Figures
    violations: tuple[Violation, ...]
    log: tuple[str, ...]
    world: World


class Simulation:
    """A case while it runs. `violations` and `log` grow with each step."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.now = EPOCH
        self.models = {item.id: item for item in case.models if item.name not in case.absent}
        self._offers = {item.name: item for item in case.models}
        self._names = {item.id: item.name for item in case.models}
        self.replicas: dict[str, ReplicaView] = {}
        self.claims: tuple[Claim, ...] = ()
        dice = Dice(case.seed + 0x51)
        self.machines = Machines({item.id: item for item in case.nodes}, self.habits, dice)
        self.demand = Demand(self.habits)
        self.figures = Figures()
        self.watch = Watch(EPOCH)
        self.log: list[str] = []
        self._dice = Dice(case.seed + 0x17)
        self._coming = sorted(case.happenings, key=lambda item: item.at)
        self._before: World | None = None
        self._made = 0
        self._changes = 0

    def habits(self, model_id: str) -> Habits:
        return self.case.habits.get(self._names.get(model_id, ""), Habits())

    @property
    def moment(self) -> float:
        """Seconds since the start."""
        return self.now - EPOCH

    def run(self) -> Outcome:
        for _ in self.steps():
            pass
        return self.outcome()

    @property
    def count(self) -> int:
        """How many steps it has."""
        return int(self.case.hours * 3600 / self.case.tick)

    def steps(self) -> Iterator[World]:
        """One world after the other, each as a plan has left it."""
        for _ in range(self.count):
            self.now += self.case.tick
            yield self.step()

    def outcome(self) -> Outcome:
        return Outcome(
            case=self.case,
            figures=self.figures,
            violations=tuple(self.watch.found),
            log=tuple(self.log),
            world=self.world(),
        )

    def world(self) -> World:
        return World(
            models=tuple(self.models.values()),
            nodes=tuple(self.machines.nodes.values()),
            replicas=tuple(self.replicas.values()),
            scopes=self.case.scopes,
            claims=tuple(item for item in self.claims if item.model_id in self.models),
            pack=self.case.pack,
        )

    def step(self) -> World:
        """What happens; what nodes and requests do; one plan, or two where two planners think they are the one."""
        while self._coming and self._coming[0].at <= self.moment:
            self._happen(self._coming.pop(0))
        worked = self.machines.work(self.replicas.values(), self.models, self.now)
        self.replicas = {item.id: item for item in worked}
        for node_id in self.machines.turned:
            self.watch.disturbed_node(node_id, worked, self.now)
        self._requests()
        world = self.world()
        plan = reconcile(world, self.now)
        if self._before is not None and self._dice.chance(self.case.twice):
            self._apply(world, reconcile(self._before, self.now), stale=True)
            world = self.world()
        self._apply(world, plan)
        self._before = world
        after = self.world()
        self.figures.sample(after, plan, self.moment, self.demand)
        return after

    def _happen(self, what: Happening) -> None:
        self.log.append(f"{self.moment:7.0f} -- {what.kind} {what.subject}")
        if what.kind.startswith(("model_", "profile_")):
            self._order(what)
            return
        self.watch.disturbed_node(self.machines.happen(what, self.now), self.replicas.values(), self.now)

    def _order(self, what: Happening) -> None:
        """Somebody changes the catalogue."""
        offered = self._offers[what.subject]
        model = self.models.get(offered.id)
        self.watch.disturbed_model(offered.id, self.now)
        if what.kind == "model_add":
            self.models.setdefault(offered.id, offered)
        elif what.kind == "model_drop":
            self.models.pop(offered.id, None)
        elif model is not None and what.kind == "profile_change":
            self._changes += 1
            profiles = tuple(replace(item, digest=f"{item.digest}+{self._changes}") for item in model.profiles)
            self.models[model.id] = replace(model, profiles=profiles)
        elif model is not None and what.kind == "model_retry":
            self.models[model.id] = replace(model, standing=unparked(model.standing))
        elif model is not None and what.kind == "model_restart":
            names = tuple(item.name_now for item in self.replicas.values() if item.model_id == model.id and item.run)
            standing = replace(model.standing, restarting=names, in_place=bool(what.values.get("in_place")))
            self.models[model.id] = replace(model, standing=standing)
        elif model is not None:
            values = dict(what.values)
            if "klass" in values:
                values["klass"] = Klass(values["klass"])
            if model.most is not None and values.get("base", 0) > model.most:
                values["most"] = values["base"]
            self.models[model.id] = replace(model, **values)

    def _requests(self) -> None:
        of_model: dict[str, list[ReplicaView]] = {}
        for replica in self.replicas.values():
            of_model.setdefault(replica.model_id, []).append(replica)
        for model in list(self.models.values()):
            if model.external:
                continue
            mine = of_model.get(model.id, [])
            after, served = self.demand.step(model, mine, self.moment, self.case.tick, self.now)
            if after.standing.asked_at is not None and model.standing.asked_at is None:
                self.watch.disturbed_model(model.id, self.now)
            self.models[model.id] = after
            self.replicas.update({item.id: item for item in served})

    def _apply(self, world: World, plan: Plan, *, stale: bool = False) -> None:
        """As `services/apply.py` does: every operation is checked again on what is there now."""
        board = Board(world)
        for op in plan.ops:
            made = self._named(op)
            why = recheck(made, board)
            if why:
                self.figures.refused += 1
                self.watch.refused(made)
                self.log.append(f"{self.moment:7.0f} no {_told(made)}: {why}")
                if not stale and self._before is not None and not self.case.twice:
                    self.watch.say(self.now, "refused", f"{_told(made)} was planned and then refused: {why}")
                continue
            self.watch.op(made, board, self.now, stale=stale)
            plans.do(made, board)
            self._note(made, board)
        after = board.as_world()
        self.watch.step(world, after, plan, board, self.now, stale=stale)
        self.models = {item.id: item for item in after.models}
        self.replicas = {item.id: item for item in after.replicas}
        self.claims = after.claims

    def _named(self, op: Op) -> Op:
        if not isinstance(op, Start):
            return op
        self._made += 1
        return replace(op, replica_id=f"rep_{self._made:06d}")

    def _note(self, op: Op, board: Board) -> None:
        self.figures.count(op, board)
        if isinstance(op, Stop) and op.for_model:
            self.machines.preempted.add(op.replica_id)
        if not isinstance(op, Remember) or op.reason:
            self.log.append(f"{self.moment:7.0f} {_told(op)}: {op.reason}")


def simulate(case: Case) -> Outcome:
    return Simulation(case).run()


def _told(op: Op) -> str:
    name = type(op).__name__.lower()
    if isinstance(op, Start):
        return f"{name} {op.replica_id} of {op.model_id} on {', '.join(share.node_id for share in op.shares)}"
    if isinstance(op, Stop) and op.for_model:
        return f"{name} {op.replica_id} for {op.for_model}"
    return f"{name} {op.subject}"
