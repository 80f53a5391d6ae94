"""Quotas of the tenancy tree: set and remove. Sums over the fleet are `cluster.services.quotas`' matter, which calls these."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catalog.models import Quota
from catalog.services import holders, rows
from catalog.services.access import Scope
from llmgw_site.lib.errors import Kind, Refused

MOST = (1 << 53) - 1
"""What every JSON reader can hold."""
MAX_CLASSES, MAX_CLASS_NAME = 100, 100


def put(*, actor: str, scope: Scope, guarantee: Mapping[str, Any], limit: Mapping[str, Any], why: str = "") -> Quota:
    """The quota of a scope, in place of the one it may have. Raises Refused."""
    amounts = {"guarantee": amount(guarantee, "guarantee"), "limit": amount(limit, "limit")}
    if not any(amounts.values()):
        text = "one is needed, or a limit: name cards by class, cores or memory; remove the quota to have none"
        raise Refused(Kind.INVALID, "invalid_value", f"guarantee: {text}.", param="guarantee")
    return holders.put(Quota, actor=actor, of=scope, told=_told(scope), values=amounts, why=why)


def remove(*, actor: str, scope: Scope) -> None:
    """Have a scope without guarantee and limit again."""
    rows.remove(of_scope(scope), actor=actor, message=f"{_told(scope)} removed")


def of_scope(scope: Scope) -> Quota:
    """The quota of a scope. Raises Refused where it has none."""
    return holders.found(Quota, scope, "quota")


def _told(scope: Scope) -> str:
    return f"quota of the {holders.kind(scope)} {scope.name}"


def amount(value: Mapping[str, Any], param: str) -> dict[str, Any]:
    """An amount as its column keeps it. Raises Refused with what is wrong with it."""
    unknown = sorted(set(value) - {"cards", "cores", "memory"})
    if unknown:
        raise _bad(param, f"there is no {str(unknown[0])[:64]!r}; write cards (by class), cores or memory (bytes)")
    kept: dict[str, Any] = {}
    cards = value.get("cards")
    if cards:
        if not isinstance(cards, Mapping) or len(cards) > MAX_CLASSES:
            raise _bad(param, f'cards: up to {MAX_CLASSES} numbers by class are needed, such as {{"NVIDIA L4": 2}}')
        for klass in cards:
            if (
                not isinstance(klass, str)
                or not klass.strip()
                or len(klass) > MAX_CLASS_NAME
                or not klass.isprintable()
            ):
                raise _bad(param, f"cards: a class is up to {MAX_CLASS_NAME} printable characters")
        kept["cards"] = {klass: _number(count, param, f"cards of {klass}") for klass, count in sorted(cards.items())}
    for name in ("cores", "memory"):
        if value.get(name) is not None:
            kept[name] = _number(value[name], param, name)
    return kept


def _number(value: Any, param: str, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST:
        raise _bad(param, f"{what}: a whole number from 0 on is needed")
    return value


def _bad(param: str, text: str) -> Refused:
    return Refused(Kind.INVALID, "invalid_value", f"{param}: {text}.", param=param)
