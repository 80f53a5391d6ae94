"""/organisations, /teams, /projects."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import selectors
from catalog.api.rows import Rows, text_filter
from catalog.api.serializers import OrganisationIn, OrganisationOut, ProjectIn, ProjectOut, ScopeIn, TeamIn, TeamOut
from catalog.services import scopes


class _Scopes(Rows):
    """A PATCH sets name and allowlist, a DELETE is refused while something hangs on it."""

    @extend_schema(request=ScopeIn)
    def partial_update(self, request: Request, ref: str) -> Response:
        row = self.get_object()
        return self.show(scopes.change(actor=self.actor, scope=row, **self.checked(ScopeIn, partial=True)))

    def destroy(self, request: Request, ref: str) -> Response:
        scopes.delete(actor=self.actor, scope=self.get_object())
        return Response(status=204)


class Organisations(_Scopes):
    queryset = selectors.organisations()
    serializer_class = OrganisationOut
    noun = "organisation"

    @extend_schema(request=OrganisationIn, responses={201: OrganisationOut})
    def create(self, request: Request) -> Response:
        return self.show(scopes.create_organisation(actor=self.actor, **self.checked(OrganisationIn)), status=201)


class Teams(_Scopes):
    queryset = selectors.teams()
    serializer_class = TeamOut
    noun = "team"

    def filter_queryset(self, queryset: Any) -> Any:
        parent = text_filter(self.request, "organisation")
        return (
            queryset.filter(organisation=selectors.find(selectors.organisations(), parent, noun="organisation"))
            if parent
            else queryset
        )

    @extend_schema(parameters=[OpenApiParameter("organisation", description="Only its teams (id or name).")])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().list(request, *args, **kwargs)

    @extend_schema(request=TeamIn, responses={201: TeamOut})
    def create(self, request: Request) -> Response:
        data = self.checked(TeamIn)
        data["organisation"] = selectors.find(selectors.organisations(), data["organisation"], noun="organisation")
        return self.show(scopes.create_team(actor=self.actor, **data), status=201)


class Projects(_Scopes):
    queryset = selectors.projects()
    serializer_class = ProjectOut
    noun = "project"

    def filter_queryset(self, queryset: Any) -> Any:
        parent = text_filter(self.request, "team")
        return queryset.filter(team=selectors.find(selectors.teams(), parent, noun="team")) if parent else queryset

    @extend_schema(parameters=[OpenApiParameter("team", description="Only its projects (id or name).")])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().list(request, *args, **kwargs)

    @extend_schema(request=ProjectIn, responses={201: ProjectOut})
    def create(self, request: Request) -> Response:
        data = self.checked(ProjectIn)
        data["team"] = selectors.find(selectors.teams(), data["team"], noun="team")
        return self.show(scopes.create_project(actor=self.actor, **data), status=201)
