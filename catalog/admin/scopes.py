"""Organisations, teams, projects."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminSelectWidget

from catalog import selectors
from catalog.admin.names import NamesField, shown
from catalog.admin.pages import ScopedPages, ScopeFilter, to_form
from catalog.choices import CLASSES, USUAL_CLASS
from catalog.models import Organisation, Project, Team
from catalog.services import access, scopes
from catalog.services.allowlists import allowlist
from llmgw_site.lib.errors import Refused

_LOWEST = CLASSES[-1][0]


class _ScopeForm(forms.ModelForm):  # type: ignore[type-arg]
    allowed_models = NamesField(
        help_text="Names of the models and adapters that keys below it may use, one a line; empty: all. Each scope above may allow less."
    )

    priority_class = forms.ChoiceField(
        label="Class",
        required=False,
        widget=UnfoldAdminSelectWidget,
        help_text="Where requests wait for room, those of a higher class go first.",
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
        edits = obj is None or self.has_change_permission(request, obj)
        return [
            *([self.parent] if self.parent else []),
            "name",
            *(["allowed_models", "priority_class"] if edits else ["may_use", "counting_class"]),
            *(["id", "created_at"] if obj else []),
        ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [*([self.parent] if self.parent and obj else []), "may_use", "counting_class", "id", "created_at"]

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Who has roles of scopes only is not offered what `scopes.may_give_class` refuses whatever is above."""
        form = super().get_form(request, obj, change, **kwargs)
        if "priority_class" not in form.base_fields:
            return form
        field = form.base_fields["priority_class"] = copy.deepcopy(form.base_fields["priority_class"])
        offered, present = list(CLASSES), obj.priority_class if obj is not None else ""
        if not access.reach(request.user, f"catalog.change_{self.opts.model_name}").everywhere:
            offered = [item for item in CLASSES if item[0] in (USUAL_CLASS, _LOWEST, present)]
            field.help_text += " Above standard: by a role of the cluster."
        field.choices = [("", self.nothing_said(obj)), *offered]
        return form

    def nothing_said(self, row: Any) -> str:
        """What follows where a scope says no class."""
        if not self.parent:
            return f"{USUAL_CLASS}: nothing is said"
        above = f" ({getattr(row, self.parent).effective_class})" if row is not None else ""
        return f"as the {self.parent}{above}"

    @admin.display(description="models")
    def may_use(self, row: Any) -> str:
        return shown(row.allowed_models)

    @admin.display(description="class")
    def counting_class(self, row: Any) -> str:
        own = row.priority_class or not self.parent
        return row.effective_class if own else f"{row.effective_class}, from above"

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            fields = {name: form.cleaned_data[name] for name in ("name", "allowed_models", "priority_class")}
            scope = type(obj).objects.get(pk=obj.pk)
            scopes.may_give_class(request.user, scope=scope, priority_class=fields["priority_class"])
            scopes.change(actor=self.actor(request), scope=scope, **fields)
        else:
            scope = type(obj)(**({self.parent: form.cleaned_data[self.parent]} if self.parent else {}))
            scopes.may_give_class(request.user, scope=scope, priority_class=form.cleaned_data["priority_class"])
            obj.pk = self.create(self.actor(request), form.cleaned_data).pk

    @abstractmethod
    def create(self, actor: str, data: dict[str, Any]) -> Any:
        """The new row, by its service."""

    def remove(self, request: HttpRequest, row: Any) -> None:
        scopes.delete(actor=self.actor(request), scope=row)


@admin.register(Organisation)
class OrganisationPages(_ScopePages):
    list_display = ["name", "counting_class", "teams", "created_at"]
    paths = access.ORGANISATIONS

    def rows(self) -> Any:
        return selectors.organisations()

    @admin.display(ordering="team_count")
    def teams(self, row: Any) -> int:
        return int(row.team_count)

    def create(self, actor: str, data: dict[str, Any]) -> Any:
        return scopes.create_organisation(actor=actor, **data)


@admin.register(Team)
class TeamPages(_ScopePages):
    list_display = ["name", "organisation", "counting_class", "projects", "created_at"]
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
    list_display = ["name", "team", "organisation", "counting_class", "keys", "created_at"]
    list_filter: ClassVar[list[Any]] = [("team", ScopeFilter)]
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
