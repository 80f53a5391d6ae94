"""Where a model's weights come from, whether there are newer ones, and what is being done about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from catalog import selectors as catalog
from catalog.services import origins
from cluster.domain.states import JOB_TERMINAL
from cluster.models import Job, Replica, Throughput
from llmgw_site.console.selectors.jobs import title

KINDS = ("update", "rollback", "adapter_update", "adapter_rollback", "bench")


@dataclass(frozen=True, kw_only=True)
class OpenJob:
    id: str
    title: str


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a bench found of one replica, on one kind of hardware."""

    hardware: str
    tps: float
    at_once: int
    objective: float
    measured_at: datetime


class ModelWeights:
    """Of one model; asked when the page shows it."""

    def __init__(self, model_id: str, name: str) -> None:
        self._model_id, self._name = model_id, name

    @cached_property
    def standing(self) -> dict[str, Any] | None:
        """As `catalog.services.origins.standings` tells it; None: it has no weights."""
        return next(iter(origins.standings(self._model_id)), None)

    @cached_property
    def state(self) -> tuple[str, str]:
        """How it looks and what it says: whether there is something newer."""
        row = self.standing
        if row is None or not row["repository"]:
            found = {"not_found": "origin not found", "ambiguous": "origin ambiguous"}
            return "off", found.get(row["trace"] if row else "", "origin unknown")
        if row["code"]:
            return "warn", "could not be asked"
        if not row["checked_at"]:
            return "off", "not asked yet"
        return ("busy", "newer files") if row["changed"] else ("ok", "up to date")

    @cached_property
    def projector(self) -> str:
        """The file that lets it see or hear; empty: none."""
        rows = catalog.models_with_profiles().filter(pk=self._model_id)
        return rows.values_list("version__projector", flat=True).first() or ""

    @cached_property
    def job(self) -> OpenJob | None:
        """The job that works at it now."""
        rows = Job.objects.filter(kind__in=KINDS, subject=self._name).exclude(state__in=sorted(JOB_TERMINAL))
        return next((OpenJob(id=row.pk, title=title(row)) for row in rows.order_by("created_at")), None)

    @cached_property
    def measured(self) -> tuple[Measured, ...]:
        digests = Replica.objects.filter(model_id=self._model_id).values("digest")
        return tuple(
            Measured(
                hardware=row.hardware,
                tps=row.tps,
                at_once=row.at_once,
                objective=row.objective,
                measured_at=row.measured_at,
            )
            for row in Throughput.objects.filter(digest__in=digests).order_by("hardware")
        )
