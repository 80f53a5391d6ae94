"""Users and groups in the console's look. Django registers its own pages first; these take their place.

Opened by `urls`, which is read once all of Django's are there. Source: django-unfold, "User & group admin".
"""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from unfold.admin import ModelAdmin
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

admin.site.unregister([User, Group])


@admin.register(User)
class UserPages(UserAdmin, ModelAdmin):  # type: ignore[misc, type-arg]
    """People who may sign in; `staff` opens the console, groups and permissions decide what it shows."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm


@admin.register(Group)
class GroupPages(GroupAdmin, ModelAdmin):  # type: ignore[misc]
    """Sets of permissions."""
