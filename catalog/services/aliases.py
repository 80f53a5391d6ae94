"""Aliases: names that stand for one of several models, by weight. Added, changed, removed; the one place that checks them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db import transaction
from django.db.models import Q

from catalog.models import Adapter, Alias, AliasTarget, Model
from catalog.models.aliases import MAX_WEIGHT
from catalog.services import rows
from llmgw_site.lib.errors import Kind, Refused

MAX_TARGETS = 16
FIELDS = frozenset({"name", "description", "targets"})
"""What callers may change."""
Split = Sequence[Mapping[str, Any]]
"""`{"model": name or id, "weight": 1 or more}` of each target."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What an alias stands for, as it is shown. `share`: of requests, from 0 to 1."""

    name: str
    kind: str  # model, adapter
    id: str
    model_id: str  # of an adapter, its model
    served: str  # the name of that model, as records have it
    enabled: bool
    weight: int
    share: float


@transaction.atomic
def add(*, actor: str, name: str, targets: Split, description: str = "", why: str = "") -> Alias:
    """A new alias. Raises Refused: `name_taken`, or `invalid_value` as `checked_targets`."""
    alias = Alias(name=name, description=description)
    rows.hold_names(alias)
    split = checked_targets(targets)
    message = f"alias {name} added: {told(split)}"
    rows.add(alias, actor=actor, message=message, why=why, more={"targets": split})
    _put(alias, split)
    return alias


@transaction.atomic
def change(*, actor: str, alias: Alias, why: str = "", **changes: Any) -> Alias:
    """Change fields of an alias; `targets` takes the place of all that there were. Nothing is recorded where nothing differs."""
    rows.known(changes, FIELDS, noun="alias")
    if changes.keys() & {"name", "targets"}:
        rows.hold_names(alias)
    fresh = rows.lock(alias)
    plain = {name: value for name, value in changes.items() if name != "targets"}
    rows.change(alias, plain, actor=actor, message=f"alias {fresh.name} changed", why=why)
    if "targets" in changes:
        before, after = split_of(alias), checked_targets(changes["targets"])
        if before != after:
            AliasTarget.objects.filter(alias=alias).delete()
            _put(alias, after)
            alias.save(update_fields=["updated_at"])
            message = f"alias {alias.name} changed: {told(before)} → {told(after)}"
            rows.record(
                alias,
                actor=actor,
                kind="alias_split_changed",
                message=message,
                before={"targets": before},
                after={"targets": after},
                why=why,
            )
    return alias


def remove(*, actor: str, alias: Alias) -> None:
    """Delete an alias: from then on it is a model that does not exist. What it stood for stays."""
    rows.remove(alias, actor=actor, message=f"alias {alias.name} removed")


def release(row: Model | Adapter) -> None:
    """Refuse to have a model or an adapter removed for which an alias stands. Raises Refused `still_in_use`."""
    own = Q(model=row) | Q(adapter__model=row) if isinstance(row, Model) else Q(adapter=row)
    names = sorted(set(AliasTarget.objects.filter(own).values_list("alias__name", flat=True)))
    if names:
        noun, several = rows.noun(row), len(names) > 1
        whose = f"the alias{'es' if several else ''} {', '.join(names[:5])}{' and others' if len(names) > 5 else ''}"
        text = (
            f"The {noun} {row.name} cannot be removed: {whose} stand{'' if several else 's'} for it. Give "
            f"{'these' if several else 'that'} other targets first, or remove {'them' if several else 'it'}."
        )
        raise Refused(Kind.CONFLICT, "still_in_use", text)


def shown(alias: Alias) -> tuple[Target, ...]:
    """What it stands for, the largest share first; of one row of `selectors.aliases` without a query."""
    rows_ = list(alias.targets.all())
    whole = sum(item.weight for item in rows_)
    found = []
    for item in rows_:
        of = item.of
        model = of if isinstance(of, Model) else of.model
        target = Target(
            name=of.name, kind=rows.noun(of), id=of.pk, model_id=model.pk, served=model.name, enabled=model.enabled,
            weight=item.weight, share=item.weight / whole,
        )  # fmt: skip
        found.append(target)
    return tuple(sorted(found, key=lambda target: (-target.weight, target.name)))


def split_of(alias: Alias) -> dict[str, int]:
    """Weights by the names of its targets, in order. One query."""
    targets = AliasTarget.objects.filter(alias=alias).select_related("model", "adapter")
    return dict(sorted((item.name, item.weight) for item in targets))


def checked_targets(targets: Split) -> dict[str, int]:
    """Weights by name, in order. Raises Refused `invalid_value`:

    1. none, more than MAX_TARGETS, or no list of models with weights
    2. a weight that is no whole number from 1 to MAX_WEIGHT: who shall have no share is left out
    3. an alias: it stands for models and adapters, so there are no circles
    4. a name that there is not, or twice
    5. some that compute embeddings and some that do not: each request would be wrong for one of them
    """
    if not isinstance(targets, Sequence) or isinstance(targets, str) or not 1 <= len(targets) <= MAX_TARGETS:  # 1
        raise _wrong(f"an alias stands for 1 to {MAX_TARGETS} models or adapters, each with a weight")
    given: list[tuple[str, int]] = []
    for item in targets:
        ref, weight = (item.get("model"), item.get("weight", 1)) if isinstance(item, Mapping) else (None, 1)
        if not isinstance(ref, str) or not ref or "\x00" in ref:
            raise _wrong("each target has `model`, the name of a model or an adapter, and `weight`")
        if type(weight) is not int or not 1 <= weight <= MAX_WEIGHT:  # 2
            text = f"the weight of {ref[:128]} is a whole number from 1 to {MAX_WEIGHT:,}, not {str(weight)[:32]}"
            raise _wrong(f"{text}; leave out what shall have no share")
        given.append((ref, weight))
    found = _rows([ref for ref, _ in given])
    split: dict[str, int] = {}
    embeds: dict[bool, str] = {}
    for ref, weight in given:
        row = found.get(ref)
        if isinstance(row, Alias):  # 3
            raise _wrong(f"{row.name} is an alias, too: name the models and adapters themselves")
        if row is None:
            raise _wrong(f"there is no model and no adapter named {ref[:128]}")  # 4
        if row.name in split:
            raise _wrong(f"{row.name} is named twice: give it one weight")
        split[row.name] = weight
        embeds[(row if isinstance(row, Model) else row.model).embeddings] = row.name
    if len(embeds) > 1:  # 5
        text = (
            f"{embeds[True]} computes embeddings and {embeds[False]} does not: an alias stands for models of one kind"
        )
        raise _wrong(text)
    return dict(sorted(split.items()))


def told(split: Mapping[str, int]) -> str:
    """A split for people."""
    whole = sum(split.values())
    return ", ".join(f"{name} {weight} ({weight / whole:.1%})" for name, weight in split.items()) or "nothing"


def _rows(refs: Sequence[str]) -> dict[str, Model | Adapter | Alias]:
    """Those of that name or id; an id wins. Three queries."""
    wanted = Q(name__in=refs) | Q(pk__in=refs)
    every: list[Any] = [
        *Model.objects.filter(wanted).only("id", "name", "embeddings"),
        *Adapter.objects.filter(wanted).select_related("model").only("id", "name", "model__embeddings"),
        *Alias.objects.filter(wanted),
    ]
    return {row.name: row for row in every} | {row.pk: row for row in every}


def _put(alias: Alias, split: Mapping[str, int]) -> None:
    """These targets, which are kept from being removed meanwhile."""
    found = _rows(list(split))
    for name, weight in split.items():
        row = found.get(name)
        if row is None:
            raise _wrong(f"{name} was removed meanwhile")
        target = AliasTarget(alias=alias, weight=weight, **{rows.noun(row): row})
        rows.hold_parents(target, {"model", "adapter"})
        target.save(force_insert=True)


def _wrong(text: str) -> Refused:
    return Refused(Kind.INVALID, "invalid_value", f"targets: {text}.", param="targets")
