"""The budgets pages: what keys, projects, teams and organisations may cost in a day or a month, and what of it is spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Any
from zoneinfo import available_timezones

from django.conf import settings
from django.http import HttpRequest

from catalog.domain.budgets import Period
from catalog.services import actors, holders
from catalog.services import budgets as service
from catalog.services.access import Holder, Reach
from llmgw_site.console.figures import percent
from llmgw_site.console.held import HeldPages
from llmgw_site.console.theme import MAY_CHANGE_BUDGETS, MAY_SEE_BUDGETS
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import format_money
from routing.services import BudgetNow, budgets_now

LOOKS = {"ok": ("ok", "has room"), "warned": ("warn", "nearly spent"), "spent": ("bad", "spent")}


@dataclass(frozen=True, kw_only=True)
class BudgetRow:
    """A budget as it stands. `within`, `over`, `warn`, `full`: percent of the larger of its amount and what is spent: spent within the
    amount, spent beyond it, where it is told first, and where the amount ends."""

    id: str
    kind: str
    name: str
    path: str
    depth: int
    period: str
    hard: bool
    spent: str
    amount: str
    share: float | None
    within: float
    over: float
    warn: float | None
    full: float
    look: str
    word: str
    resets_at: datetime
    zone: str
    resets_there: str  # by the clocks of its zone


class BudgetPages(HeldPages):
    noun = "budget"
    see, change = MAY_SEE_BUDGETS, MAY_CHANGE_BUDGETS
    left = f"In {settings.CONFIG.currency}"
    hint = (
        "A request counts for its key and for each scope above it. What is spent is the sum of the usage records, so a budget is gone over by "
        "what is under way when it is spent. Models without a price cost nothing and are let through."
    )

    def listed(self, held: Reach) -> dict[str, Any]:
        return {"rows": rows(held), "periods": [item.value for item in Period]}

    def fields(self, request: HttpRequest, of: Holder, held: Reach, typed: Mapping[str, str] | None) -> Any:
        period, currency = _period(request), settings.CONFIG.currency
        row = service.of_whom(of, period) if period in set(Period) else None
        stands = {"amount": "", "zone": "UTC", "hard": "yes", "warn_at": "80"}
        if row is not None:
            warn_at = "" if row.warn_at is None else f"{100 * row.warn_at:g}"
            stands = {
                "amount": f"{row.amount.normalize():f}",
                "zone": row.zone,
                "hard": "yes" if row.hard else "no",
                "warn_at": warn_at,
            }
        zones = sorted(available_timezones())
        return {**stands, **(typed or {}), "period": period, "currency": currency, "zones": zones, "there": row}

    def put(self, request: HttpRequest, of: Holder, held: Reach, why: str) -> None:
        given = {
            "amount": _amount(request.POST.get("amount", "")),
            "zone": request.POST.get("zone", "").strip() or "UTC",
            "hard": request.POST.get("hard", "yes") == "yes",
            "warn_at": _share(request.POST.get("warn_at", "")),
        }
        service.put(actor=actors.of_request(request), of=of, period=_period(request), **given, why=why)

    def remove(self, request: HttpRequest, of: Holder) -> None:
        service.remove(actor=actors.of_request(request), of=of, period=_period(request))


def rows(held: Reach) -> list[BudgetRow]:
    """Budgets in reach, in the order of the tree."""
    return [_row(item) for item in budgets_now(datetime.now(UTC), held)]


def _row(item: BudgetNow) -> BudgetRow:
    budget, path = item.row, holders.path(item.row.of)
    top = max(item.spent, budget.micro, 1)
    look, word = LOOKS[item.standing]
    return BudgetRow(
        id=budget.of_id,
        kind=holders.kind(budget.of),
        name=budget.name,
        path=" / ".join(path),
        depth=len(path) - 1,
        period=budget.period,
        hard=budget.hard,
        spent=format_money(item.spent, settings.CONFIG.currency),
        amount=format_money(budget.micro, settings.CONFIG.currency),
        share=100 * item.spent / budget.micro if budget.micro else None,
        within=percent(min(item.spent, budget.micro), top) or 0.0,
        over=percent(item.spent - budget.micro, top) or 0.0,
        warn=None if budget.warn_at is None else percent(budget.warn_at * budget.micro, top),
        full=percent(budget.micro, top) or 0.0,
        look=look,
        word=word,
        resets_at=item.span.end,
        zone=budget.zone,
        resets_there=f"{item.span.end.astimezone(budget.tz):%Y-%m-%d %H:%M}",
    )


def _period(request: HttpRequest) -> str:
    return str(request.GET.get("period", ""))


def _amount(text: str) -> Decimal | None:
    """As it is written, thousands with commas or without; None: nothing. Raises Refused."""
    text = text.strip().replace(",", "")
    try:
        value = Decimal(text) if text else None
    except InvalidOperation:
        value = Decimal("NaN")
    if value is not None and not value.is_finite():
        raise Refused(Kind.INVALID, "invalid_value", f"amount: {text[:32]!r} is no amount.", param="amount")
    return value


def _share(text: str) -> float | None:
    """Percent as a share; None: never. Raises Refused."""
    text = text.strip().removesuffix("%").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise Refused(
            Kind.INVALID, "invalid_value", "warn_at: write percent from 0 to 100; empty: never.", param="warn_at"
        )
    return value / 100


PAGES = BudgetPages()
