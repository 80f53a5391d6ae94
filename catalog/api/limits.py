"""/limits: how much of the endpoint keys, projects, teams and organisations may use at a time and in a minute."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.api.serializers import Strict
from catalog.models import Limit
from catalog.models.limits import MOST
from catalog.services import access, actors, holders, limits


def _figure(text: str) -> serializers.IntegerField:
    return serializers.IntegerField(min_value=0, max_value=MOST, required=False, allow_null=True, help_text=text)


class LimitIn(Strict):
    """All of a limit: what is left out is not limited."""

    requests_per_minute = _figure("Requests that are let in within a minute.")
    tokens_per_minute = _figure("Tokens of requests and answers together within a minute.")
    parallel = _figure("Requests at a time.")
    why = serializers.CharField(max_length=1000, required=False, allow_blank=True, help_text="For the event.")


class LimitOut(serializers.Serializer[Any]):
    id = serializers.CharField(help_text="Of the organisation, team, project or key.")
    kind = serializers.ChoiceField(["organisation", "team", "project", "key"])
    name = serializers.CharField()
    path = serializers.ListField(child=serializers.CharField(), help_text="Names from the organisation down.")
    requests_per_minute = serializers.IntegerField(source="limit.requests_per_minute", allow_null=True)
    tokens_per_minute = serializers.IntegerField(source="limit.tokens_per_minute", allow_null=True)
    parallel = serializers.IntegerField(source="limit.parallel", allow_null=True)


SEE = "catalog.view_limit"
_REF = OpenApiParameter(
    "ref",
    location="path",
    description="Id or name of the organisation, team, project or key; `team:NAME`, `key:NAME` where names repeat.",
)


class Limits(viewsets.GenericViewSet[Any]):
    """Limits of the endpoint. A request counts for its key and for each scope above, and passes if each has room."""

    queryset = Limit.objects.order_by("id")
    serializer_class = LimitOut
    lookup_url_kwarg = "ref"
    needs: ClassVar[dict[str, tuple[str, ...]]] = {"update": ("catalog.add_limit", "catalog.change_limit")}
    in_scopes = frozenset({"list", "retrieve", "update", "destroy"})

    def list(self, request: Request) -> Response:
        """What has a limit, in the order of the tree."""
        rows = self.paginate_queryset(limits.shown(access.reach(request.user, SEE)))  # type: ignore[arg-type]
        return self.get_paginated_response(LimitOut(rows, many=True).data)

    @extend_schema(parameters=[_REF])
    def retrieve(self, request: Request, ref: str) -> Response:
        return Response(LimitOut(limits.show(holders.reached(request.user, ref, see=SEE))).data)

    @extend_schema(parameters=[_REF], request=LimitIn)
    def update(self, request: Request, ref: str) -> Response:
        """Set a limit in place of the one there may be. It counts for the next request, within a second."""
        shape = LimitIn(data=request.data)
        shape.is_valid(raise_exception=True)
        of = holders.reached(request.user, ref, see=SEE, needs=self.needs["update"])
        limits.put(actor=actors.of_request(request), of=of, **shape.validated_data)
        return Response(LimitOut(limits.show(of)).data)

    @extend_schema(parameters=[_REF])
    def destroy(self, request: Request, ref: str) -> Response:
        of = holders.reached(request.user, ref, see=SEE, needs=["catalog.delete_limit"])
        limits.remove(actor=actors.of_request(request), of=of)
        return Response(status=204)
