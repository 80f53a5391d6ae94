"""/mirror: the weights that the cluster keeps, who has them, and how far their fetching is."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import selectors as catalog
from catalog.services import actors, mirror
from cluster.api.serializers import Strict
from cluster.api.updates import TRACES, OriginIn, set_origin
from cluster.selectors.kept import kept
from cluster.services import weights
from llmgw_site.lib.errors import Kind, Refused


class MirrorIn(Strict):
    """What to keep: one model's files."""

    source = serializers.ListField(  # type: ignore[assignment]  # a field, not the serializer's own
        child=serializers.CharField(max_length=2000),
        min_length=1,
        max_length=200,
        help_text="OWNER/REPOSITORY, with @REVISION for another than the newest; or addresses of files that make one model.",
    )
    checksums = serializers.ListField(
        child=serializers.CharField(max_length=64), required=False, help_text="SHA-256 of each address, in order."
    )
    quantization = serializers.CharField(max_length=40, required=False)
    file = serializers.CharField(max_length=500, required=False, help_text="A file of the model.")
    file_format = serializers.ChoiceField(["gguf", "safetensors"], required=False)
    projector = serializers.CharField(max_length=500, required=False, help_text="auto (default), none, or a file.")


class KeptFileOut(serializers.Serializer[Any]):
    path = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes.")
    sha256 = serializers.CharField(help_text="Empty: it is checked by git's own hash.")


class HolderOut(serializers.Serializer[Any]):
    node = serializers.CharField()
    heard = serializers.BooleanField(help_text="It can give it to others now.")


class FetcherOut(serializers.Serializer[Any]):
    node = serializers.CharField()
    there = serializers.IntegerField(help_text="Bytes.")
    shared = serializers.IntegerField(help_text="Of these, bytes of files that other versions there had already.")
    size = serializers.IntegerField(help_text="Bytes.")
    rate = serializers.IntegerField(allow_null=True, help_text="Bytes a second; null: nothing moves.")
    code = serializers.CharField(help_text="Why it does not get on.")
    message = serializers.CharField()
    source = serializers.CharField(  # type: ignore[assignment]  # as above
        help_text="registry, or the id of the node that gives it."
    )


class KeptOut(serializers.Serializer[Any]):
    """A version of weights."""

    id = serializers.CharField()
    name = serializers.CharField()
    registry = serializers.CharField(help_text="Empty: plain addresses.")
    repository = serializers.CharField()
    commit = serializers.CharField()
    format = serializers.CharField()
    quantization = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes of all files.")
    projector = serializers.CharField()
    created_at = serializers.DateTimeField()
    files = KeptFileOut(many=True)
    whole = serializers.BooleanField(help_text="A node that is heard has all of it.")
    holders = HolderOut(many=True, help_text="Nodes that have all of it.")
    fetchers = FetcherOut(many=True, help_text="Nodes that fetch it, or would.")
    origin = serializers.CharField(
        help_text="Of plain addresses: the repository that they were found to come from, or that was named."
    )
    trace = serializers.ChoiceField(TRACES, help_text="What came of looking for it.")
    users = serializers.ListField(child=serializers.CharField(), help_text="What needs it; empty: it may be removed.")


class Mirror(viewsets.ViewSet):
    """Versions of weights. Nodes with the module `data` keep each; nodes that run a model fetch it from those that have it."""

    needs = {
        "list": ("catalog.view_version", "cluster.view_node"),
        "retrieve": ("catalog.view_version", "cluster.view_node"),
        "create": ("catalog.add_version",),
        "destroy": ("catalog.delete_version",),
        "origin": ("catalog.change_version",),
    }

    @extend_schema(responses=KeptOut(many=True))
    def list(self, request: Request) -> Response:
        """All of them, the newest first."""
        return Response(KeptOut(kept(), many=True).data)

    @extend_schema(responses=KeptOut)
    def retrieve(self, request: Request, ref: str) -> Response:
        """One of them."""
        return Response(KeptOut(_found(ref)).data)

    @extend_schema(request=MirrorIn, responses={201: KeptOut})
    def create(self, request: Request) -> Response:
        """Have the files of one model fetched and kept. Asked for twice it is one version, fetched once."""
        asked = MirrorIn(data=request.data)
        asked.is_valid(raise_exception=True)
        words = dict(asked.validated_data)
        words["format"] = words.pop("file_format", "")
        row = mirror.add(actor=actors.of_request(request), **words)
        return Response(KeptOut(_found(row.pk)).data, status=201)

    @extend_schema(request=OriginIn, responses=KeptOut)
    def origin(self, request: Request, ref: str) -> Response:
        """Say where weights from plain addresses come from, or have it looked for. As of a model."""
        row = catalog.versions().filter(id=ref.replace("\x00", "")).first()
        if row is None:
            raise _unknown(ref)
        set_origin(request, row)
        return Response(KeptOut(_found(row.pk)).data)

    @extend_schema(responses={204: None})
    def destroy(self, request: Request, ref: str) -> Response:
        """Keep it no longer: nodes delete its files. Refused while a model or a job needs it."""
        row = catalog.versions().filter(id=ref.replace("\x00", "")).first()
        if row is None:
            raise _unknown(ref)
        weights.remove(actor=actors.of_request(request), version=row)
        return Response(status=204)


def _found(ref: str) -> Any:
    found = kept(ref.replace("\x00", ""))
    if not found:
        raise _unknown(ref)
    return found[0]


def _unknown(ref: str) -> Refused:
    return Refused(
        Kind.NOT_FOUND, "version_unknown", f"there are no weights {ref[:60]}: `llmgw mirror list` names them"
    )
