"""Organisations, teams, projects."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from catalog import selectors
from catalog.admin.names import NamesField
from catalog.admin.pages import ScopedPages, to_form
from catalog.models import Organisation, Project, Team
from catalog.services import access, scopes
from catalog.services.allowlists import allowlist
from llmgw_site.lib.errors import Refused


class _ScopeForm(forms.ModelForm):  # type: ignore[type-arg]
    allowed_models = NamesField(
        help_text="Names of the models and adapters that keys below it may use, one a line; empty: all. Each scope above may allow less."
    )

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        try:
            data["allowed_models"] = allowlist(data.get("allowed_models") or None, param="allowed_models")
        except Refused as refused:
            to_form(self, refused)
        return data


class _ScopePages(ScopedPages):
    form = _ScopeForm
    search_fields = ["name", "id"]
    parent: ClassVar[str] = ""
    """Field of the scope above; it is chosen once."""

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [
            *([self.parent] if self.parent else []),
            "name",
            "allowed_models",
            *(["id", "created_at"] if obj else []),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [*([self.parent] if self.parent and obj else []), "id", "created_at"]

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            fields = {name: form.cleaned_data[name] for name in ("name", "allowed_models")}
            scopes.change(actor=self.actor(request), scope=type(obj).objects.get(pk=obj.pk), **fields)
        else:
            obj.pk = self.create(self.actor(request), form.cleaned_data).pk

    @abstractmethod
    def create(self, actor: str, data: dict[str, Any]) -> Any:
        """The new row, by its service."""

    def remove(self, request: HttpRequest, row: Any) -> None:
        scopes.delete(actor=self.actor(request), scope=row)


@admin.register(Organisation)
class OrganisationPages(_ScopePages):
    list_display = ["name", "teams", "created_at"]
    paths = access.ORGANISATIONS

    def rows(self) -> Any:
        return selectors.organisations()

    @admin.display(ordering="team_count")
    def teams(self, row: Any) -> int:
        return int(row.team_count)

    def create(self, actor: str, data: dict[str, Any]) -> Any:
        return scopes.create_organisation(actor=actor, name=data["name"], allowed_models=data["allowed_models"])


@admin.register(Team)
class TeamPages(_ScopePages):
    list_display = ["name", "organisation", "projects", "created_at"]
    list_filter = ["organisation"]
    parent = "organisation"
    paths, written_paths = access.TEAMS, access.TEAMS[1:]

    def rows(self) -> Any:
        return selectors.teams()

    @admin.display(ordering="project_count")
    def projects(self, row: Any) -> int:
        return int(row.project_count)

    def create(self, actor: str, data: dict[str, Any]) -> Any:
        return scopes.create_team(actor=actor, **data)


@admin.register(Project)
class ProjectPages(_ScopePages):
    list_display = ["name", "team", "organisation", "keys", "created_at"]
    list_filter = ["team"]
    parent = "team"
    paths, written_paths = access.PROJECTS, access.PROJECTS[1:]

    def rows(self) -> Any:
        return selectors.projects()

    def organisation(self, row: Any) -> str:
        return str(row.team.organisation)

    @admin.display(ordering="key_count", description="live keys")
    def keys(self, row: Any) -> int:
        return int(row.key_count)

    def create(self, actor: str, data: dict[str, Any]) -> Any:
        return scopes.create_project(actor=actor, **data)
