"""/models/…/resources: what a model reserves, against what was measured."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.models import Model
from catalog.selectors import find
from cluster.selectors.resources import resources_of


class ProfileResources(serializers.Serializer[Any]):
    """What each replica of a profile is given. Bytes."""

    id = serializers.CharField()
    name = serializers.CharField()
    engine = serializers.CharField()
    cores = serializers.IntegerField(help_text="Reserved on each node; 0: none, and the node's own number of threads.")
    memory = serializers.IntegerField(help_text="Of the node's own memory, as it is reserved from now on.")
    memory_source = serializers.ChoiceField(
        ["measured", "declared", "estimated"], help_text="Where that figure comes from."
    )
    memory_declared = serializers.IntegerField(allow_null=True)
    memory_measured = serializers.IntegerField(allow_null=True, help_text="The most that a replica was seen to take.")
    cards = serializers.IntegerField(help_text="Of each node; 0: it runs on the processor.")
    card_memory = serializers.IntegerField(help_text="Of those cards together.")
    card_memory_measured = serializers.IntegerField(allow_null=True)
    card_source = serializers.CharField(help_text="The same of that figure; empty: it uses none.")
    layer = serializers.IntegerField(help_text="The largest piece that cannot be divided over cards.")


class ReplicaResources(serializers.Serializer[Any]):
    id = serializers.CharField()
    node = serializers.CharField()
    profile = serializers.CharField()
    state = serializers.CharField()
    reserved = serializers.IntegerField(help_text="Memory that it holds.")
    memory = serializers.IntegerField(allow_null=True, help_text="Memory that it takes; null: not told.")
    card_memory = serializers.IntegerField(allow_null=True, help_text="What it takes of its cards together.")
    cores = serializers.IntegerField(help_text="That are reserved for it; 0: none.")
    cpu = serializers.FloatField(
        allow_null=True, help_text="Cores that it kept busy in the last seconds, on average; null: not told."
    )
    read_at = serializers.DateTimeField(allow_null=True, help_text="When its node told `memory`, `card_memory`, `cpu`.")
    cards = serializers.DictField(child=serializers.IntegerField(), help_text="Bytes of each of its cards, by UUID.")
    warning = serializers.CharField(help_text="Empty: all is well.")


class ResourcesOut(serializers.Serializer[Any]):
    profiles = ProfileResources(many=True)
    replicas = ReplicaResources(many=True)


class ModelResources(viewsets.GenericViewSet[Any]):
    queryset = Model.objects.all()
    serializer_class = ResourcesOut
    lookup_url_kwarg = "ref"
    needs = {"retrieve": ("catalog.view_model", "cluster.view_replica")}

    @extend_schema(responses=ResourcesOut)
    def retrieve(self, request: Request, ref: str) -> Response:
        """What a model reserves, and what its replicas were measured to take."""
        row = find(Model.objects.all(), ref, noun="model")
        return Response(ResourcesOut(resources_of(row.pk)).data)
