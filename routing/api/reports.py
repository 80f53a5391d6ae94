"""/usage/report, /requests/{id}."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpResponse
from django.utils.dateparse import parse_date
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.services import access
from routing import selectors
from routing.api.serializers import ReportOut, RequestOut
from routing.api.views import Usage, wrong
from routing.domain import reports
from routing.domain.costs import MILLION
from routing.domain.rollups import SUMS

SPAN = timedelta(days=30)
"""Of a report whose first day nobody names."""
FILTERS = {
    "model": "model_asked", "served": "model_served", "target": "alias_target", "key": "key_id", "project": "project_id",
}  # fmt: skip
NAMED = frozenset({"key", "project", "team", "organisation"})
"""What has a name beside its id."""
FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""What a cell begins with that a spreadsheet would work out. Source: OWASP, "CSV Injection"."""
SCOPES = {"team": "team_id", "organisation": "team__organisation_id"}
SEE = "routing.view_usagerecord"


class Reports(viewsets.GenericViewSet[Any]):
    """Sums of usage by day, key, model and scope."""

    queryset = selectors.days()
    needs = {"report": (SEE,)}
    in_scopes = frozenset({"report"})

    @extend_schema(
        parameters=[
            OpenApiParameter("by", description=f"What to add up by, comma-separated: {', '.join(reports.COLUMNS)}."),
            OpenApiParameter("since", date, description="First day, of UTC; left out: 30 days before `until`."),
            OpenApiParameter("until", date, description="Day after the last one; left out: tomorrow."),
            *(OpenApiParameter(name, description=f"Only of this {name}.") for name in (*FILTERS, *SCOPES)),
            OpenApiParameter("as", enum=["json", "csv"], description="csv: a table for spreadsheets."),
        ],
        responses={(200, "application/json"): ReportOut, (200, "text/csv"): OpenApiTypes.STR},
    )
    def report(self, request: Request) -> Response | HttpResponse:
        """Requests, tokens and costs. It reads sums that are kept by day, so a year is as quick as a day."""
        by = request.query_params.get("by", "model").split(",")
        if not set(by) <= reports.COLUMNS.keys() or len(set(by)) < len(by):
            raise wrong("by", f"Write some of {', '.join(reports.COLUMNS)}, each once.")
        until = self._day("until") or datetime.now(UTC).date() + timedelta(days=1)
        since = self._day("since") or max(date.min + SPAN, until) - SPAN
        shape = request.query_params.get("as", "json")
        if shape not in ("json", "csv"):
            raise wrong("as", "Write json or csv.")
        found = selectors.report(self._rows(since, until), by)
        if shape == "csv":
            return _csv(found, by)
        told = {"by": by, "since": since, "until": until, "currency": settings.CONFIG.currency}
        return Response({**told, "results": found, "total": reports.total(found)})

    def _rows(self, since: date, until: date) -> QuerySet[Any]:
        """Of these days and filters, and of the projects that the caller may see."""
        asked = {
            column: value.replace("\x00", "�")
            for name, column in {**FILTERS, **SCOPES}.items()
            if (value := self.request.query_params.get(name))
        }
        scopes = {SCOPES[name]: asked.pop(SCOPES[name]) for name in SCOPES if SCOPES[name] in asked}
        rows = self.get_queryset().filter(day__gte=since, day__lt=until, **asked)
        if scopes:
            rows = rows.filter(project_id__in=selectors.projects_of(**scopes))
        projects = access.project_ids(access.reach(self.request.user, SEE))
        return rows if projects is None else rows.filter(project_id__in=projects)

    def _day(self, name: str) -> date | None:
        text = self.request.query_params.get(name)
        if not text:
            return None
        try:
            day = parse_date(text)
        except ValueError:
            day = None
        if day is None:
            raise wrong(name, "Write a day such as 2026-01-31.")
        return day


def _csv(rows: Sequence[dict[str, Any]], by: Sequence[str]) -> HttpResponse:
    """The same rows; costs in units of the currency. What a spreadsheet would take for a formula is quoted."""
    names = [*(column for name in by for column in (name, f"{name}_name") if column == name or name in NAMED), *SUMS]
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow([*names, "currency"])
    for row in rows:
        cells = [_cell(row[name]) if name not in SUMS else row[name] for name in names]
        cells[-1] = f"{row['cost'] // MILLION}.{row['cost'] % MILLION:06d}"
        table.writerow([*cells, settings.CONFIG.currency])
    answer = HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8")
    answer.headers["Content-Disposition"] = 'attachment; filename="usage.csv"'
    return answer


def _cell(value: Any) -> str:
    text = str(value)
    return f"'{text}" if text.startswith(FORMULA) else text


class Requests(Usage):
    """One request by the id that its client was told (`x-request-id`), or by its record's."""

    in_scopes = frozenset({"retrieve"})

    @extend_schema(operation_id="request_retrieve", responses=RequestOut, parameters=[])
    def retrieve(self, request: Request, ref: str) -> Response:
        """Of several with one request id the newest; `others` names the rest."""
        found = selectors.follow(self.get_queryset(), ref)
        found_as = {name: getattr(found, name) for name in found.__dataclass_fields__}
        return Response(RequestOut({**found_as, "currency": settings.CONFIG.currency}).data)
