"""/budgets: what keys, projects, teams and organisations may cost in a day or a month, and what they did."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.domain.budgets import Period
from catalog.models import Budget
from catalog.models.budgets import MOST
from catalog.services import access, actors, budgets, holders
from catalog.services.access import EVERYWHERE, Holder, Reach
from cluster import selectors as cluster
from routing import services
from routing.api.serializers import Strict


class BudgetIn(Strict):
    """Of a budget that is there, what is left out stays."""

    amount = serializers.DecimalField(
        16, 6, min_value=0, max_value=MOST, required=False, help_text="In LLMGW_CURRENCY; needed of a new one."
    )
    zone = serializers.CharField(
        max_length=64, required=False, help_text="Time zone of its midnights; UTC of a new one if left out."
    )
    hard = serializers.BooleanField(
        required=False, help_text="Refuse what costs something once it is spent; so if left out."
    )
    warn_at = serializers.FloatField(
        min_value=0,
        max_value=1,
        required=False,
        allow_null=True,
        help_text="Share at which it is told first; 0.8; null: never.",
    )
    why = serializers.CharField(max_length=1000, required=False, allow_blank=True, help_text="For the event.")


class BudgetOut(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="Of the organisation, team, project or key.")
    kind = serializers.ChoiceField(["organisation", "team", "project", "key"])
    name = serializers.CharField()
    path = serializers.ListField(child=serializers.CharField(), help_text="Names from the organisation down.")
    period = serializers.ChoiceField([item.value for item in Period])
    amount = serializers.DecimalField(16, 6)
    currency = serializers.CharField()
    zone = serializers.CharField()
    hard = serializers.BooleanField()
    warn_at = serializers.FloatField(allow_null=True)
    spent = serializers.DecimalField(22, 6, help_text="In this period, by the records that have come.")
    standing = serializers.ChoiceField(["ok", "warned", "spent"])
    since = serializers.DateTimeField(help_text="Begin of this period.")
    resets_at = serializers.DateTimeField(help_text="Begin of the next one.")


SEE = "catalog.view_budget"
_AT = [
    OpenApiParameter(
        "ref",
        location="path",
        description="Id or name of the organisation, team, project or key; `team:NAME`, `key:NAME` where names repeat.",
    ),
    OpenApiParameter("period", location="path", enum=[item.value for item in Period]),
]


class Budgets(viewsets.GenericViewSet[Any]):
    """Budgets in money. A request counts for its key and for each scope above it."""

    queryset = Budget.objects.order_by("id")
    serializer_class = BudgetOut
    needs: ClassVar[dict[str, tuple[str, ...]]] = {"update": ("catalog.add_budget", "catalog.change_budget")}

    in_scopes = frozenset({"list", "retrieve", "update", "destroy"})

    def list(self, request: Request) -> Response:
        """What has a budget, in the order of the tree."""
        rows = self.paginate_queryset(_shown(access.reach(request.user, SEE)))  # type: ignore[arg-type]
        return self.get_paginated_response(BudgetOut(rows, many=True).data)

    @extend_schema(parameters=_AT)
    def retrieve(self, request: Request, ref: str, period: str) -> Response:
        return self._one(holders.reached(request.user, ref, see=SEE), period)

    @extend_schema(parameters=_AT, request=BudgetIn)
    def update(self, request: Request, ref: str, period: str) -> Response:
        """Set a budget. Nodes go by it seconds later."""
        shape = BudgetIn(data=request.data)
        shape.is_valid(raise_exception=True)
        of = holders.reached(request.user, ref, see=SEE, needs=self.needs["update"])
        budgets.put(actor=actors.of_request(request), of=of, period=period, **shape.validated_data)
        return self._one(of, period)

    @extend_schema(parameters=_AT)
    def destroy(self, request: Request, ref: str, period: str) -> Response:
        of = holders.reached(request.user, ref, see=SEE, needs=["catalog.delete_budget"])
        budgets.remove(actor=actors.of_request(request), of=of, period=period)
        return Response(status=204)

    def _one(self, of: Holder, period: str) -> Response:
        row = budgets.found(of, period)
        return Response(BudgetOut(next(item for item in _shown() if item["row"] == row.pk)).data)


def _shown(held: Reach = EVERYWHERE) -> list[dict[str, Any]]:
    now = cluster.from_unix(cluster.database_now())
    return [
        {
            "row": item.row.pk,
            "id": item.row.of_id,
            "kind": holders.kind(item.row.of),
            "name": item.row.name,
            "path": holders.path(item.row.of),
            "currency": settings.CONFIG.currency,
            "spent": item.spent_units,
            "standing": item.standing.value,
            "since": item.span.start,
            "resets_at": item.span.end,
            **{name: getattr(item.row, name) for name in ("period", "amount", "zone", "hard", "warn_at")},
        }
        for item in services.budgets_now(now, held)
    ]
