"""Budgets in money, of organisations, teams, projects and keys: set, removed, listed; how they stand, noted with its event."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from catalog.domain.budgets import Period, Span, Standing
from catalog.models import Budget
from catalog.services import events, holders, rows
from catalog.services.access import EVERYWHERE, HELD, Holder, Reach
from llmgw_site.lib.errors import Kind, Refused

ACTOR = "budgets"
KINDS = {Standing.WARNED: "budget_warned", Standing.SPENT: "budget_spent", Standing.OK: "budget_reset"}


def put(*, actor: str, of: Holder, period: str, why: str = "", **fields: Any) -> Budget:
    """The budget of a scope or a key for its days or its months, in place of the one it may have; of one there is what is left
    out stays. How it stands is found out at the next look. Raises Refused."""
    rows.known(fields, frozenset({"amount", "zone", "hard", "warn_at"}), noun="budget")
    if period not in list(Period):
        raise Refused(Kind.INVALID, "invalid_value", "period: write day or month.", param="period")
    if fields.get("amount", 0) is None or ("amount" not in fields and of_whom(of, period) is None):
        raise Refused(Kind.INVALID, "invalid_value", "amount: say how much.", param="amount")
    return holders.put(Budget, actor=actor, of=of, told=_told(of, period), values=fields, why=why, period=period)


def remove(*, actor: str, of: Holder, period: str) -> None:
    """Bound it no longer. Raises Refused."""
    rows.remove(found(of, period), actor=actor, message=f"{_told(of, period)} removed")


def of_whom(of: Holder, period: str) -> Budget | None:
    return holders.row_of(Budget, of, period=period)


def found(of: Holder, period: str) -> Budget:
    """The one of this period. Raises Refused."""
    return holders.found(Budget, of, f"budget a {period[:16]!r}", period=period)


def every(held: Reach = EVERYWHERE) -> list[Budget]:
    """All in reach that matter, in the order of the tree: those of revoked keys do not. One query, with what they are of."""
    live: QuerySet[Budget] = Budget.objects.exclude(key__revoked_at__isnull=False).select_related(*holders.WITH)
    return sorted(held.of_rows(live, HELD), key=lambda row: (holders.path(row.of), row.period))


def _told(of: Holder, period: str) -> str:
    return f"budget of the {holders.kind(of)} {of.name} a {period}"


@transaction.atomic
def note(row: Budget, *, standing: Standing, spent: int, span: Span, words: str) -> None:
    """Keep how a budget stands, for nodes to be told; a change is an event. Nothing where somebody noted it meanwhile."""
    seen = Budget.objects.filter(pk=row.pk, standing=row.standing, since=row.since, spent=row.spent)
    if not seen.update(standing=standing.value, spent=spent, since=span.start):
        return
    if standing != row.standing:
        kept = {"standing": row.standing, "spent": row.spent}
        after = {"standing": standing.value, "spent": spent}
        events.append(actor=ACTOR, kind=KINDS[standing], subject_kind="budget", subject_id=row.pk, message=words,
                      before=kept, after=after)  # fmt: skip
