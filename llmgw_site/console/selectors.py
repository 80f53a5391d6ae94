"""Reads that span the apps: what overview, jobs and chat show, each in a fixed number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, Q, Sum
from django.db.models.functions import TruncMinute

from catalog.models import ApiKey, Model, Profile, Project
from cluster.domain.states import JobState, NodeState, ReplicaState, StepState
from cluster.models import Job, JobStep, Node, Replica
from cluster.selectors import database_now, statuses, world
from llmgw_site.console.figures import middle
from llmgw_site.console.views import CardView, JobView, ModelView, NodeView, ReplicaView, StepView
from routing.domain.records import Outcome
from routing.models import UsageRecord

ANSWERING = (ReplicaState.READY, ReplicaState.DRAINING)
FAILED = Q(outcome=Outcome.FAILED.value)
MEDIANS_OF = 5000
"""Newest records that medians are taken of: under heavy load the older minutes have none."""
RUNNING_SHOWN = 6
"""Open jobs on the overview."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The cluster at one moment."""

    nodes: tuple[NodeView, ...]
    models: tuple[ModelView, ...]
    replicas: tuple[ReplicaView, ...]

    @property
    def in_flight(self) -> int:
        return sum(replica.in_flight for replica in self.replicas if replica.state in ANSWERING)

    @property
    def slots(self) -> int:
        """Requests that could be answered at once."""
        return sum(replica.slots or 0 for replica in self.replicas if replica.state is ReplicaState.READY)


def cluster() -> Cluster:
    """Nodes, models and replicas as they stand: ten queries, however many there are."""
    now = database_now()
    picture = world(now)
    _, status = statuses(picture, now)
    states = {node.id: node.state for node in picture.nodes}
    rows = list(
        Replica.objects.select_related("model", "node", "profile")
        .only(
            "id", "run", "state", "state_since", "code", "message", "context", "slots", "memory", "in_flight", "attempt",
            "model__name", "node__name", "profile__engine",
        )
        .exclude(state=ReplicaState.STOPPED.value, run=False)
        .order_by("model__name", "slot")
    )  # fmt: skip
    replicas = tuple(_replica(row, states) for row in rows)
    by_model: dict[str, list[ReplicaView]] = {}
    for row, view in zip(rows, replicas, strict=True):
        by_model.setdefault(row.model_id, []).append(view)
    on_node: dict[str, int] = {}
    for row in rows:
        on_node[row.node_id] = on_node.get(row.node_id, 0) + 1
    first: dict[str, Profile] = {}
    for profile in Profile.objects.filter(enabled=True).order_by("-priority", "name"):
        first.setdefault(profile.model_id, profile)
    embeddings = set(Model.objects.filter(embeddings=True).values_list("id", flat=True))
    models = tuple(
        _model(item.id, status[item.id], by_model.get(item.id, []), first.get(item.id), item.id in embeddings)
        for item in picture.models
    )
    nodes = tuple(
        _node(row, states.get(row.id, NodeState.OFFLINE), on_node.get(row.id, 0))
        for row in Node.objects.filter(removed_at__isnull=True).order_by("name", "id")
    )
    return Cluster(nodes=nodes, models=models, replicas=replicas)


def _replica(row: Replica, nodes: Mapping[str, NodeState]) -> ReplicaView:
    lost = nodes.get(row.node_id, NodeState.OFFLINE) is NodeState.OFFLINE
    return ReplicaView(
        id=row.id,
        model=row.model.name,
        node=row.node.name,
        state=ReplicaState.LOST if lost else ReplicaState(row.state),
        state_since=row.state_since,
        run=row.run,
        code=row.code,
        message=row.message,
        engine=row.profile.engine if row.profile else "",
        context=row.context,
        slots=row.slots,
        memory=row.memory,
        in_flight=row.in_flight,
        attempt=row.attempt,
    )


def _model(
    model_id: str, status: Any, replicas: Iterable[ReplicaView], profile: Profile | None, embeddings: bool
) -> ModelView:
    answering = [item for item in replicas if item.state in ANSWERING]
    contexts = [item.context for item in answering if item.context]
    return ModelView(
        id=model_id,
        name=status.name,
        status=status,
        engine=profile.engine if profile else "",
        context=min(contexts) if contexts else (profile.context or None) if profile else None,
        slots=sum(item.slots or 0 for item in answering) or None,
        in_flight=sum(item.in_flight for item in answering),
        embeddings=embeddings,
    )


def _node(row: Node, state: NodeState, replicas: int) -> NodeView:
    hardware: dict[str, Any] = row.hardware
    total, free = hardware.get("memory_total") or None, hardware.get("memory_available")
    return NodeView(
        id=row.id,
        name=row.name,
        state=state,
        last_seen_at=row.last_seen_at,
        version=row.version,
        cores=hardware.get("cores") or None,
        load_1m=hardware.get("load_1m"),
        memory_total=total,
        memory_used=total - free if total is not None and free is not None else None,
        disk_free=hardware.get("disk_free") or None,
        cards=tuple(_card(card) for card in hardware.get("cards", ())),
        engines=tuple(
            f"{item['kind']} {item.get('version', '')}".strip() for item in row.engines if not item.get("problem")
        ),
        problems=(
            *row.problems,
            *(f"cannot run {item['kind']}: {item['problem']}" for item in row.engines if item.get("problem")),
        ),
        replicas=replicas,
    )


def _card(card: Mapping[str, Any]) -> CardView:
    return CardView(
        name=card.get("name") or card.get("uuid", "card"),
        memory_used=card.get("memory_used"),
        memory_total=card.get("memory_total"),
        utilisation=card.get("utilisation"),
        temperature_c=card.get("temperature_c"),
        power_w=card.get("power_w"),
    )


# --- jobs


OPEN = (JobState.QUEUED.value, JobState.RUNNING.value)


def open_jobs(limit: int = RUNNING_SHOWN) -> tuple[JobView, ...]:
    """Jobs that have not ended, newest first: two queries."""
    return jobs_of(Job.objects.filter(state__in=OPEN).order_by("-created_at", "-id")[:limit])


def jobs_of(rows: Iterable[Job]) -> tuple[JobView, ...]:
    """These jobs with their steps: one query more."""
    found = list(rows)
    steps: dict[str, list[JobStep]] = {}
    for step in JobStep.objects.filter(job_id__in=[job.id for job in found]).order_by("job_id", "number"):
        steps.setdefault(step.job_id, []).append(step)
    return tuple(_job(job, steps.get(job.id, [])) for job in found)


def jobs(*, state: str = "", offset: int = 0, limit: int = 25) -> tuple[tuple[JobView, ...], int]:
    """A page of all jobs, newest first, and how many there are: three queries. `state`: open, done, failed, cancelled."""
    rows = Job.objects.all()
    if state:
        rows = rows.filter(state__in=OPEN if state == "open" else (state,))
    return jobs_of(rows.order_by("-created_at", "-id")[offset : offset + limit]), rows.count()


def job(job_id: str) -> JobView | None:
    """One job with its steps."""
    found = jobs_of(Job.objects.filter(id=job_id))
    return found[0] if found else None


def _job(row: Job, steps: Iterable[JobStep]) -> JobView:
    result = {key: value for key, value in row.result.items() if isinstance(value, str | int | float)}
    return JobView(
        id=row.id,
        kind=row.kind,
        subject=row.subject,
        actor=row.actor,
        state=JobState(row.state),
        attempt=row.attempt,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        cancel_requested=row.cancel_requested,
        code=row.code,
        message=row.message,
        log_tail=str(result.pop("log_tail", "")),
        result=tuple(result.items()),
        steps=tuple(
            StepView(
                id=step.id,
                number=step.number,
                title=step.title,
                state=StepState(step.state),
                progress=step.progress,
                detail=step.detail,
                started_at=step.started_at,
                finished_at=step.finished_at,
                log_tail=str(step.data.get("log_tail", "")),
            )
            for step in steps
        ),
    )


# --- requests


@dataclass(frozen=True, kw_only=True)
class Minute:
    """Requests that began in one minute. `first_token_s`: their median; None where none was measured."""

    requests: int = 0
    failed: int = 0
    tokens: int = 0
    first_token_s: float | None = None


def minutes(count: int, now: datetime) -> tuple[Minute, ...]:
    """The last `count` minutes, oldest first, the running one last: two queries. Medians are of the newest records."""
    newest = now.replace(second=0, microsecond=0)
    starts = [newest - timedelta(minutes=n) for n in reversed(range(count))]
    records = UsageRecord.objects.filter(started_at__gte=starts[0])
    totals = {
        row["minute"]: row
        for row in records.annotate(minute=TruncMinute("started_at"))
        .values("minute")
        .annotate(
            requests=Count("record_id"), failed=Count("record_id", filter=FAILED), tokens=Sum("completion_tokens")
        )
        .order_by("minute")
    }
    waits: dict[datetime, list[float]] = {}
    timed = (
        records.filter(first_token_s__isnull=False).order_by("-started_at").values_list("started_at", "first_token_s")
    )
    for started, wait in timed[:MEDIANS_OF]:
        assert wait is not None
        waits.setdefault(started.replace(second=0, microsecond=0), []).append(wait)
    return tuple(
        Minute(
            requests=row["requests"] if row else 0,
            failed=row["failed"] if row else 0,
            tokens=(row["tokens"] or 0) if row else 0,
            first_token_s=middle(waits.get(start, ())),
        )
        for start, row in ((start, totals.get(start)) for start in starts)
    )


# --- chat


def first_project() -> Project | None:
    """The project that the console's own keys belong to: the oldest, which the first start made."""
    return Project.objects.order_by("created_at", "id").first()


def live_keys(*, name: str, created_by: str) -> list[ApiKey]:
    """Keys of this name that this actor issued and nobody revoked."""
    return list(ApiKey.objects.filter(name=name, created_by=created_by, revoked_at__isnull=True))


def chat_models() -> list[dict[str, Any]]:
    """Models that could be chatted with, those that answer now first: name, ready, state, why, facts."""
    found = []
    for model in cluster().models:
        ready = model.status.ready > 0 and model.status.enabled and not model.embeddings
        facts = [model.engine, f"context {model.context:,} tokens" if model.context else ""]
        found.append(
            {
                "name": model.name,
                "ready": ready,
                "state": "embeddings only" if model.embeddings else model.state,
                "why": "it answers /v1/embeddings, not chats" if model.embeddings else model.status.reason,
                "facts": " · ".join(fact for fact in facts if fact),
            }
        )
    return sorted(found, key=lambda item: (not item["ready"], item["name"]))
