"""/aliases: names that stand for one of several models, by weight."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import selectors
from catalog.api.rows import Rows
from catalog.api.serializers import Strict
from catalog.models import Alias
from catalog.models.aliases import MAX_WEIGHT
from catalog.services import aliases
from catalog.services.aliases import MAX_TARGETS


class AliasTargetOut(serializers.Serializer[Any]):
    """What an alias stands for."""

    model = serializers.CharField(help_text="Name of a model or an adapter.")
    kind = serializers.ChoiceField(["model", "adapter"])
    id = serializers.CharField()
    weight = serializers.IntegerField()
    share = serializers.FloatField(help_text="Of requests, from 0 to 1: its weight of the sum of all.")


class AliasOut(serializers.ModelSerializer[Alias]):
    targets = serializers.SerializerMethodField(help_text="The largest share first.")

    class Meta:
        model = Alias
        fields = ["id", "name", "description", "targets", "created_at", "updated_at"]
        read_only_fields = fields

    @extend_schema_field(AliasTargetOut(many=True))
    def get_targets(self, row: Alias) -> list[dict[str, Any]]:
        return [
            {"model": item.name, "kind": item.kind, "id": item.id, "weight": item.weight, "share": item.share}
            for item in aliases.shown(row)
        ]


class AliasTargetIn(Strict):
    model = serializers.CharField(max_length=128, help_text="Name or id of a model or an adapter.")
    weight = serializers.IntegerField(
        min_value=1, max_value=MAX_WEIGHT, default=1, help_text="Of the sum of all weights the share of requests."
    )


class AliasIn(Strict):
    name = serializers.CharField(max_length=128, help_text="What clients put into `model`; nothing else has it.")
    targets = serializers.ListField(
        child=AliasTargetIn(),
        min_length=1,
        max_length=MAX_TARGETS,
        help_text="All of them: those that are left out go.",
    )
    description = serializers.CharField(max_length=4000, required=False, allow_blank=True)
    why = serializers.CharField(max_length=1000, required=False, allow_blank=True, help_text="For the event.")


class Aliases(Rows):
    """Aliases, by id or name. Keys ask for one like for a model."""

    queryset = selectors.aliases()
    serializer_class = AliasOut
    noun = "alias"

    @extend_schema(request=AliasIn, responses={201: AliasOut})
    def create(self, request: Request) -> Response:
        return self.show(aliases.add(actor=self.actor, **self.checked(AliasIn)), status=201)

    @extend_schema(request=AliasIn)
    def partial_update(self, request: Request, ref: str) -> Response:
        """Change what is given. It counts for the next request, within a second; conversations move as little as the weights allow."""
        changes = self.checked(AliasIn, partial=True)
        return self.show(aliases.change(actor=self.actor, alias=self.get_object(), **changes))

    def destroy(self, request: Request, ref: str) -> Response:
        aliases.remove(actor=self.actor, alias=self.get_object())
        return Response(status=204)
