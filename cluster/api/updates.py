"""/updates and /models/…/update, rollback, origin, bench: whether models changed where they come from, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import selectors as catalog
from catalog.models import Adapter, Model
from catalog.selectors import find
from catalog.services import actors, adapter_updates, origins, tracing
from cluster import selectors
from cluster.api.serializers import JobOut, NoFields, Strict
from cluster.selectors.kept import weights_sizes
from cluster.services import updates

TRACES = ["", "traced", "not_found", "ambiguous", "failed"]


class AdapterUpdateOut(serializers.Serializer[Any]):
    """How an adapter stands to its origin, as of a model."""

    id = serializers.CharField()
    name = serializers.CharField()
    repository = serializers.CharField(help_text="Empty: a file on the nodes, and nobody knows where it comes from.")
    commit = serializers.CharField()
    given_by = serializers.CharField(help_text="As of a model.")
    checked_at = serializers.DateTimeField(allow_null=True)
    newest = serializers.CharField()
    changed = serializers.ListField(child=serializers.CharField())
    code = serializers.CharField()
    message = serializers.CharField()
    trace = serializers.ChoiceField(TRACES, help_text="As of a model.")
    trace_message = serializers.CharField()
    traced_at = serializers.DateTimeField(allow_null=True)
    previous = serializers.CharField(help_text="What `rollback` goes back to; empty: nothing.")


class UpdateOut(serializers.Serializer[Any]):
    """How a model stands to its origin. What is not known is null or empty."""

    id = serializers.CharField()
    name = serializers.CharField()
    repository = serializers.CharField(help_text="Empty: nobody knows where its weights come from.")
    commit = serializers.CharField(help_text="That it serves.")
    given_by = serializers.CharField(
        help_text="version: it was fetched from there; who named it; empty: it was traced."
    )
    checked_at = serializers.DateTimeField(allow_null=True, help_text="When its origin was asked last.")
    newest = serializers.CharField(help_text="The commit that was there then.")
    changed = serializers.ListField(child=serializers.CharField(), help_text="Files that were others then.")
    code = serializers.CharField(help_text="Why it could not be asked.")
    message = serializers.CharField()
    trace = serializers.ChoiceField(
        TRACES,
        help_text="What came of looking for it; empty: nobody looked, or it is known otherwise.",
    )
    trace_message = serializers.CharField(help_text="Why it was not found.")
    traced_at = serializers.DateTimeField(allow_null=True, help_text="When it was looked for last.")
    previous = serializers.CharField(help_text="What `rollback` goes back to; empty: nothing.")
    adapters = AdapterUpdateOut(many=True)


class OriginIn(Strict):
    repository = serializers.CharField(
        max_length=200, required=False, allow_blank=True, help_text="OWNER/REPOSITORY; left out: it is looked for."
    )
    commit = serializers.CharField(
        max_length=200,
        required=False,
        allow_blank=True,
        help_text="A commit, maybe shortened, branch or tag; the newest.",
    )


class BenchIn(Strict):
    ttft = serializers.FloatField(
        min_value=0.01, max_value=600, required=False, help_text="Seconds until the first token that count as good; 2."
    )
    seconds = serializers.FloatField(min_value=1, max_value=45, required=False, help_text="Of each try; 10.")
    most = serializers.IntegerField(
        min_value=1,
        max_value=256,
        required=False,
        help_text="Requests at once of a replica at most; four for each slot.",
    )


class Updates(viewsets.GenericViewSet[Any]):
    """Models and their origins."""

    queryset = Model.objects.all()
    serializer_class = UpdateOut
    lookup_url_kwarg = "ref"
    needs = {
        "list": ("catalog.view_model",),
        "check": ("catalog.change_model",),
        "origin": ("catalog.change_model",),
        **dict.fromkeys(("update", "rollback", "bench"), ("catalog.change_model", "cluster.add_job")),
    }

    def get_object(self) -> Model:
        return find(
            catalog.models_with_profiles().select_related("version", "previous"), self.kwargs["ref"], noun="model"
        )

    @extend_schema(responses=UpdateOut(many=True))
    def list(self, request: Request) -> Response:
        """Every model with weights, and what its origin had at the last look."""
        return Response(UpdateOut(_standings(), many=True).data)

    @extend_schema(request=None, responses=UpdateOut)
    def check(self, request: Request, ref: str) -> Response:
        """Ask a model's origin now."""
        row = self.get_object()
        self._asked(NoFields)
        origins.look(row)
        return self._standing(row)

    @extend_schema(request=OriginIn, responses=UpdateOut)
    def origin(self, request: Request, ref: str) -> Response:
        """Say where the weights of a model come from, or have it looked for. Every file has to be there at the same size."""
        row = self.get_object()
        set_origin(request, row, sizes=weights_sizes(row))
        return self._standing(row)

    @extend_schema(request=None, responses={202: JobOut})
    def update(self, request: Request, ref: str) -> Response:
        """Fetch what a model's origin has now beside what it serves, then replace its replicas, one after the other. A job."""
        return self._job("update", self.get_object(), self._asked(NoFields))

    @extend_schema(request=None, responses={202: JobOut})
    def rollback(self, request: Request, ref: str) -> Response:
        """Go back to what a model served before its last update, without fetching. A job."""
        return self._job("rollback", self.get_object(), self._asked(NoFields))

    @extend_schema(request=BenchIn, responses={202: JobOut})
    def bench(self, request: Request, ref: str) -> Response:
        """Find out how many tokens a second a replica gives, and up to how many requests at once it answers in time. A job."""
        return self._job("bench", self.get_object(), self._asked(BenchIn))

    def _asked(self, shape: type[Strict]) -> dict[str, Any]:
        return _asked(self.request, shape)

    def _job(self, kind: str, row: Model, args: dict[str, Any]) -> Response:
        job = updates.begin(kind=kind, model=row, args=args, actor=self.actor)
        return Response(JobOut(selectors.jobs().get(pk=job.pk)).data, status=202)

    def _standing(self, row: Model) -> Response:
        return Response(UpdateOut(_standings(row.pk)[0]).data)

    @property
    def actor(self) -> str:
        return actors.of_request(self.request)


class AdapterUpdates(viewsets.GenericViewSet[Any]):
    """Adapters and their origins."""

    queryset = catalog.adapters()
    serializer_class = AdapterUpdateOut
    lookup_url_kwarg = "adapter"
    needs = {
        "check": ("catalog.change_adapter",),
        "origin": ("catalog.change_adapter",),
        **dict.fromkeys(("update", "rollback"), ("catalog.change_adapter", "cluster.add_job")),
    }

    def get_object(self) -> Adapter:
        model = find(catalog.models_with_profiles(), self.kwargs["ref"], noun="model")
        return find(catalog.adapters().filter(model=model), self.kwargs["adapter"], noun="adapter")

    @extend_schema(request=None, responses=AdapterUpdateOut)
    def check(self, request: Request, ref: str, adapter: str) -> Response:
        """Ask an adapter's origin now."""
        row = self.get_object()
        _asked(request, NoFields)
        adapter_updates.look(row)
        return self._standing(row)

    @extend_schema(request=OriginIn, responses=AdapterUpdateOut)
    def origin(self, request: Request, ref: str, adapter: str) -> Response:
        """Say where an adapter comes from that is a file on the nodes, or have it looked for. As of a model."""
        row = self.get_object()
        set_origin(request, row)
        return self._standing(row)

    def _standing(self, row: Adapter) -> Response:
        told = adapter_updates.standings([row.model_id])[row.model_id]
        return Response(AdapterUpdateOut(next(item for item in told if item["id"] == row.pk)).data)

    @extend_schema(request=None, responses={202: JobOut})
    def update(self, request: Request, ref: str, adapter: str) -> Response:
        """Fetch what an adapter's origin has now, see that it is one for the model, then replace the model's replicas. A job."""
        return self._job("adapter_update")

    @extend_schema(request=None, responses={202: JobOut})
    def rollback(self, request: Request, ref: str, adapter: str) -> Response:
        """Go back to what an adapter was before its last update, without fetching. A job."""
        return self._job("adapter_rollback")

    def _job(self, kind: str) -> Response:
        row = self.get_object()
        _asked(self.request, NoFields)
        job = updates.begin_adapter(kind=kind, adapter=row, actor=actors.of_request(self.request))
        return Response(JobOut(selectors.jobs().get(pk=job.pk)).data, status=202)


def set_origin(request: Request, of: origins.Subject, sizes: Mapping[str, int | None] | None = None) -> None:
    """As the body says: a repository that is named, or one that is looked for. Raises Refused."""
    asked = _asked(request, OriginIn)
    actor = actors.of_request(request)
    if asked.get("repository"):
        named = {"repository": asked["repository"], "commit": asked.get("commit", "")}
        origins.give(actor=actor, of=of, **named, sizes=sizes)
    else:
        tracing.trace(actor=actor, of=of, sizes=sizes)


def _asked(request: Request, shape: type[Strict]) -> dict[str, Any]:
    body = shape(data=request.data)
    body.is_valid(raise_exception=True)
    return dict(body.validated_data)


def _standings(model_id: str = "") -> list[dict[str, Any]]:
    told = adapter_updates.standings([model_id] if model_id else ())
    return [{**row, "adapters": told.get(row["id"], [])} for row in origins.standings(model_id)]
