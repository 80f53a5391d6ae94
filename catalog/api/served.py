"""/models with their profiles, /profiles, /events."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import mixins, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import selectors
from catalog.api.rows import Rows, flag_filter, text_filter
from catalog.api.serializers import EventOut, ModelIn, ModelOut, NewModelIn, ProfileIn, ProfileOut, WhyIn
from catalog.services import access, profiles, served


class Models(Rows):
    """Models of the catalogue, by id or name; slashes of a name may stand as they are or as %2F."""

    queryset = selectors.models_with_profiles()
    serializer_class = ModelOut
    noun = "model"
    in_scopes = frozenset({"list", "retrieve", "enable", "disable"})
    paths = access.IN_SCOPE
    needs = {"enable": ("catalog.change_model",), "disable": ("catalog.change_model",)}

    def filter_queryset(self, queryset: Any) -> Any:
        enabled = flag_filter(self.request, "enabled") if self.action == "list" else None
        return queryset if enabled is None else queryset.filter(enabled=enabled)

    @extend_schema(parameters=[OpenApiParameter("enabled", bool, description="Only those enabled, or only those not.")])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().list(request, *args, **kwargs)

    @extend_schema(request=NewModelIn, responses={201: ModelOut})
    def create(self, request: Request) -> Response:
        data = _with_rows(self.checked(NewModelIn))
        return self.show(served.add_model(actor=self.actor, **data), status=201)

    @extend_schema(request=ModelIn)
    def partial_update(self, request: Request, ref: str) -> Response:
        data = _with_rows(self.checked(ModelIn, partial=True))
        return self.show(served.update(actor=self.actor, model=self.get_object(), **data))

    def destroy(self, request: Request, ref: str) -> Response:
        served.remove(actor=self.actor, model=self.get_object())
        return Response(status=204)

    @extend_schema(request=WhyIn)
    def enable(self, request: Request, ref: str) -> Response:
        return self.show(served.enable(actor=self.actor, model=self.get_object(), **self.checked(WhyIn)))

    @extend_schema(request=WhyIn)
    def disable(self, request: Request, ref: str) -> Response:
        return self.show(served.disable(actor=self.actor, model=self.get_object(), **self.checked(WhyIn)))


def _with_rows(data: dict[str, Any]) -> dict[str, Any]:
    """The rows that a body names, in place of their ids or names."""
    owners = {"project": selectors.projects, "team": selectors.teams, "organisation": selectors.organisations}
    for noun, rows in owners.items():
        if data.get(noun):
            data[noun] = selectors.find(rows(), data[noun], noun=noun)
    if data.get("provider"):
        data["provider"] = selectors.find(selectors.providers(), data["provider"], noun="provider")
    return data


class _ProfileRows(Rows):
    queryset = selectors.profiles()
    serializer_class = ProfileOut
    noun = "profile"

    @extend_schema(request=ProfileIn)
    def partial_update(self, request: Request, **kwargs: str) -> Response:
        changes = self.checked(ProfileIn, partial=True)
        return self.show(profiles.update(actor=self.actor, profile=self.get_object(), **changes))

    def destroy(self, request: Request, **kwargs: str) -> Response:
        profiles.remove(actor=self.actor, profile=self.get_object())
        return Response(status=204)


class Profiles(_ProfileRows):
    """Profiles of all models. Names repeat across models, so show and change them by id."""


class ModelProfiles(_ProfileRows):
    """Profiles of one model, by id or name."""

    def get_queryset(self) -> Any:
        if getattr(self, "swagger_fake_view", False):
            return selectors.profiles()
        return selectors.profiles().filter(model=self._model())

    def get_object(self) -> Any:
        return selectors.find(self.get_queryset(), self.kwargs["profile"], noun="profile")

    @extend_schema(request=ProfileIn, responses={201: ProfileOut})
    def create(self, request: Request, **kwargs: str) -> Response:
        return self.show(profiles.add(actor=self.actor, model=self._model(), **self.checked(ProfileIn)), status=201)

    def _model(self) -> Any:
        return selectors.find(selectors.models_with_profiles(), self.kwargs["ref"], noun="model")


@extend_schema(
    parameters=[
        OpenApiParameter("subject_kind", description="Such as model, profile, key, replica, node."),
        OpenApiParameter("subject", description="Id of what was changed."),
        OpenApiParameter("kind", description="Such as model_added."),
        OpenApiParameter("actor", description="All of it, or its beginning."),
    ]
)
class Events(mixins.ListModelMixin, viewsets.GenericViewSet[Any]):
    """What was changed, by whom, from what to what; newest first. Read only."""

    queryset = selectors.events()
    serializer_class = EventOut
    FILTERS = {"subject_kind": "subject_kind", "subject": "subject_id", "kind": "kind", "actor": "actor__startswith"}

    def filter_queryset(self, queryset: Any) -> Any:
        asked = {column: text_filter(self.request, name) for name, column in self.FILTERS.items()}
        return queryset.filter(**{column: value for column, value in asked.items() if value})
