"""External providers. A key goes in and is never shown again: the page says only whether one is kept."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin
from django.db import transaction
from django.http import HttpRequest
from unfold.decorators import display
from unfold.widgets import UnfoldAdminPasswordWidget, UnfoldBooleanSwitchWidget

from catalog import selectors
from catalog.admin.pages import ServicePages
from catalog.models import Provider
from catalog.services import providers
from llmgw_site.lib.errors import Refused


class ProviderForm(forms.ModelForm):  # type: ignore[type-arg]
    """With two fields that are no columns: a key to keep, and the wish to forget the one that is kept."""

    new_key = forms.CharField(
        label="API key",
        required=False,
        max_length=4096,
        widget=UnfoldAdminPasswordWidget(render_value=False, attrs={"autocomplete": "new-password"}),
        help_text="Kept sealed and never shown again; it takes the place of any other. Leave it empty to change nothing.",
    )
    clear_key = forms.BooleanField(
        label="Forget the key", required=False, widget=UnfoldBooleanSwitchWidget, help_text="The one that is kept now."
    )

    class Meta:
        model = Provider
        fields = ["name", "url", "api_key_file", "enabled"]

    def clean_url(self) -> str:
        try:
            return providers.checked_url(self.cleaned_data["url"])
        except Refused as refused:
            raise forms.ValidationError(refused.message, code=refused.code) from None

    def clean_new_key(self) -> str:
        text: str = self.cleaned_data["new_key"]
        try:
            return providers.checked_key(text) if text else ""
        except Refused as refused:
            raise forms.ValidationError(refused.message, code=refused.code) from None

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if data.get("new_key") and data.get("api_key_file"):
            self.add_error("api_key_file", "A provider has a key or a key file, not both.")
        return data


@admin.register(Provider)
class ProviderPages(ServicePages):
    form = ProviderForm
    list_display = ["name", "url", "key", "models", "state", "created_at"]
    list_filter = ["enabled"]
    search_fields = ["name", "id", "url"]
    readonly_fields = ["key", "id", "created_at", "updated_at"]

    def get_queryset(self, request: HttpRequest) -> Any:
        return selectors.providers()

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        if not obj:
            return [*ProviderForm.Meta.fields[:2], "new_key", *ProviderForm.Meta.fields[2:]]
        return [
            "name",
            "url",
            "key",
            "new_key",
            "clear_key",
            "api_key_file",
            "enabled",
            "id",
            "created_at",
            "updated_at",
        ]

    @display(description="state", label={"enabled": "success", "disabled": "warning"})  # type: ignore[untyped-decorator]
    def state(self, row: Provider) -> str:
        return "enabled" if row.enabled else "disabled"

    def key(self, row: Provider) -> str:
        if row.api_key_file:
            return f"in {row.api_key_file}"
        return "kept" if row.key_set else "none"

    @admin.display(ordering="model_count")
    def models(self, row: Any) -> int:
        return int(row.model_count)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        data, actor = form.cleaned_data, self.actor(request)
        if not change:
            fields = {name: data[name] for name in ProviderForm.Meta.fields}
            obj.pk = providers.create(actor=actor, api_key=data["new_key"], **fields).pk
            return
        with transaction.atomic():
            row = Provider.objects.get(pk=obj.pk)
            if data["clear_key"]:
                providers.clear_key(actor=actor, provider=row)
            changes = {name: data[name] for name in form.changed_data if name in ProviderForm.Meta.fields}
            providers.change(actor=actor, provider=row, **changes)
            if data["new_key"]:
                providers.set_key(actor=actor, provider=row, key=data["new_key"])

    def remove(self, request: HttpRequest, row: Any) -> None:
        providers.remove(actor=self.actor(request), provider=row)
