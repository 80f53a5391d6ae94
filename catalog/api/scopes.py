"""/organisations, /teams, /projects."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import selectors
from catalog.api.rows import Rows, text_filter
from catalog.api.scope_shapes import OrganisationIn, OrganisationOut, ProjectIn, ProjectOut, ScopeIn, TeamIn, TeamOut
from catalog.models import Organisation, Project, Team
from catalog.services import access, scopes


class _Scopes(Rows):
    """A PATCH sets name, allowlist and class, a DELETE is refused while something hangs on it."""

    in_scopes = frozenset({"list", "retrieve", "create", "partial_update", "destroy"})

    @extend_schema(request=ScopeIn)
    def partial_update(self, request: Request, ref: str) -> Response:
        row, data = self.get_object(), self.checked(ScopeIn, partial=True)
        self.may_give_class(row, data)
        return self.show(scopes.change(actor=self.actor, scope=row, **data))

    def may_give_class(self, scope: access.Scope, data: dict[str, Any]) -> None:
        scopes.may_give_class(self.request.user, scope=scope, priority_class=data.get("priority_class", ""))

    def destroy(self, request: Request, ref: str) -> Response:
        scopes.delete(actor=self.actor, scope=self.get_object())
        return Response(status=204)


class Organisations(_Scopes):
    queryset = selectors.organisations()
    serializer_class = OrganisationOut
    noun = "organisation"
    in_scopes = frozenset({"list", "retrieve"})
    paths = access.ORGANISATIONS

    @extend_schema(request=OrganisationIn, responses={201: OrganisationOut})
    def create(self, request: Request) -> Response:
        data = self.checked(OrganisationIn)
        self.may_give_class(Organisation(), data)
        return self.show(scopes.create_organisation(actor=self.actor, **data), status=201)


class Teams(_Scopes):
    queryset = selectors.teams()
    serializer_class = TeamOut
    noun = "team"
    paths, written_paths = access.TEAMS, access.TEAMS[1:]

    def filter_queryset(self, queryset: Any) -> Any:
        parent = text_filter(self.request, "organisation")
        return queryset.filter(organisation=self._organisation(parent)) if parent else queryset

    def _organisation(self, ref: str) -> Organisation:
        found: Organisation = self.visible(selectors.organisations(), access.ORGANISATIONS, ref, noun="organisation")
        return found

    @extend_schema(parameters=[OpenApiParameter("organisation", description="Only its teams (id or name).")])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().list(request, *args, **kwargs)

    @extend_schema(request=TeamIn, responses={201: TeamOut})
    def create(self, request: Request) -> Response:
        data = self.checked(TeamIn)
        data["organisation"] = self._organisation(data["organisation"])
        access.require(request.user, "catalog.add_team", data["organisation"])
        self.may_give_class(Team(organisation=data["organisation"]), data)
        return self.show(scopes.create_team(actor=self.actor, **data), status=201)


class Projects(_Scopes):
    queryset = selectors.projects()
    serializer_class = ProjectOut
    noun = "project"
    paths, written_paths = access.PROJECTS, access.PROJECTS[1:]

    def filter_queryset(self, queryset: Any) -> Any:
        parent = text_filter(self.request, "team")
        return queryset.filter(team=self._team(parent)) if parent else queryset

    def _team(self, ref: str) -> Team:
        found: Team = self.visible(selectors.teams(), access.TEAMS, ref, noun="team")
        return found

    @extend_schema(parameters=[OpenApiParameter("team", description="Only its projects (id or name).")])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().list(request, *args, **kwargs)

    @extend_schema(request=ProjectIn, responses={201: ProjectOut})
    def create(self, request: Request) -> Response:
        data = self.checked(ProjectIn)
        data["team"] = self._team(data["team"])
        access.require(request.user, "catalog.add_project", data["team"])
        self.may_give_class(Project(team=data["team"]), data)
        return self.show(scopes.create_project(actor=self.actor, **data), status=201)
