"""What the pages show, as frozen values: made by `selectors`, read by the templates.

Sizes are bytes, spans seconds. None means not known: the page leaves it out, and never prints a zero for it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from cluster.domain.explain import ModelStatus
from cluster.domain.modules import Module, ModuleReport, ModuleState
from cluster.domain.states import JOB_TERMINAL, JobState, NodeState, ReplicaState, StepState
from llmgw_site.console.figures import Spark, percent


@dataclass(frozen=True, kw_only=True)
class MaintenanceView:
    """Why nothing new is placed on a node or card. `at` is None where a row does not tell."""

    state: str  # `cordoned` or `drained`
    why: str
    by: str
    at: datetime | None


@dataclass(frozen=True, kw_only=True)
class CardView:
    """An accelerator, as its node last reported it."""

    uuid: str
    name: str
    memory_used: int | None
    memory_total: int | None
    utilisation: float | None  # 0..1
    temperature_c: int | None
    power_w: float | None
    maintenance: MaintenanceView | None
    memory_foreign: int | None = None  # held by programs that are no engines of ours
    problem: str = ""  # why nothing is placed on it

    @property
    def memory_percent(self) -> float | None:
        return percent(self.memory_used, self.memory_total)

    @property
    def foreign_percent(self) -> float | None:
        """Of its memory in use, so much is other programs'."""
        return percent(min(self.memory_foreign or 0, self.memory_used or 0), self.memory_total)

    @property
    def own_percent(self) -> float | None:
        """The rest of what is in use: of our engines, and of the driver."""
        return None if self.memory_percent is None else self.memory_percent - (self.foreign_percent or 0.0)


@dataclass(frozen=True, kw_only=True)
class NodeView:
    """A machine with what it last reported."""

    id: str
    name: str
    state: NodeState
    last_seen_at: datetime | None
    version: str
    cores: int | None
    load_1m: float | None
    memory_total: int | None
    memory_used: int | None
    disk_free: int | None
    cards: tuple[CardView, ...]
    engines: tuple[str, ...]
    missing: tuple[str, ...]  # engines it cannot run, and why
    problems: tuple[str, ...]
    replicas: int
    address: str
    modules: tuple[ModuleReport, ...]
    roles: tuple[str, ...]  # its own, whatever the cluster setup says
    maintenance: MaintenanceView | None
    labels: tuple[str, ...] = ()  # name=value
    fabric: str = ""

    @property
    def memory_percent(self) -> float | None:
        return percent(self.memory_used, self.memory_total)

    @property
    def computes(self) -> bool:
        """Whether engines could run here."""
        return any(item.name == Module.INFERENCE and item.state == ModuleState.RUNNING for item in self.modules)

    @property
    def card_choices(self) -> str:
        """Pairs of UUID and name as JSON, for the maintenance dialog."""
        return json.dumps([[card.uuid, f"Card {n}: {card.name}"] for n, card in enumerate(self.cards) if card.uuid])

    @property
    def unavailable(self) -> tuple[ModuleReport, ...]:
        """Modules that were asked for and cannot run."""
        return tuple(item for item in self.modules if item.state == ModuleState.UNAVAILABLE)


@dataclass(frozen=True, kw_only=True)
class ReplicaView:
    """A copy of a model on a node. `state` is `lost` where its node is offline."""

    id: str
    model: str
    node: str
    state: ReplicaState
    state_since: datetime
    run: bool
    code: str
    message: str
    engine: str
    context: int | None
    slots: int | None
    memory: int | None
    in_flight: int
    attempt: int


@dataclass(frozen=True, kw_only=True)
class ModelView:
    """A model: how it stands against what it should have now."""

    id: str
    name: str
    status: ModelStatus
    engine: str
    context: int | None
    slots: int | None
    in_flight: int
    embeddings: bool

    @property
    def state(self) -> str:
        """ready, partly ready, not ready, parked, at rest, external, disabled or not wanted: in words of the catalogue."""
        if not self.status.enabled:
            return "disabled"
        if self.status.external:
            return "not ready" if self.status.code else "external"
        if self.status.code == "model_parked":
            return "parked"
        if not self.status.wanted:
            return "at rest" if self.status.code == "model_at_rest" else "not wanted"
        if not self.status.short:
            return "ready"
        return "partly ready" if self.status.ready else "not ready"


@dataclass(frozen=True, kw_only=True)
class StepView:
    """A step of a job."""

    id: str
    number: int
    title: str
    state: StepState
    progress: float  # 0..1
    detail: str
    started_at: datetime | None
    finished_at: datetime | None
    log_tail: str
    said_above: bool = False  # its words are what the job itself says

    @property
    def percent(self) -> float:
        return 100.0 * self.progress


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A long piece of work with its steps."""

    id: str
    title: str
    subject: str
    actor: str
    state: JobState
    attempt: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    cancel_requested: bool
    code: str
    message: str
    result: tuple[tuple[str, str], ...]
    steps: tuple[StepView, ...]

    @property
    def ended(self) -> bool:
        return self.state in JOB_TERMINAL

    @property
    def percent(self) -> float | None:
        """Done of all steps, a running one by its own progress; None where there are none."""
        steps = [step for step in self.steps if step.state is not StepState.SKIPPED]
        done = sum(1.0 if step.state is StepState.DONE else step.progress for step in steps)
        return percent(done, len(steps))

    @property
    def current(self) -> StepView | None:
        """The step that runs or failed."""
        return next((s for s in self.steps if s.state in (StepState.RUNNING, StepState.FAILED)), None)


@dataclass(frozen=True, kw_only=True)
class Tile:
    """A figure with its unit, what it is measured over, and its course. `value` empty: nothing was measured."""

    title: str
    value: str
    unit: str
    note: str
    spark: Spark | None = None
