"""How a row of the catalogue gets into its table: checked, written, recorded, told, in one transaction.

`add`, `change` and `remove` are what every service of this room ends in. A value that a column does not allow, or a
name that is taken, is a Refused; a race that only the table's constraint sees is one too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from django.core.exceptions import NON_FIELD_ERRORS, ValidationError
from django.db import IntegrityError, connection, models, transaction
from django.db.models import ProtectedError, RestrictedError

from catalog.services import events
from catalog.signals import catalogue_changed
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import exact_bytes

Row = TypeVar("Row", bound=models.Model)
LONGEST_TOLD = 60
"""Characters of a value that a line of the log names; the event's fields have all of it."""
SIZES = frozenset({"memory", "card_memory", "weights_size"})
"""Columns that hold bytes."""
UNWATCHED = frozenset({"id", "created_at", "updated_at", "last_used_at", "created_by", "manifest"})


def noun(row: models.Model) -> str:
    """What events call this kind of row: `model`, `apikey` as `key`, `admintoken` as `token`, `rolegrant` as `role`."""
    name = str(row._meta.model_name)
    return {"apikey": "key", "admintoken": "token", "rolegrant": "role"}.get(name, name)


def watched(row: models.Model, names: Iterable[str] | None = None) -> dict[str, Any]:
    """The fields of a row that an event shows."""
    wanted = set(names) if names is not None else None
    return {
        field.name: field.value_from_object(row)
        for field in row._meta.concrete_fields
        if field.name not in UNWATCHED and (wanted is None or field.name in wanted)
    }


def known(fields: Iterable[str], settable: frozenset[str], *, noun: str) -> None:
    """Refuse a field that such a row does not have, or that nobody may set."""
    unknown = sorted(set(fields) - settable)
    if unknown:
        raise Refused(
            Kind.INVALID,
            "unknown_field",
            f"A {noun} has no field {unknown[0]!r} that could be set; it has {', '.join(sorted(settable))}.",
            param=unknown[0],
        )


@transaction.atomic
def add(
    row: Row, *, actor: str, message: str, tell: bool = True, why: str = "", more: Mapping[str, Any] | None = None
) -> Row:
    """Insert a new row. `more`: what its event shows beside its fields. Without `tell` the floors above do not hear of it: of a row that is told in the same transaction
    they would hear twice, and each time look at everything."""
    hold_names(row)
    hold_parents(row)
    check(row)
    _save(row, force_insert=True)
    record(
        row,
        actor=actor,
        kind=f"{noun(row)}_added",
        message=message,
        tell=tell,
        after={**watched(row), **(more or {})},
        why=why,
    )
    return row


@transaction.atomic
def change(row: Row, changes: Mapping[str, Any], *, actor: str, message: str, kind: str = "", why: str = "") -> Row:
    """Set these fields of a row, read anew under its lock. No event and no signal if nothing differs.

    Writes only what changed, so two people who change different fields at once both succeed. The row passed in is
    brought up to date.
    """
    if "name" in changes:
        hold_names(row)
    fresh = lock(row)
    before = watched(fresh, changes)
    for name, value in changes.items():
        setattr(fresh, name, value)
    after = watched(fresh, changes)
    differing = [name for name in after if after[name] != before[name]]
    if differing:
        hold_parents(fresh, differing)
        check(fresh)
        touched = [field.name for field in fresh._meta.concrete_fields if field.name == "updated_at"]
        _save(fresh, update_fields=[*differing, *touched])
        record(
            fresh,
            actor=actor,
            kind=kind or f"{noun(fresh)}_changed",
            message=message if kind else f"{message}: {_all_told(before, after, differing)}",
            before={name: before[name] for name in differing},
            after={name: after[name] for name in differing},
            why=why,
        )
    row.refresh_from_db()
    return row


@transaction.atomic
def remove(row: models.Model, *, actor: str, message: str) -> None:
    """Delete a row. Refused if others hang on it."""
    fresh = lock(row)
    subject, before = str(fresh.pk), watched(fresh)
    try:
        fresh.delete()
    except (ProtectedError, RestrictedError) as error:
        held = sorted({str(item._meta.verbose_name_plural) for item in _holders(error)})
        raise Refused(
            Kind.CONFLICT,
            "still_in_use",
            f"The {noun(fresh)} {fresh} cannot be removed: it still has {', '.join(held)}. Remove those first.",
        ) from None
    fresh.pk = subject
    record(fresh, actor=actor, kind=f"{noun(fresh)}_removed", message=message, before=before)


def lock(row: Row) -> Row:
    """The row as it is now, held until the transaction ends (on SQLite the whole transaction already holds it)."""
    manager: Any = type(row)._default_manager
    fresh: Row | None = manager.select_for_update().filter(pk=row.pk).first()
    if fresh is None:
        raise Refused(Kind.NOT_FOUND, "not_found", f"This {noun(row)} was removed meanwhile.")
    return fresh


NAMES_LOCK = 0x6C6C6D67775F6E  # "llmgw_n"
"""Number of PostgreSQL's advisory transaction lock."""


def hold_names(row: models.Model) -> None:
    """Where two tables share one namespace no unique index sees both: whoever names a row of them does so alone. Taken before
    any lock of a row, so that nobody waits in a circle. SQLite has one writer anyway."""
    if getattr(row, "shares_names", False) and connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s)", [NAMES_LOCK])


def hold_parents(row: models.Model, names: Iterable[str] | None = None) -> None:
    """Keep the rows that this one points to from being removed before it is written.

    PostgreSQL checks foreign keys at the commit, where it would be too late to say anything sensible.
    """
    for field in row._meta.concrete_fields:
        pk = field.value_from_object(row) if isinstance(field, models.ForeignKey) else None
        if pk is None or (names is not None and field.name not in names):
            continue
        parents: Any = field.related_model._default_manager  # type: ignore[union-attr]
        if parents.select_for_update(no_key=True).filter(pk=pk).values_list("pk").first() is None:
            raise Refused(
                Kind.NOT_FOUND, "not_found", f"The {field.verbose_name} was removed meanwhile.", param=field.name
            )


def check(row: models.Model) -> None:
    """Every rule that columns and constraints state, as one refusal with the field at fault."""
    for field in row._meta.concrete_fields:  # NaN is below no bound and above none
        value = field.value_from_object(row)
        if isinstance(value, float) and not math.isfinite(value):
            raise Refused(Kind.INVALID, "invalid_value", f"{field.name}: a number is needed.", param=field.name)
    try:
        row.full_clean()
    except ValidationError as error:
        name, problem = next((field, items[0]) for field, items in error.error_dict.items())
        param = None if name == NON_FIELD_ERRORS else name
        text = " ".join(problem.messages)
        if problem.code == "unique" and name == "name":
            one = f"{'an' if noun(row)[0] in 'aeiou' else 'a'} {noun(row)}"
            text = f"There is {one} named {getattr(row, name)!r} already: choose another name."
        if problem.code in ("name_taken", "unique"):
            raise Refused(Kind.CONFLICT, "name_taken", text, param="name") from None
        raise Refused(Kind.INVALID, "invalid_value", f"{param}: {text}" if param else text, param=param) from None


def _save(row: models.Model, **options: Any) -> None:
    try:
        with transaction.atomic():  # a savepoint: the caller's transaction stays usable
            row.save(**options)
    except IntegrityError:
        raise Refused(
            Kind.CONFLICT, "name_taken", f"Another {noun(row)} of that name was made at the same moment.", param="name"
        ) from None


def _all_told(before: Mapping[str, Any], after: Mapping[str, Any], names: Iterable[str]) -> str:
    return ", ".join(_told(name, before[name], after[name]) for name in names)


def _told(name: str, before: Any, after: Any) -> str:
    """What became of a field, for people; its name alone where its values are secret or long."""
    if name in events.SECRETS or any(len(str(value)) > LONGEST_TOLD for value in (before, after)):
        return name
    words = exact_bytes if name in SIZES and isinstance(before, int) and isinstance(after, int) else _word
    return f"{name} {words(before)} → {words(after)}"


def _word(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value and isinstance(value, list) and not any(isinstance(item, (dict, list)) for item in value):
        return ", ".join(map(str, value))
    if value and isinstance(value, dict) and not any(isinstance(item, (dict, list)) for item in value.values()):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return "none" if value is None or value == "" or value == [] or value == {} else str(value)


def record(row: models.Model, *, actor: str, kind: str, message: str, tell: bool = True, **shown: Any) -> None:
    """The event of a change of this row, and word to the floors above; `shown`: before, after, why."""
    subject: dict[str, Any] = {"subject_kind": noun(row), "subject_id": str(row.pk)}
    about = str(getattr(row, "model_id", None) or "")  # a profile: its model's log tells it, too
    events.append(actor=actor, kind=kind, message=message, about=about, **subject, **shown)
    if tell:
        transaction.on_commit(partial(catalogue_changed.send_robust, sender=type(row), **subject))


def _holders(error: ProtectedError | RestrictedError) -> Iterable[Any]:
    return error.protected_objects if isinstance(error, ProtectedError) else error.restricted_objects
