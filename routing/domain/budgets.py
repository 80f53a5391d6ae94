"""Budgets in money at the edge that a client asked: what is refused, and what its answers say. Pure.

The snapshot tells of budgets of which a warning share or all is spent, and of no others: whoever has none of these costs nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from llmgw_site.lib.errors import Kind, Refused
from routing.domain.costs import told
from routing.domain.snapshot import PriceEntry
from routing.domain.tenancy import Purse

HEADER = b"x-llmgw-budget"


def stand(purses: Iterable[Purse], price: PriceEntry | None, now: float) -> list[tuple[bytes, bytes]]:
    """Headers for the answer; `now` is Unix time, `price` that of the model. Raises Refused 429 `budget_spent`.

    1. its period is over       nothing: the controllers will say how the new one stands
    2. all of it is spent       refused, if it is hard, and the model costs something
    3. else                     told in a header
    """
    lines = []
    for purse in purses:
        if now >= purse.budget.resets_at:  # 1
            continue
        if forbids(purse, price, now):  # 2
            raise _refused(purse, now)
        lines.append((HEADER, _line(purse).encode()))  # 3
    return lines


def forbids(purse: Purse, price: PriceEntry | None, now: float) -> bool:
    """Whether this budget stands against a model of that price: it is hard, all of it is spent, and the model costs something."""
    entry = purse.budget
    costs = price is not None and bool(price.input or price.output)
    return costs and entry.hard and entry.spent >= entry.amount and now < entry.resets_at


def _line(purse: Purse) -> str:
    """`project shop; 85.00 of 100.00 USD a month; resets 2026-04-01T00:00:00Z`; a name that no header may have is left out."""
    entry = purse.budget
    who = f"{purse.kind} {purse.name}" if purse.name.isascii() and purse.name.isprintable() else purse.kind
    return f"{who}; {_figures(purse)}; resets {_time(entry.resets_at)}"


def _figures(purse: Purse) -> str:
    entry = purse.budget
    spent, amount = told(entry.spent, ""), told(entry.amount, entry.currency)
    return f"{spent} of {amount} a {entry.period}"


def _time(moment: float) -> str:
    return f"{datetime.fromtimestamp(moment, tz=UTC):%Y-%m-%dT%H:%M:%SZ}"


def _refused(purse: Purse, now: float) -> Refused:
    entry = purse.budget
    when = _time(entry.resets_at)
    text = (
        f"The budget of the {purse.kind} {purse.name} is spent ({_figures(purse)}): it begins anew at {when}; until then ask for "
        "a model that costs nothing, or have the budget raised."
    )
    extra = {
        "budget": entry.budget_id,
        "scope": purse.kind,
        "scope_name": purse.name,
        "spent": told(entry.spent, entry.currency),
        "amount": told(entry.amount, entry.currency),
        "resets_at": when,
    }
    return Refused(Kind.LIMITED, "budget_spent", text, retry_after=max(1.0, entry.resets_at - now), extra=extra)
