"""What comes in for a job: the arguments of `serve`, vetted here as far as can be seen before it runs."""

from __future__ import annotations

from typing import Any

import orjson
from django.conf import settings
from rest_framework import serializers

from catalog.domain import sources
from catalog.models.names import MODEL_NAME
from catalog.services import profiles, served
from cluster.api.serializers import Strict
from cluster.domain.serving import default_name

FETCHED = ("checksums", "quantization", "file", "file_format", "way", "gpu_class", "tp", "on_demand", "fallbacks",
           "context", "slots", "projector")  # fmt: skip
"""Arguments of weights that are fetched."""
SUM = r"\A[0-9a-fA-F]{64}\Z"
NO_SUM: dict[str, Any] = {"invalid": "This is no SHA-256: 64 hex digits."}
NO_NAME: dict[str, Any] = {
    "invalid": "A name begins with a letter or digit and has at most 128 of A-Z a-z 0-9 . _ : / @ -"
}
LYING = ("sha256", "profile")
"""Arguments of weights that lie on the nodes."""


class ServeArgs(Strict):
    """Arguments of a job of kind `serve`: `source` for weights that the cluster fetches, or `path` for a file that lies on the
    nodes already."""

    name = serializers.RegexField(
        MODEL_NAME,
        required=False,
        error_messages=NO_NAME,
        help_text="Name in the catalogue; left out: after the repository or file.",
    )
    source = serializers.ListField(  # type: ignore[assignment]  # a field, not the serializer's own
        child=serializers.CharField(max_length=2000),
        required=False,
        max_length=sources.MAX_ADDRESSES,
        help_text="One OWNER/REPOSITORY or OWNER/REPOSITORY@REVISION, or addresses of files; a path is as `path`.",
    )
    checksums = serializers.ListField(
        child=serializers.RegexField(SUM, error_messages=NO_SUM),
        required=False,
        max_length=sources.MAX_ADDRESSES,
        help_text="SHA-256 of each address, in the same order.",
    )
    quantization = serializers.CharField(max_length=40, required=False, help_text="Such as Q4_K_M; left out: chosen.")
    file = serializers.CharField(max_length=500, required=False, help_text="A file of the set that shall be served.")
    file_format = serializers.ChoiceField(["gguf", "safetensors"], required=False)
    way = serializers.CharField(
        max_length=300, required=False, help_text="As a plan names it: `processor`, `cards`, `2 x NVIDIA L4`."
    )
    gpu_class = serializers.CharField(max_length=200, required=False, help_text="Only on cards of this class.")
    tp = serializers.IntegerField(min_value=1, max_value=64, required=False, help_text="Only with so many cards.")
    on_demand = serializers.BooleanField(required=False, help_text="Runs from the first request on.")
    fallbacks = serializers.BooleanField(required=False, help_text="The next best ways too, with lower priority.")
    context = serializers.IntegerField(  # type: ignore[assignment]  # as above
        min_value=1, max_value=1 << 24, required=False, help_text="Tokens of each slot."
    )
    slots = serializers.IntegerField(min_value=1, max_value=256, required=False, help_text="Requests at once.")
    projector = serializers.CharField(
        max_length=500, required=False, help_text="auto, none, or the file that lets it see or hear."
    )
    path = serializers.CharField(
        max_length=1024, required=False, help_text="GGUF file on this machine, or `quickstart`."
    )
    sha256 = serializers.RegexField(SUM, required=False, error_messages=NO_SUM, help_text="What that file must have.")
    description = serializers.CharField(max_length=4000, required=False, allow_blank=True)
    replicas = serializers.IntegerField(min_value=1, max_value=10_000, required=False, help_text="Left out: one.")
    profile = serializers.DictField(required=False, help_text="Fields of the model's profile, of weights at a path.")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        """What the steps would refuse minutes later is refused here, as far as it can be seen.

        Raises Refused, as `catalog.domain.sources.source` does.
        """
        if "source" in attrs:
            if "path" in attrs:
                raise _refused("path", "Name a source or a path, not both.", "invalid_value")
            found = sources.source(attrs["source"], attrs.get("checksums", ()), registry=settings.CONFIG.registry)
            if not isinstance(found, sources.FromPath):
                _only(attrs, LYING, "of a file that lies on the nodes")
                return {"name": default_name(found), **attrs}
            del attrs["source"]
            attrs["path"] = found.path
            if sums := attrs.pop("checksums", None):
                attrs["sha256"] = sums[0]
        _only(attrs, FETCHED, "of weights that are fetched: name their source")
        return _lying(attrs)


def _lying(attrs: dict[str, Any]) -> dict[str, Any]:
    attrs.setdefault("path", "quickstart")
    if attrs["path"] != "quickstart":
        attrs["path"] = served.checked_path(attrs["path"])
    profile = attrs.get("profile") or {}
    if b"\\u0000" in orjson.dumps(profile, default=str):
        raise _refused("profile", "Null characters are not allowed.", "invalid_value")
    profiles.known({name: value for name, value in profile.items() if name != "name"})
    profiles.vet(profile.get("engine", "llama.cpp"), profile.get("args", []), profile.get("env", {}))
    if "name" not in attrs:
        if attrs["path"] != "quickstart":
            raise _refused("name", "Name the model.", "required")
        attrs["name"] = settings.CONFIG.quickstart_model
    return attrs


def _only(attrs: dict[str, Any], names: tuple[str, ...], what: str) -> None:
    for name in names:
        if name in attrs:
            raise _refused(name, f"This is an argument {what}.", "invalid_value")


def _refused(field: str, text: str, code: str) -> serializers.ValidationError:
    return serializers.ValidationError({field: [serializers.ErrorDetail(text, code=code)]})


class JobIn(Strict):
    kind = serializers.ChoiceField(["serve"], help_text="Others are opened by the orders of their model.")
    args = ServeArgs()
