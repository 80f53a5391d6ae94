"""Who has which role, of the cluster or of a scope: given and taken here, never edited."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from unfold.decorators import display
from unfold.widgets import UnfoldAdminTextInputWidget

from catalog import selectors
from catalog.admin.pages import ScopedPages
from catalog.models import RoleGrant
from catalog.services import access, roles
from llmgw_site.lib.errors import Refused

SCOPES = ("organisation", "team", "project")


class RoleForm(forms.ModelForm):  # type: ignore[type-arg]
    """The user is written by name: who gives roles of one scope need not see everybody."""

    username = forms.CharField(
        label="User",
        max_length=150,
        help_text="Name of the user. Without a scope below the role is of the whole cluster.",
        widget=UnfoldAdminTextInputWidget,
    )

    class Meta:
        model = RoleGrant
        fields = ["role", *SCOPES]

    def clean_username(self) -> str:
        try:
            self.instance.user = selectors.find_user(self.cleaned_data["username"])
        except Refused:
            raise forms.ValidationError("There is no active user of this name.") from None
        return str(self.cleaned_data["username"])

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if sum(1 for name in SCOPES if data.get(name)) > 1:
            self.add_error(
                None, "A role is of one organisation, one team or one project; choose one, or none for the cluster."
            )
        return data

    def validate_unique(self) -> None:
        """A role takes the place of the one of the same scope."""

    def validate_constraints(self) -> None:
        """The same."""


@admin.register(RoleGrant)
class RolePages(ScopedPages):
    form = RoleForm
    list_display = ["user", "role", "of", "source", "created_by", "created_at"]
    list_filter = ["role"]
    search_fields = ["user__username", "organisation__name", "team__name", "project__name"]
    paths = access.IN_SCOPE

    def rows(self) -> Any:
        return selectors.role_grants()

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["user", "role", *SCOPES, "source", "created_by", "created_at"] if obj else ["username", "role", *SCOPES]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @display(description="of")  # type: ignore[untyped-decorator]
    def of(self, row: RoleGrant) -> str:
        return row.scope_name

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        data = form.cleaned_data
        scope = next((data[name] for name in SCOPES if data.get(name)), None)
        access.require(request.user, "catalog.add_rolegrant", scope)
        grant = roles.give(actor=self.actor(request), user=form.instance.user, role=data["role"], scope=scope)
        obj.pk, obj.user = grant.pk, grant.user

    def remove(self, request: HttpRequest, row: Any) -> None:
        roles.take(actor=self.actor(request), grant=row)
