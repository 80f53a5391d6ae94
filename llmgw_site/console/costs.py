"""The costs page: what was asked and what it cost, by day, model, scope and key, and the budgets; and the page of one request."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from catalog.services import access as scoped
from llmgw_site.console import access, budgets
from llmgw_site.console.figures import percent
from llmgw_site.console.theme import MAY_SEE_BUDGETS, MAY_SEE_USAGE
from llmgw_site.console.views import Tile
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.units import format_money, format_seconds
from routing import selectors
from routing.domain import reports

DAYS = (7, 30, 90, 365)
FINEST = {7: "day,model,project,key", 30: "day,model,project", 90: "day,model,project", 365: "month,model,project,key"}
"""What the CSV of so many days is by: as fine as a report may be where a thousand keys are used each day."""
TABLES = (("model", "Models"), ("project", "Projects"), ("key", "Keys"))
MOST = 25
"""Rows of a table; the CSV has them all."""
WORDS = {
    "queue": "in the queue", "schedule": "until its place was found", "first_token": "until its first token", "answer": "until its end", "upstream": "until its end",
    "gateway": "at the gateway, sent to nobody",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A day of the chart: `height` of 100, `title` its figures."""

    x: float
    width: float
    height: float
    title: str


@access.page(*MAY_SEE_USAGE, in_scopes=True)
@require_http_methods(["GET", "HEAD"])
def usage(request: HttpRequest) -> HttpResponse:
    """`?days=` back from today, in UTC."""
    asked = request.GET.get("days", "")
    days = int(asked) if asked.isdecimal() and len(asked) < 5 and int(asked) in DAYS else 30
    until = datetime.now(UTC).date() + timedelta(days=1)
    since = until - timedelta(days=days)
    projects = scoped.project_ids(scoped.reach(request.user, MAY_SEE_USAGE[0]))
    rows = selectors.days().filter(day__gte=since, day__lt=until)
    rows = rows if projects is None else rows.filter(project_id__in=projects)
    by_day = selectors.report(rows, ["day"])
    total = reports.total(by_day)
    tables = [(kind, title, selectors.report(rows, [kind])) for kind, title in TABLES]
    purses = scoped.reach(request.user, MAY_SEE_BUDGETS[0])
    context: dict[str, Any] = {
        "days": days,
        "choices": [(n, "a year" if n == 365 else f"{n} days") for n in DAYS],
        "tiles": _tiles(total),
        "bars": _bars(by_day, since, days, costs=bool(total["cost"])),
        "shows": "cost" if total["cost"] else "requests",
        "since": since,
        "last": until - timedelta(days=1),
        "tables": [(title, _table(kind, found, total), max(0, len(found) - MOST)) for kind, title, found in tables],
        "csv": "/api/v1/usage/report?" + urlencode({"by": FINEST[days], "since": since, "until": until, "as": "csv"}),
        "budgets": budgets.rows(purses) if purses.anywhere else None,
    }
    return access.show(request, "console/costs.html", "Usage and costs", **context)


@access.page(*MAY_SEE_USAGE, in_scopes=True)
@require_http_methods(["GET", "HEAD"])
def one(request: HttpRequest, ref: str) -> HttpResponse:
    """One request by its own id or its record's."""
    projects = scoped.project_ids(scoped.reach(request.user, MAY_SEE_USAGE[0]))
    rows = selectors.usage() if projects is None else selectors.usage().filter(project_id__in=projects)
    try:
        found = selectors.follow(rows, ref)
    except Refused as refused:
        raise Http404(refused.message) from None
    whole = found.record.total_s or 1.0
    parts = [
        (
            WORDS[item.name],
            format_seconds(item.length_s),
            100 * item.start_s / whole,
            max(0.5, 100 * item.length_s / whole),
        )
        for item in found.spans
    ]
    line = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in found.line.items()
        if value is not None
    }
    scope = " / ".join(filter(None, (found.project.organisation_name, found.project.team_name, found.project.name)))
    cost = "" if found.record.cost is None else money(found.record.cost)
    return access.show(
        request,
        "console/request.html",
        "Request",
        row=found.record,
        found=found,
        parts=parts,
        line=line,
        scope=scope,
        cost=cost,
    )


def money(micro: int) -> str:
    return format_money(micro, settings.CONFIG.currency)


def _tiles(total: dict[str, int]) -> tuple[Tile, ...]:
    sent, cached = total["prompt_tokens"], total["cached_tokens"]
    shared, heard = percent(cached, sent), f"; {total['audio_seconds']:,} s of sound" if total["audio_seconds"] else ""
    return (
        Tile(title="Cost", value=money(total["cost"]), unit="", note="of models that have a price"),
        Tile(title="Requests", value=f"{total['requests']:,}", unit="", note=f"{total['failed']:,} failed, {total['refused']:,} refused"),
        Tile(title="Tokens in", value=f"{sent:,}", unit="", note=f"{shared or 0:.0f} % from caches{heard}"),
        Tile(title="Tokens out", value=f"{total['completion_tokens']:,}", unit="", note=f"{total['reasoning_tokens']:,} of them reasoning"),
    )  # fmt: skip


def _bars(rows: list[dict[str, Any]], since: Any, days: int, *, costs: bool) -> list[Bar]:
    """One for each day, also for those on which nothing was."""
    name = "cost" if costs else "requests"
    known = {row["day"]: row for row in rows}
    top = max((row[name] for row in rows), default=0) or 1
    step = 100 / days
    bars = []
    for place in range(days):
        day = since + timedelta(days=place)
        row = known.get(day)
        told = f"{day}: nothing" if row is None else f"{day}: {row['requests']:,} requests, {money(row['cost'])}"
        bars.append(Bar(x=place * step, width=step * 0.8, height=100 * row[name] / top if row else 0.0, title=told))
    return bars


def _table(kind: str, rows: list[dict[str, Any]], total: dict[str, int]) -> list[dict[str, Any]]:
    by = "cost" if total["cost"] else "requests"
    return [
        {
            **row,
            "label": row.get(f"{kind}_name") or row[kind] or "none",
            "money": money(row["cost"]),
            "share": percent(row[by], total[by]) or 0.0,
        }
        for row in rows[:MOST]
    ]
