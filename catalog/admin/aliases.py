"""Aliases with what they stand for."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from unfold.admin import TabularInline
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget

from catalog import selectors
from catalog.admin.pages import ServicePages
from catalog.models import Adapter, Alias, AliasTarget, Model
from catalog.services import aliases


def _targets() -> list[tuple[str, Any]]:
    """Models and adapters by name, for a choice."""
    groups = (("Models", Model), ("Adapters", Adapter))
    named = [(title, list(table.objects.order_by("name").values_list("name", flat=True))) for title, table in groups]
    return [
        ("", "Choose a model or an adapter"),
        *((title, [(name, name) for name in names]) for title, names in named if names),
    ]


class AliasForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Alias
        fields = ["name", "description"]
        widgets = {"description": UnfoldAdminTextareaWidget(attrs={"rows": 2})}


class TargetForm(forms.ModelForm):  # type: ignore[type-arg]
    """A model or an adapter by its name, and a weight."""

    target = forms.ChoiceField(choices=_targets, widget=UnfoldAdminSelectWidget)

    class Meta:
        model = AliasTarget
        fields = ["weight"]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.instance.pk and not self.instance._state.adding:
            self.fields["target"].initial = self.instance.name


class TargetInline(TabularInline):  # type: ignore[misc]
    model = AliasTarget
    form = TargetForm
    fields = ["target", "weight"]
    verbose_name, verbose_name_plural = "model", "stands for"
    max_num = aliases.MAX_TARGETS
    hide_title = True
    ordering = ["-weight", "id"]

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).select_related("model", "adapter")

    def get_extra(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> int:
        return 0 if obj else 2

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("catalog.change_alias"))  # type: ignore[union-attr]

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("catalog.add_alias") or self.has_change_permission(request))  # type: ignore[union-attr]

    has_delete_permission = has_change_permission

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return bool(request.user.has_perm("catalog.view_alias") or self.has_add_permission(request))  # type: ignore[union-attr]


@admin.register(Alias)
class AliasPages(ServicePages):
    form = AliasForm
    inlines = [TargetInline]
    list_display = ["name", "stands_for", "description", "created_at", "updated_at"]
    search_fields = ["name", "id", "description", "targets__model__name", "targets__adapter__name"]

    def get_queryset(self, request: HttpRequest) -> Any:
        return selectors.aliases()

    def stands_for(self, row: Alias) -> str:
        return ", ".join(f"{item.name} {item.share:.1%}" for item in aliases.shown(row))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Written in `save_related`, together with what it stands for."""

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        actor = self.actor(request)
        fields = {name: form.cleaned_data[name] for name in (form.changed_data if change else AliasForm.Meta.fields)}
        split = [
            {"model": item.cleaned_data["target"], "weight": item.cleaned_data["weight"]}
            for formset in formsets
            for item in formset.forms
            if item not in formset.deleted_forms and item.cleaned_data.get("target")
        ]
        if change:
            aliases.change(actor=actor, alias=Alias.objects.get(pk=form.instance.pk), targets=split, **fields)
        else:
            form.instance.pk = aliases.add(actor=actor, targets=split, **fields).pk

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        """Django's own log names the form's fields; what changed in the split stands in our events."""
        return super().construct_change_message(request, form, [], add)

    def response_post_save_add(self, request: HttpRequest, obj: Any) -> HttpResponse:
        return redirect("console:aliases")

    def response_post_save_change(self, request: HttpRequest, obj: Any) -> HttpResponse:
        return redirect("console:aliases")

    def remove(self, request: HttpRequest, row: Any) -> None:
        aliases.remove(actor=self.actor(request), alias=row)
