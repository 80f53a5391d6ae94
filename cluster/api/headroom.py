"""/models/…/headroom: how many more replicas of a model fit, and who would make room for one more."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.models import Model
from catalog.selectors import find
from cluster import selectors
from cluster.domain.headroom import Headroom, headroom
from cluster.domain.types import World
from cluster.domain.victims import size_of
from llmgw_site.lib.errors import Kind, Refused


class PlacesOut(serializers.Serializer[Any]):
    node = serializers.CharField()
    profile = serializers.CharField()
    count = serializers.IntegerField()


class VictimOut(serializers.Serializer[Any]):
    """A replica that would be stopped for one more of the model, were that wanted."""

    replica = serializers.CharField()
    model = serializers.CharField()
    klass = serializers.CharField(help_text="critical, standard or opportunistic.")
    node = serializers.CharField()
    in_flight = serializers.IntegerField(help_text="Requests that it works at.")
    bytes = serializers.IntegerField(help_text="Of memory and of cards that it holds.")
    ground = serializers.CharField(help_text="class, grown, turn or borrowed: why it gives way.")


class HeadroomOut(serializers.Serializer[Any]):
    model = serializers.CharField()
    fits = serializers.IntegerField(help_text="More replicas that fit now.")
    counted = serializers.BooleanField(help_text="False: at least so many, the rest was not counted.")
    allowed = serializers.IntegerField(help_text="More replicas that its own maximum allows.")
    places = PlacesOut(many=True)
    code = serializers.CharField(help_text="Why one more does not fit.")
    message = serializers.CharField()
    room_from = VictimOut(many=True, help_text="All of these, and only these, would make room for one more.")
    reason = serializers.CharField(help_text="The same in words.")


class ModelHeadroom(viewsets.GenericViewSet[Any]):
    """Room for more replicas of a model, by id or name."""

    queryset = Model.objects.all()
    serializer_class = HeadroomOut
    lookup_url_kwarg = "ref"
    needs = {"retrieve": ("catalog.view_model", "cluster.view_replica", "cluster.view_node")}

    @extend_schema(responses=HeadroomOut)
    def retrieve(self, request: Request, ref: str) -> Response:
        """How many more replicas fit now, node by node, and which others would have to stop for one more."""
        row = find(Model.objects.all(), ref, noun="model")
        now = selectors.database_now()
        world = selectors.world(now)
        model = world.model(row.pk)
        if model is None:
            raise Refused(Kind.NOT_FOUND, "not_found", "This model was removed meanwhile.")
        return Response(HeadroomOut(_told(world, model.name, headroom(world, model, now))).data)


def _told(world: World, name: str, found: Headroom) -> dict[str, Any]:
    victims = []
    for item in found.victims:
        replica = item.replica
        model, node = world.model(replica.model_id), world.node(replica.node_id)
        victims.append(
            {
                "replica": replica.id,
                "model": model.name if model else replica.model_id,
                "klass": model.klass.name.lower() if model else "",
                "node": node.name if node else replica.node_id,
                "in_flight": replica.in_flight,
                "bytes": size_of(replica),
                "ground": item.ground.value,
            }
        )
    return {
        "model": name,
        "fits": found.fits,
        "counted": found.counted,
        "allowed": found.allowed,
        "places": found.places,
        "code": found.code,
        "message": found.message,
        "room_from": victims,
        "reason": found.reason,
    }
