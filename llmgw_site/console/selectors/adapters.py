"""The adapters of one model as its card shows them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from catalog.models import Adapter
from catalog.selectors import adapters
from catalog.services import origins
from cluster.domain.states import ReplicaState
from cluster.models import Replica


@dataclass(frozen=True, kw_only=True)
class AdapterRow:
    """`origin`: its repository, or its path on nodes, then with the repository that it was `traced` to, or that was named; `loaded`: ready replicas that have it, of so many that are ready. `fetched`: its origin can be asked; `newer`: it had other files at
    the last look, `trouble`: why that failed; `previous`: what a rollback goes back to."""

    id: str
    name: str
    origin: str
    traced: str
    commit: str
    rank: int | None
    scale: float
    size: int
    added: datetime
    loaded: int
    ready: int
    fetched: bool
    newer: bool
    trouble: str
    previous: str


class ModelAdapters:
    """Asked for what the page shows of them, and not before. Two queries."""

    def __init__(self, model_id: str) -> None:
        self._model_id = model_id

    @cached_property
    def rows(self) -> list[AdapterRow]:
        found = list(adapters().filter(model=self._model_id).select_related("origin"))
        held = self._held() if found else []
        return [_row(item, held) for item in found]

    def _held(self) -> list[set[tuple[str, str]]]:
        """Of each ready replica the names and files of its adapters."""
        ready = Replica.objects.filter(model_id=self._model_id, run=True, state=ReplicaState.READY)
        told = (serve.get("adapters") or () for serve in ready.values_list("serve", flat=True))
        return [{(item["name"], _file(item["weights"])) for item in each} for each in told]


def _file(weights: dict[str, str]) -> str:
    return weights.get("version") or weights["path"]


def _row(item: Adapter, held: list[set[tuple[str, str]]]) -> AdapterRow:
    version, told = item.version, origins.come_from(item)
    return AdapterRow(
        id=item.pk,
        name=item.name,
        origin=(version.repository or version.first) if version is not None else item.path,
        traced="" if version is not None else told["repository"],
        commit=told["commit"],
        rank=item.facts.get("rank"),
        scale=item.scale,
        size=item.size,
        added=item.created_at,
        loaded=sum((item.name, item.version_id or item.path) in each for each in held),
        ready=len(held),
        fetched=bool(told["repository"]),
        newer=bool(item.changed),
        trouble=item.message,
        previous=item.previous.name if item.previous is not None else "",
    )
