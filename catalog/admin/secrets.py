"""API keys and admin tokens: made here, shown once, revoked, never edited.

The text of a new one goes to the next page in a message, which Django keeps in the browser's own cookie
(MESSAGE_STORAGE) and nowhere on our side.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.auth import get_user_model
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.utils.html import format_html
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminSelectWidget

from catalog import selectors
from catalog.admin.names import NamesField, shown
from catalog.admin.pages import ScopedPages, ScopeFilter, to_form, where
from catalog.models import AdminToken, ApiKey, RoleGrant
from catalog.services import access, keys, tokens
from catalog.services.allowlists import allowlist
from llmgw_site.lib.errors import Refused


class _Live(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("live", "live"), ("revoked", "revoked"), ("expired", "expired")]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        now = timezone.now()
        match self.value():
            case "live":
                return queryset.filter(revoked_at__isnull=True).exclude(expires_at__lte=now)
            case "revoked":
                return queryset.filter(revoked_at__isnull=False)
            case "expired":
                return queryset.filter(revoked_at__isnull=True, expires_at__lte=now)
        return queryset


class _SecretPages(ScopedPages):
    actions = ["revoke_selected"]
    list_filter: list[Any] = [_Live]
    shown = ["id", "prefix", "created_by", "created_at", "revoked_at", "last_used_at"]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, "delete")

    @display(description="state", label={"live": "success", "revoked": "danger", "expired": "warning"})  # type: ignore[untyped-decorator]
    def state(self, row: Any) -> str:
        if row.revoked_at:
            return "revoked"
        return "expired" if row.expires_at and row.expires_at <= timezone.now() else "live"

    @action(description="Revoke selected", permissions=["revoke"])  # type: ignore[untyped-decorator]
    def revoke_selected(self, request: HttpRequest, queryset: Any) -> None:
        with transaction.atomic():
            rows = self.allowed(request, "delete", queryset.filter(revoked_at__isnull=True))
            count = self.revoke(request, list(rows))
        messages.success(request, f"{count} revoked.")

    @abstractmethod
    def revoke(self, request: HttpRequest, rows: list[Any]) -> int:
        """Revoke these; how many that were."""

    def remove(self, request: HttpRequest, row: Any) -> None:
        """Rows stay, so that usage keeps its name."""
        self.revoke(request, [row])

    def show_once(self, request: HttpRequest, what: str, text: str) -> None:
        """The secret, for the next page and for nothing else."""
        shown = format_html("{} Copy it now, it is not shown again: <code>{}</code>", what, text)
        messages.warning(request, shown)


_SHARES = {
    2: "2: 16 times the share",
    1: "1: 4 times the share",
    0: "0: as everybody",
    -1: "-1: a quarter",
    -2: "-2: a sixteenth",
}


class KeyForm(forms.ModelForm):  # type: ignore[type-arg]
    models = NamesField(
        help_text="Names of the models and adapters it may use, one a line; empty: all that its scopes allow."
    )

    priority = forms.TypedChoiceField(
        choices=list(_SHARES.items()),
        coerce=int,
        empty_value=0,  # type: ignore[arg-type]
        initial=0,
        required=False,
        widget=UnfoldAdminSelectWidget,
        help_text="Where requests wait for room.",
    )

    class Meta:
        model = ApiKey
        fields = ["project", "name", "user", "models", "priority", "expires_at"]

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        try:
            data["models"] = allowlist(data.get("models") or None)
        except Refused as refused:
            to_form(self, refused)
        if data.get("expires_at") and data["expires_at"] <= timezone.now():
            self.add_error("expires_at", "The time is over already.")
        return data


@admin.register(ApiKey)
class KeyPages(_SecretPages):
    form = KeyForm
    list_display = ["name", "text", "scope", "user", "state", "created_at", "expires_at", "last_used_at"]
    list_filter: list[Any] = [_Live, ("project", ScopeFilter)]
    search_fields = ["name", "prefix", "former_prefix", "id", "project__name", "user__username"]
    actions_detail = ["rotate"]
    paths = access.IN_PROJECT
    shown = ["id", "text", "created_by", "created_at", "rotated_at", "revoked_at", "last_used_at"]

    def rows(self) -> Any:
        return selectors.keys()

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        """Who may make keys within scopes alone is offered what they may give: `keys.may_issue` refuses more."""
        form = super().get_form(request, obj, change, **kwargs)
        if "priority" in form.base_fields and not access.reach(request.user, "catalog.add_apikey").everywhere:
            field = form.base_fields["priority"] = copy.deepcopy(
                form.base_fields["priority"]
            )  # it is shared by all forms
            field.choices = [(value, words) for value, words in _SHARES.items() if value <= 0]
            field.help_text += " A larger share is given by who may make keys everywhere."
        return form

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        fields = KeyForm.Meta.fields
        return [*(name if name != "models" else "may_use" for name in fields), *self.shown] if obj else fields

    @display(description="project", ordering="project__name")  # type: ignore[untyped-decorator]
    def scope(self, row: ApiKey) -> str:
        return format_html(
            '{}<br><span class="text-subtle whitespace-nowrap">{}</span>', row.project.name, where(row.project.team)
        )

    @display(description="models")  # type: ignore[untyped-decorator]
    def may_use(self, row: ApiKey) -> str:
        return shown(row.models)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        data = form.cleaned_data
        keys.may_issue(request.user, project=data["project"], priority=data["priority"])
        key, secret = keys.issue(
            actor=self.actor(request),
            project=data["project"],
            name=data["name"],
            models=data["models"],
            expires_at=data["expires_at"],
            user=data["user"],
            priority=data["priority"],
        )
        obj.pk, obj.prefix = key.pk, key.prefix
        self.show_once(request, f"The API key {key.name}.", secret.text)

    @display(description="text")  # type: ignore[untyped-decorator]
    def text(self, row: ApiKey) -> str:
        """Its beginning, and that of the former one while it is worth something: it is one key."""
        if row.former_until and row.former_until > timezone.now():
            return f"{row.prefix}…, until {row.former_until:%Y-%m-%d %H:%M} UTC also {row.former_prefix}…"
        return f"{row.prefix}…"

    def has_rotate_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return self.holds(request, "change", ApiKey.objects.filter(pk=object_id).first() if object_id else None)

    @action(description="Rotate", permissions=["rotate"])  # type: ignore[untyped-decorator]
    def rotate(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return redirect("console:key-rotate", object_id)

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "user":
            held = access.reach(request.user, "catalog.add_apikey")
            users = get_user_model().objects.filter(is_active=True)
            if not held.everywhere:  # not everybody is theirs to see
                grants = held.of_rows(RoleGrant.objects.all(), access.IN_SCOPE)
                users = users.filter(pk__in=grants.values("user_id"))
            kwargs["queryset"] = users
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def revoke(self, request: HttpRequest, rows: list[Any]) -> int:
        return keys.revoke_all(actor=self.actor(request), keys=rows)


class TokenForm(forms.ModelForm):  # type: ignore[type-arg]
    days = forms.FloatField(
        initial=90,
        min_value=1,
        max_value=tokens.MAX_DAYS,
        help_text="How long it is worth something.",
        widget=UnfoldAdminDecimalFieldWidget,
    )

    class Meta:
        model = AdminToken
        fields = ["user", "name"]


@admin.register(AdminToken)
class TokenPages(_SecretPages):
    """One's own tokens; everybody's for those who may."""

    form = TokenForm
    list_display = ["name", "prefix", "user", "state", "created_at", "expires_at", "last_used_at"]
    search_fields = ["name", "prefix", "id", "user__username"]

    def rows(self) -> Any:
        return selectors.admin_tokens()

    def get_queryset(self, request: HttpRequest) -> Any:
        rows = self.rows()
        return rows if self._manages_all(request) else rows.filter(user_id=request.user.pk)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        if obj:
            return ["user", "name", "expires_at", *self.shown]
        return [*(["user"] if self._manages_all(request) else []), "name", "days"]

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        if db_field.name == "user":
            users = get_user_model().objects.filter(is_active=True)
            kwargs["queryset"] = users if request.user.is_superuser else users.filter(is_superuser=False)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        data = form.cleaned_data
        token, secret = tokens.issue(
            actor=self.actor(request), user=data.get("user") or request.user, name=data["name"], days=data["days"]
        )
        obj.pk, obj.prefix, obj.user = token.pk, token.prefix, token.user
        self.show_once(request, f"The admin token {token.name} of {token.user}.", secret.text)

    def revoke(self, request: HttpRequest, rows: list[Any]) -> int:
        for row in rows:
            tokens.revoke(actor=self.actor(request), token=row)
        return len(rows)

    def _manages_all(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("catalog.manage_all_tokens"))
