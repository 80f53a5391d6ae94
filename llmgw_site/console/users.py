"""Users and groups in the console's look. Django registers its own pages first; these take their place.

Who may change users may give them any permission, but a superuser, and the making of one, is a superuser's alone: else
that permission would be all of them. Every change leaves an event, as those of the catalogue do.

Opened by `urls`, which is read once all of Django's are there. Source: django-unfold, "User & group admin".
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from catalog.services import actors, events, identities, signins

admin.site.unregister([User, Group])


class _Recorded:
    """Writes an event beside each entry of the admin's own log: which fields, never their values."""

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        entry = super().log_addition(request, obj, message)  # type: ignore[misc]
        return self._event(request, obj, "added", entry.get_change_message(), entry)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> Any:
        entry = super().log_change(request, obj, message)  # type: ignore[misc]
        return self._event(request, obj, "changed", entry.get_change_message(), entry)

    def log_deletions(self, request: HttpRequest, queryset: Any) -> Any:
        for obj in queryset:
            self._event(request, obj, "removed", "", None)
        return super().log_deletions(request, queryset)  # type: ignore[misc]

    def _event(self, request: HttpRequest, obj: Any, what: str, details: str, entry: Any) -> Any:
        noun = obj._meta.model_name
        events.append(
            actor=actors.of(user=request.user),
            kind=f"{noun}_{what}",
            subject_kind=noun,
            subject_id=str(obj.pk),
            message=f"{noun} {obj} {what}. {details}".rstrip(". ")[:1000],
        )
        return entry


@admin.register(User)
class UserPages(_Recorded, UserAdmin, ModelAdmin):  # type: ignore[misc, type-arg]
    """People who may sign in; `staff` opens the console, groups and permissions decide what it shows."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    actions = ["allow_sign_in"]

    @admin.action(description="Allow to sign in again", permissions=["change"])
    def allow_sign_in(self, request: HttpRequest, queryset: Any) -> None:
        """Those who tried too often need not wait."""
        for user in queryset:
            signins.allow(actor=actors.of(user=request.user), user=user)
        names = ", ".join(user.get_username() for user in queryset)
        self.message_user(request, f"May try to sign in again: {names}.")

    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> Any:
        """Of anybody; whoever sets it has the same session under another key from then on."""
        with identities.kept(request.session):
            return super().user_change_password(request, id, form_url)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        return [] if request.user.is_superuser else ["is_superuser"]  # type: ignore[union-attr]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and _may_touch(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and _may_touch(request, obj)


@admin.register(Group)
class GroupPages(_Recorded, GroupAdmin, ModelAdmin):  # type: ignore[misc]
    """Sets of permissions."""


def _may_touch(request: HttpRequest, user: Any) -> bool:
    """Nobody but a superuser changes a superuser."""
    return user is None or not user.is_superuser or bool(request.user.is_superuser)  # type: ignore[union-attr]
