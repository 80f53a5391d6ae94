"""Budgets in money, of organisations, teams, projects and keys: set, removed, listed; how they stand, noted with its event."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import transaction
from django.db.models import QuerySet

from catalog.domain.budgets import Period, Span, Standing
from catalog.models import ApiKey, Budget
from catalog.services import access, events, limits, rows
from catalog.services.access import EVERYWHERE, Reach
from catalog.services.limits import Limited
from llmgw_site.lib.errors import Kind, Refused

ACTOR = "budgets"
KINDS = {Standing.WARNED: "budget_warned", Standing.SPENT: "budget_spent", Standing.OK: "budget_reset"}


def put(*, actor: str, of: Limited, period: str, why: str = "", **fields: Any) -> Budget:
    """The budget of a scope or a key for its days or its months, in place of the one it may have; of one there is what is left
    out stays. How it stands is found out at the next look. Raises Refused."""
    rows.known(fields, frozenset({"amount", "zone", "hard", "warn_at"}), noun="budget")
    if period not in list(Period):
        raise Refused(Kind.INVALID, "invalid_value", "period: write day or month.", param="period")
    told = f"budget of the {limits.kind(of)} {of.name} a {period}"
    with transaction.atomic():
        rows.lock(of)
        row = of_whom(of, period)
        if row is not None:
            return rows.change(row, fields, actor=actor, message=f"{told} changed", why=why)
        if fields.get("amount") is None:
            raise Refused(Kind.INVALID, "invalid_value", "amount: say how much.", param="amount")
        row = Budget(**{_column(of): of}, period=period, **fields)
        return rows.add(row, actor=actor, message=f"{told} set")


def remove(*, actor: str, of: Limited, period: str) -> None:
    """Bound it no longer. Raises Refused."""
    row = found(of, period)
    rows.remove(row, actor=actor, message=f"budget of the {limits.kind(of)} {of.name} a {period} removed")


def of_whom(of: Limited, period: str) -> Budget | None:
    return Budget.objects.filter(**{_column(of): of}, period=period).first()


def found(of: Limited, period: str) -> Budget:
    row = of_whom(of, period)
    if row is None:
        text = f"The {limits.kind(of)} {of.name} has no budget a {period[:16]!r}."
        raise Refused(Kind.NOT_FOUND, "not_found", text)
    return row


def every(held: Reach = EVERYWHERE) -> QuerySet[Budget]:
    """All in reach that matter: those of revoked keys do not. One query with what they are of."""
    every_row = held.of_rows(Budget.objects.all(), access.LIMITED).exclude(key__revoked_at__isnull=False).order_by("id")
    return every_row.select_related(
        "organisation", "team__organisation", "project__team__organisation", "key__project__team__organisation"
    )


def ordered(found_rows: Iterable[Budget]) -> list[Budget]:
    """In the order of the tree."""
    return sorted(found_rows, key=lambda row: (limits.path(row.of), row.period))


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


def _column(of: Limited) -> str:
    return "key" if isinstance(of, ApiKey) else str(of._meta.model_name)
