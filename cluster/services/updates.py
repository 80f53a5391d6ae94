"""Updates of models: swap a version for another, say which new replicas have answered, and swap back.

The reconciler replaces the replicas, one at a time; while an update is under way nothing that serves gives way to one that has
not answered (`Standing.vetted`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import transaction
from django.db.models import F

from catalog.models import Adapter, Model, Version
from catalog.services import adapter_updates, origins, rows
from cluster import signals
from cluster.models import Job, ModelStanding
from cluster.services import jobs
from cluster.services.locks import plan_lock
from llmgw_site.lib.errors import Kind, Refused


def served_now(model: Model) -> dict[str, Any]:
    """What a model serves, as plain values that `swap_back` takes."""
    return {
        "version": model.version_id, "previous": model.previous_id, "weights_path": model.weights_path,
        "weights_sha256": model.weights_sha256, "weights_size": model.weights_size, "facts": model.facts,
    }  # fmt: skip


def begin(*, kind: str, model: Model, args: Mapping[str, Any], actor: str) -> Job:
    """Open a job about a model that is there. Raises Refused: `job_already_open`, also where the other kind is open that changes what it
    serves; `origin_unknown`, `model_is_external`, `nothing_to_roll_back`."""
    if kind == "update":
        origins.needed(model)
    elif kind == "rollback":
        may_go_back(model)
    return jobs.open(kind=kind, subject=model.name, args={"name": model.name, **args}, actor=actor)


def begin_adapter(*, kind: str, adapter: Adapter, actor: str) -> Job:
    """Open an `adapter_update` or `adapter_rollback`. Raises Refused as `begin`."""
    if kind == "adapter_update":
        adapter_updates.needed(adapter)
    else:
        may_go_back(adapter)
    args = {"name": adapter.model.name, "adapter": adapter.name, "adapter_id": adapter.pk}
    return jobs.open(kind=kind, subject=adapter.model.name, args=args, actor=actor)


def may_go_back(row: Model | Adapter) -> None:
    """Raises Refused `nothing_to_roll_back`."""
    if row.previous_id is None:
        text = f"{row.name} has no earlier version to go back to"
        raise Refused(Kind.CONFLICT, "nothing_to_roll_back", text)


def swap(*, actor: str, model: Model, version: Version, before: dict[str, Any], why: str) -> Model:
    """Have a model serve this version; what it served (`before`, of `served_now`) is its previous one from now on.

    1. it serves that version already, as after a worker was killed here: as it is
    2. Refused `update_overtaken`: it serves neither that nor what was there when the job began
    """
    with plan_lock():
        row = rows.lock(model)
        if row.version_id == version.pk:  # 1
            return row
        if served_now(row) != before:  # 2
            raise _overtaken(row)
        changes = {
            "version": version, "previous": row.version, "weights_path": "", "weights_sha256": "",
            "weights_size": version.size, "facts": version.facts,
        }  # fmt: skip
        _vet(row, ())
        origins.settled(row, version)
        return rows.change(
            row, changes, actor=actor, kind="model_updated", message=f"model {row.name} serves {version.name}", why=why
        )


def swap_back(*, actor: str, model: Model, version_id: str, before: dict[str, Any], why: str) -> bool:
    """Have a model serve again what it served before a swap to this version. False: it serves something else by now, which stays."""
    with plan_lock():
        row = rows.lock(model)
        if row.version_id != version_id or served_now(row) == before:
            return False
        changes = dict(before)
        for name in ("version", "previous"):
            changes[name] = Version.objects.filter(id=before[name]).first() if before[name] else None
        _vet(row, None)
        origins.settled(row, changes["version"])
        rows.change(
            row,
            changes,
            actor=actor,
            kind="model_updated",
            message=f"model {row.name} serves what it served before",
            why=why,
        )
    return True


def adapter_now(adapter: Adapter) -> dict[str, Any]:
    """What an adapter is, as plain values that `swap_adapter_back` takes."""
    return {
        "version": adapter.version_id, "previous": adapter.previous_id, "path": adapter.path, "size": adapter.size, "facts": adapter.facts,
        "former_path": adapter.former_path, "former_facts": adapter.former_facts,
    }  # fmt: skip


def swap_adapter(
    *, actor: str, adapter: Adapter, version: Version, facts: dict[str, Any], before: dict[str, Any], why: str
) -> None:
    """Have an adapter be this version, whose file says `facts` of itself; what it was (`before`, of `adapter_now`) is its previous one.
    As `swap`."""
    with plan_lock():
        rows.lock(adapter.model)
        row = rows.lock(adapter)
        if row.version_id == version.pk:
            return
        if adapter_now(row) != before:
            raise _overtaken(row)
        changes = {
            "version": version, "previous": row.version, "path": "", "size": version.size, "facts": facts,
            "former_path": row.path, "former_facts": row.facts,
        }  # fmt: skip
        _change_adapter(row, changes, actor=actor, vetted=(), message=f"adapter {row.name} is {version.name}", why=why)


def swap_adapter_back(*, actor: str, adapter: Adapter, version_id: str, before: dict[str, Any], why: str) -> bool:
    """Have an adapter be again what it was before a swap to this version. False: it is something else by now, which stays."""
    with plan_lock():
        rows.lock(adapter.model)
        row = rows.lock(adapter)
        if row.version_id != version_id or adapter_now(row) == before:
            return False
        changes = dict(before)
        for name in ("version", "previous"):
            changes[name] = Version.objects.filter(id=before[name]).first() if before[name] else None
        text = f"adapter {row.name} is what it was before"
        _change_adapter(row, changes, actor=actor, vetted=None, message=text, why=why)
    return True


def _change_adapter(
    row: Adapter, changes: dict[str, Any], *, actor: str, vetted: tuple[str, ...] | None, message: str, why: str
) -> None:
    _vet(row.model, vetted)
    adapter_updates.settled(row, changes["version"])
    rows.change(row, changes, actor=actor, kind="adapter_updated", message=message, why=why)


def answered(*, model: Model, name: str) -> None:
    """A replica (`ReplicaView.name_now`) has answered: others may give way to it. Nothing where no update is under way."""
    with plan_lock():
        standing = ModelStanding.objects.filter(model_id=model.pk).first()
        if standing is not None and standing.vetted is not None and name not in standing.vetted:
            _vet(model, (*standing.vetted, name))


def over(*, model_id: str) -> None:
    """The update has ended, however it did."""
    with plan_lock():
        if ModelStanding.objects.filter(model_id=model_id, vetted__isnull=False).exists():
            ModelStanding.objects.filter(model_id=model_id).update(vetted=None, version=F("version") + 1)
            _look(model_id)


def _vet(model: Model, names: tuple[str, ...] | None) -> None:
    value = None if names is None else list(names)
    ModelStanding.objects.update_or_create(model_id=model.pk, defaults={"vetted": value})
    ModelStanding.objects.filter(model_id=model.pk).update(version=F("version") + 1)
    _look(model.pk)


def _look(model_id: str) -> None:
    transaction.on_commit(lambda: signals.model_asked.send_robust(sender=Model, model_id=model_id))


def _overtaken(row: Model | Adapter) -> Refused:
    text = f"what {row.name} serves was changed while the update went on: look at it, and begin anew"
    return Refused(Kind.CONFLICT, "update_overtaken", text)
