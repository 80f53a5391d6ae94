"""/usage, /usage/summary, /status."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from importlib import metadata
from typing import Any, cast

from django.db.models import QuerySet
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_naive, make_aware
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, serializers, viewsets
from rest_framework.pagination import PageNumberPagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from catalog.services import access
from cluster import selectors as cluster
from cluster.domain.states import NodeState
from cluster.selectors import fleet
from routing import selectors
from routing.api.serializers import StatusOut, UsageOut, UsageSummary

FILTERS = {
    "model": "model_asked",
    "key": "key_id",
    "project": "project_id",
    "node": "node_id",
    "replica": "replica_id",
    "outcome": "outcome",
    "request_id": "request_id",
}
BY = {**{name: FILTERS[name] for name in ("model", "key", "project", "node", "outcome")}, "endpoint": "endpoint"}
FIRST = datetime(1, 1, 2, tzinfo=UTC)
_PARAMETERS = [
    *(OpenApiParameter(name, description=f"Only records with this {name.replace('_', ' ')}.") for name in FILTERS),
    OpenApiParameter("since", datetime, description="Started at this time or later."),
    OpenApiParameter("until", datetime, description="Started before this time."),
]


class Usage(mixins.ListModelMixin, viewsets.GenericViewSet[Any]):
    """One record for each request to the OpenAI endpoint, newest first."""

    queryset = selectors.usage()
    serializer_class = UsageOut
    needs = {"summary": ("routing.view_usagerecord",)}
    in_scopes = frozenset({"list", "summary"})

    def get_queryset(self) -> QuerySet[Any]:
        """Records of the projects that the caller may see."""
        rows: QuerySet[Any] = super().get_queryset()
        if getattr(self, "swagger_fake_view", False):
            return rows
        projects = access.project_ids(access.reach(self.request.user, "routing.view_usagerecord"))
        return rows if projects is None else rows.filter(project_id__in=projects)

    def filter_queryset(self, queryset: QuerySet[Any]) -> QuerySet[Any]:
        asked = {column: self.request.query_params.get(name) for name, column in FILTERS.items()}
        queryset = queryset.filter(**{column: value.replace("\x00", "�") for column, value in asked.items() if value})
        if since := self._time("since"):
            queryset = queryset.filter(started_at__gte=since)
        if until := self._time("until"):
            queryset = queryset.filter(started_at__lt=until)
        return queryset

    def paginate_queryset(self, queryset: Any) -> Any:
        cast("PageNumberPagination", self.paginator).django_paginator_class = selectors.Pages
        return super().paginate_queryset(queryset)

    @extend_schema(parameters=_PARAMETERS)
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """`count` goes no further than 100,000, nor do the pages: `since` and `until` lead to what lies further back."""
        return super().list(request, *args, **kwargs)

    @extend_schema(
        parameters=[
            *_PARAMETERS,
            OpenApiParameter("by", enum=sorted(BY), description="What to sum by; default: model."),
        ],
        responses=UsageSummary,
    )
    def summary(self, request: Request) -> Response:
        """Requests and tokens, summed by one column; of the last day, or the day before `until`, where no `since` is given. It
        reads the records themselves: for more days there is `/usage/report`."""
        by = request.query_params.get("by", "model")
        if by not in BY:
            raise wrong("by", f"There is no such column; there are {', '.join(sorted(BY))}.")
        records = self.filter_queryset(self.get_queryset())
        if self._time("since") is None:
            until = self._time("until") or datetime.now(UTC)
            records = records.filter(started_at__gte=max(until, FIRST) - timedelta(days=1))
        rows = selectors.summary(records, BY[by])
        return Response({"by": by, "results": rows})

    def _time(self, name: str) -> datetime | None:
        text = self.request.query_params.get(name)
        if not text:
            return None
        try:
            moment = parse_datetime(text)
            if moment is not None:
                return (make_aware(moment) if is_naive(moment) else moment).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
        raise wrong(name, "Write a time such as 2026-01-31T12:00:00Z.")


def wrong(name: str, text: str) -> serializers.ValidationError:
    return serializers.ValidationError({name: [serializers.ErrorDetail(text, code="invalid_value")]})


class Status(APIView):
    """The cluster at one moment: nodes by state, every model against what it should have, jobs, requests."""

    needs = {"GET": ("catalog.view_model", "cluster.view_node", "cluster.view_replica", "cluster.view_job")}

    @extend_schema(responses=StatusOut)
    def get(self, request: Request) -> Response:
        now = cluster.database_now()
        world = cluster.world(now)
        _, statuses = cluster.statuses(world, now)
        busy = cluster.in_flight()
        models = [{**asdict(item), "in_flight": busy.get(item.model_id, 0)} for item in statuses.values()]
        states = [node.state for node in world.nodes]
        return Response(
            {
                "at": now,
                "version": metadata.version("llmgw"),
                "snapshot": selectors.published_version(),
                "nodes": {state.value: states.count(state) for state in NodeState},
                "node_versions": cluster.node_versions(),
                "problems": fleet.problems(),
                "models": models,
                "short": [item.name for item in statuses.values() if item.short],
                "jobs": cluster.open_jobs(),
                "requests_now": sum(busy.values()),
            }
        )
