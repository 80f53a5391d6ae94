"""/models/…/restart, retry, scale, target and why: orders about a model that runs, and why it stands as it does."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.models import Model
from catalog.selectors import events_about, find
from catalog.services import actors
from cluster import selectors
from cluster.api.serializers import Strict
from cluster.services import standing
from llmgw_site.lib.errors import Kind, Refused

NEWEST = 50
"""Decisions that are shown."""


class OrderIn(Strict):
    why = serializers.CharField(max_length=1000, required=False, allow_blank=True, help_text="For the event.")


class RestartIn(OrderIn):
    in_place = serializers.BooleanField(
        required=False, default=False, help_text="Stop each replica before its successor starts, also where both fit."
    )


class RestartOut(serializers.Serializer[Any]):
    replicas = serializers.IntegerField(help_text="To be replaced, one after the other.")


class ScaleIn(OrderIn):
    replicas = serializers.IntegerField(
        required=False, min_value=0, max_value=10_000, help_text="That run whatever the load."
    )
    max_replicas = serializers.IntegerField(
        required=False,
        allow_null=True,
        min_value=0,
        max_value=10_000,
        help_text="Under load; null: no more than these.",
    )
    rest_after = serializers.FloatField(
        required=False,
        allow_null=True,
        min_value=0.1,
        max_value=86_400,
        help_text="Seconds without a request until one on demand stops; null: LLMGW_REST_AFTER.",
    )


class ScaleOut(serializers.ModelSerializer[Model]):
    class Meta:
        model = Model
        fields = ["id", "name", "replicas", "max_replicas", "rest_after"]
        read_only_fields = fields


class TargetIn(OrderIn):
    tps = serializers.FloatField(min_value=0.001, max_value=10_000_000_000, help_text="Tokens a second, all together.")


class TargetOut(serializers.Serializer[Any]):
    replicas = serializers.IntegerField()
    most = serializers.IntegerField(allow_null=True)
    each = serializers.FloatField(help_text="Tokens a second that one replica was measured to give.")


class StandingStatusOut(serializers.Serializer[Any]):
    wanted = serializers.IntegerField()
    ready = serializers.IntegerField()
    code = serializers.CharField(help_text="Empty: nothing is amiss.")
    reason = serializers.CharField()


class StandingOut(serializers.Serializer[Any]):
    """What controllers remember of the model; times are Unix seconds, null: not so now."""

    grown = serializers.IntegerField(help_text="Replicas beyond its base, because of load.")
    pressed_since = serializers.FloatField(allow_null=True)
    quiet_since = serializers.FloatField(allow_null=True)
    asked_at = serializers.FloatField(allow_null=True, help_text="Since when one on demand is awake.")
    used_at = serializers.FloatField(allow_null=True)
    failures = serializers.IntegerField(help_text="Starts in a row that failed.")
    parked_at = serializers.FloatField(allow_null=True)
    parked_code = serializers.CharField()
    parked_message = serializers.CharField()
    restarting = serializers.ListField(child=serializers.CharField(), help_text="Replicas that are still to restart.")


class WaitOut(serializers.Serializer[Any]):
    code = serializers.CharField()
    message = serializers.CharField()
    replica = serializers.CharField(help_text="Empty: the model itself.")


class DecisionOut(serializers.Serializer[Any]):
    at = serializers.DateTimeField()
    actor = serializers.CharField()
    kind = serializers.CharField()
    message = serializers.CharField()
    why = serializers.CharField()


class ModelWhyOut(serializers.Serializer[Any]):
    id = serializers.CharField()
    name = serializers.CharField()
    klass = serializers.CharField(help_text="The class that it has, its own or by its scaling.")
    status = StandingStatusOut()
    standing = StandingOut()
    waits = WaitOut(many=True, help_text="All that it waits for.")
    decisions = DecisionOut(many=True, help_text="The newest first.")


class ModelOrders(viewsets.GenericViewSet[Any]):
    """Orders about one model, by id or name."""

    queryset = Model.objects.all()
    serializer_class = ScaleOut
    lookup_url_kwarg = "ref"
    needs = {
        **dict.fromkeys(("restart", "retry", "scale", "target"), ("catalog.change_model",)),
        "why": ("catalog.view_model", "cluster.view_replica"),
    }

    def get_object(self) -> Model:
        return find(Model.objects.all(), self.kwargs["ref"], noun="model")

    @extend_schema(request=RestartIn, responses={202: RestartOut})
    def restart(self, request: Request, ref: str) -> Response:
        """Replace each replica by a new one: started beside it, then the old one drains."""
        count = standing.restart(actor=self.actor, model=self.get_object(), **self.checked(RestartIn))
        return Response({"replicas": count}, status=202)

    @extend_schema(request=OrderIn, responses={202: ScaleOut})
    def retry(self, request: Request, ref: str) -> Response:
        """Try a model again that is parked or fails to start."""
        row = self.get_object()
        standing.retry(actor=self.actor, model=row, **self.checked(OrderIn))
        return Response(ScaleOut(row).data, status=202)

    @extend_schema(request=ScaleIn, responses=ScaleOut)
    def scale(self, request: Request, ref: str) -> Response:
        """Set how many replicas there are at least and at most. More than find a place are refused with the reason."""
        row = standing.scale(actor=self.actor, model=self.get_object(), **self.checked(ScaleIn))
        return Response(ScaleOut(row).data)

    @extend_schema(request=TargetIn, responses=TargetOut)
    def target(self, request: Request, ref: str) -> Response:
        """Size a model for so many tokens a second, by what one replica was measured to give."""
        sized = standing.target(actor=self.actor, model=self.get_object(), **self.checked(TargetIn))
        return Response(TargetOut(asdict(sized)).data)

    @extend_schema(responses=ModelWhyOut)
    def why(self, request: Request, ref: str) -> Response:
        """How a model stands now, what it waits for, and what was decided about it, with the figures behind it."""
        row = self.get_object()
        now = selectors.database_now()
        world = selectors.world(now)
        plan, statuses = selectors.statuses(world, now)
        view = world.model(row.pk)
        if view is None:
            raise Refused(Kind.NOT_FOUND, "not_found", "This model was removed meanwhile.")
        waits = [item for item in plan.waits if item.model_id == row.pk]
        status = statuses[row.pk]
        return Response(
            ModelWhyOut(
                {
                    "id": row.pk,
                    "name": row.name,
                    "klass": view.klass.name.lower(),
                    "status": status,
                    "standing": view.standing,
                    "waits": [{"code": w.code, "message": w.message, "replica": w.replica_id} for w in waits],
                    "decisions": events_about(row.pk)[:NEWEST],
                }
            ).data
        )

    def checked(self, shape: type[serializers.Serializer[Any]]) -> dict[str, Any]:
        body = shape(data=self.request.data)
        body.is_valid(raise_exception=True)
        return dict(body.validated_data)

    @property
    def actor(self) -> str:
        return actors.of_request(self.request)
