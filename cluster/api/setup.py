"""/cluster/setup: which node runs what, set once for the whole cluster."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.services import actors
from cluster.api.serializers import Strict
from cluster.models import ClusterSetup
from cluster.services import setup


def _roles(**options: Any) -> serializers.ListField:
    return serializers.ListField(child=serializers.CharField(max_length=40), max_length=20, **options)


class SetupIn(Strict):
    """All of the setup: what is left out is cleared."""

    controller_tier = _roles(required=False, help_text="Roles that every controller runs beside its own.")
    nodes = serializers.DictField(child=_roles(), required=False, help_text="Name or id of a node -> its roles.")
    version = serializers.IntegerField(
        min_value=0, required=False, help_text="The version that this change was made from: refused if it is another."
    )
    reason = serializers.CharField(max_length=1000, required=False, allow_blank=True)


class SetupOut(serializers.Serializer[Any]):
    controller_tier = _roles()
    nodes = serializers.DictField(child=_roles(), help_text="Name of a node -> its roles.")
    version = serializers.IntegerField()
    updated_at = serializers.DateTimeField(allow_null=True)
    updated_by = serializers.CharField()


class ClusterSetupView(viewsets.GenericViewSet[Any]):
    """Which node runs what. A node that is named here follows its list with its next heartbeat."""

    queryset = ClusterSetup.objects.all()
    serializer_class = SetupOut

    def retrieve(self, request: Request) -> Response:
        return Response(SetupOut(setup.get()).data)

    @extend_schema(request=SetupIn)
    def update(self, request: Request) -> Response:
        """Replace the setup. `{}` clears it: every node goes by its own roles again."""
        shape = SetupIn(data=request.data)
        shape.is_valid(raise_exception=True)
        data = shape.validated_data
        view = setup.put(
            actor=actors.of_request(request),
            controller_tier=data.get("controller_tier", []),
            nodes=data.get("nodes", {}),
            version=data.get("version"),
            why=data.get("reason", ""),
        )
        return Response(SetupOut(view).data)
