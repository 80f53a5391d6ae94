"""/registry: what there is to be had, before anything is fetched."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.api.rows import text_filter
from catalog.domain.cards import RepoCard
from catalog.domain.repository import FileSet
from catalog.registry.client import FORMATS, SORTS
from catalog.selectors import held_repositories
from catalog.services import registry


class SearchIn(serializers.Serializer[Any]):
    """What to look for, in the query."""

    search = serializers.CharField(max_length=200, required=False, help_text="Words of the repository's name.")
    file_format = serializers.ChoiceField(FORMATS, required=False)
    adapters_of = serializers.CharField(max_length=200, required=False, help_text="A base model, as OWNER/REPOSITORY.")
    sort = serializers.ChoiceField(SORTS, required=False, help_text="Most first.")
    limit = serializers.IntegerField(min_value=1, max_value=100, required=False)
    after = serializers.CharField(max_length=2000, required=False, help_text="`after` of the page before.")


class RepositoryOut(serializers.Serializer[Any]):
    """A repository. What the registry does not tell is null or empty."""

    id = serializers.CharField(help_text="OWNER/REPOSITORY.")
    commit = serializers.CharField(help_text="Of the revision that was asked for; empty in lists of some registries.")
    formats = serializers.ListField(child=serializers.CharField())
    adapter = serializers.BooleanField()
    gated = serializers.CharField(help_text="auto or manual: its owner wants to be asked first; empty: no.")
    private = serializers.BooleanField()
    license = serializers.CharField()
    task = serializers.CharField()
    base_models = serializers.ListField(child=serializers.CharField())
    downloads = serializers.IntegerField(allow_null=True)
    likes = serializers.IntegerField(allow_null=True)
    changed = serializers.CharField()
    held = serializers.BooleanField(help_text="The cluster has files of it, of whichever commit.")


class PageOut(serializers.Serializer[Any]):
    results = RepositoryOut(many=True)
    after = serializers.CharField(help_text="Gets the next page; empty: there is none.")


class FileOut(serializers.Serializer[Any]):
    path = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes.")
    sha256 = serializers.CharField(help_text="Empty: the registry publishes none.")


class SetOut(serializers.Serializer[Any]):
    """Files that make one model together."""

    name = serializers.CharField(help_text="Its first file.")
    format = serializers.CharField()
    quantization = serializers.CharField()
    size = serializers.IntegerField(help_text="Bytes of all files.")
    files = FileOut(many=True)
    missing = serializers.ListField(child=serializers.CharField(), help_text="Parts that the repository lacks.")


class RepositoryFilesOut(RepositoryOut):
    sets = SetOut(many=True)
    projectors = FileOut(many=True, help_text="Files that let the model see or hear.")


class Registry(viewsets.ViewSet):
    """The registry of models. Each call asks it anew, with the cluster's own token."""

    needs = {"list": ("catalog.add_model",), "retrieve": ("catalog.add_model",)}

    @extend_schema(parameters=[SearchIn], responses=PageOut)
    def list(self, request: Request) -> Response:
        """Repositories by words, format or base model."""
        asked = SearchIn(data=request.query_params)
        asked.is_valid(raise_exception=True)
        words = dict(asked.validated_data)
        text, format = words.pop("search", ""), words.pop("file_format", "")
        page = registry.search(text=text, format=format, **words)  # what was not said is as the client has it
        held = held_repositories(card.id for card in page.repositories)
        found = [repository(card, held=card.id in held) for card in page.repositories]
        return Response({"results": found, "after": page.after})

    @extend_schema(parameters=[OpenApiParameter("revision", description="A branch, tag or commit; the newest.")], responses=RepositoryFilesOut)  # fmt: skip
    def retrieve(self, request: Request, ref: str) -> Response:
        """One repository, with the models that its files make."""
        seen = registry.look(ref, text_filter(request, "revision") or "")
        found = {
            **repository(seen.card, held=bool(held_repositories([seen.card.id]))),
            "sets": [file_set(item) for item in seen.sets],
            "projectors": [vars(file) for file in seen.projectors],
        }
        return Response(RepositoryFilesOut(found).data)


def repository(card: RepoCard, *, held: bool) -> dict[str, Any]:
    told = {name: getattr(card, name) for name in RepositoryOut().get_fields() if name != "held"}
    return dict(RepositoryOut({**told, "held": held}).data)


def file_set(item: FileSet) -> dict[str, Any]:
    return {
        "name": item.first.path,
        "format": item.format.value,
        "quantization": item.quantization,
        "size": item.size,
        "files": [vars(file) for file in item.files],
        "missing": item.missing,
    }
