"""/models/{ref}/adapters: LoRA adapters, each asked for by a name of its own."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import selectors
from catalog.api.rows import Rows
from catalog.api.serializers import Strict
from catalog.models import Adapter
from catalog.services import adapters


class AdapterOut(serializers.ModelSerializer[Adapter]):
    model_name = serializers.CharField(source="model.name", read_only=True)
    repository = serializers.SerializerMethodField(
        help_text="Where its version comes from; empty: a file on the nodes."
    )
    commit = serializers.SerializerMethodField()
    facts = serializers.DictField(read_only=True, help_text="What its file says: format, architecture, rank, alpha, …")

    class Meta:
        model = Adapter
        fields = ["id", "name", "model", "model_name", "path", "version", "repository", "commit", "size", "scale", "facts", "created_at"]  # fmt: skip
        read_only_fields = fields

    def get_repository(self, row: Adapter) -> str:
        return row.version.repository if row.version is not None else ""

    def get_commit(self, row: Adapter) -> str:
        return row.version.commit if row.version is not None else ""


class AdapterIn(Strict):
    """A file on the nodes (`path`), or one of a repository of the registry, which they fetch."""

    name = serializers.CharField(max_length=128, help_text="What clients put into `model`.")
    path = serializers.CharField(max_length=1024, required=False, help_text="On the nodes and on this machine.")
    repository = serializers.CharField(max_length=200, required=False, help_text="OWNER/REPOSITORY.")
    revision = serializers.CharField(max_length=200, required=False, help_text="A branch, tag or commit; the newest.")
    file = serializers.CharField(max_length=500, required=False, help_text="Which one, where there are several.")
    scale = serializers.FloatField(required=False, help_text="How strongly it applies; 1: as it was trained.")


class ModelAdapters(Rows):
    """Adapters of one model, by id or name."""

    queryset = selectors.adapters()
    serializer_class = AdapterOut
    noun = "adapter"

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):
            return selectors.adapters()
        return selectors.adapters().filter(model=self._model())

    def get_object(self) -> Any:
        return selectors.find(self.get_queryset(), self.kwargs["adapter"], noun="adapter")

    @extend_schema(request=AdapterIn, responses={201: AdapterOut})
    def create(self, request: Request, **kwargs: str) -> Response:
        """Add one; it is read first, and refused if it is not an adapter for this model."""
        return self.show(adapters.add(actor=self.actor, model=self._model(), **self.checked(AdapterIn)), status=201)

    def destroy(self, request: Request, **kwargs: str) -> Response:
        adapters.remove(actor=self.actor, adapter=self.get_object())
        return Response(status=204)

    def _model(self) -> Any:
        return selectors.find(selectors.models_with_profiles(), self.kwargs["ref"], noun="model")
