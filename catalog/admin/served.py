"""Models with their profiles."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.admin import StackedInline
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminTextInputWidget

from catalog import selectors
from catalog.admin.names import NamesField
from catalog.admin.pages import ScopedPages, to_form
from catalog.models import Model, Profile, Version
from catalog.services import access, profiles, served
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.units import exact_bytes, format_bytes, parse_bytes

PROFILE_FIELDS = ["name", "engine", "enabled", "priority", "context", "slots", "threads", "memory", "nodes", "labels",
                  "gpus_per_node", "tp", "card_classes", "card_memory", "args", "env", "start_timeout", "drain_timeout"]  # fmt: skip


class ModelForm(forms.ModelForm):  # type: ignore[type-arg]
    """Looks at the weights while the form can still be corrected."""

    fallbacks = NamesField(
        help_text="Models that answer instead while this one cannot, one a line, the first choice first; empty: none."
    )

    class Meta:
        model = Model
        fields = [
            "name", "description", "enabled", "replicas", "max_replicas", "rest_after", "priority_class", "weights_path", "weights_sha256", "provider", "provider_model",
            "embeddings", "first_byte_timeout", "idle_timeout", "queue_length", "queue_wait", "fallbacks", "price_input", "price_cached", "price_output", "project", "team", "organisation",
        ]  # fmt: skip

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        if data.get("provider"):
            data.update(replicas=0, max_replicas=None)  # nothing is placed for it, whatever the fields began with
        elif "weights_path" in self.fields and not data.get("weights_path") and "weights_path" not in self.errors:
            self.add_error("weights_path", "A model needs weights, or a provider that answers for it.")
        try:
            if data.get("weights_path") and "weights_path" in self.changed_data:
                served.examine_any(data["weights_path"])
            if "fallbacks" in data:
                data["fallbacks"] = served.checked_fallbacks(data.get("name", ""), data["fallbacks"] or [])
        except Refused as refused:
            to_form(self, refused)
        return data


class SizeField(forms.IntegerField):
    """Bytes, written with a unit or without."""

    def prepare_value(self, value: Any) -> Any:
        return exact_bytes(value) if isinstance(value, int) else value

    def to_python(self, value: Any) -> Any:
        if value in self.empty_values:
            return None
        try:
            return parse_bytes(str(value))
        except ValueError as error:
            raise forms.ValidationError(f"{error}.", code="invalid_value") from None


_LISTS = {"nodes": list, "labels": dict, "card_classes": list}


class ProfileForm(forms.ModelForm):  # type: ignore[type-arg]
    """Vets arguments and environment by the allowlist of the engine."""

    class Meta:
        model = Profile
        fields = PROFILE_FIELDS
        field_classes = {"memory": SizeField, "card_memory": SizeField}
        widgets = {"memory": UnfoldAdminTextInputWidget, "card_memory": UnfoldAdminTextInputWidget}
        help_texts = {
            "memory": "To reserve, such as 8 GiB; 0: measured or estimated.",
            "card_memory": "Of the cards of one node together, such as 40 GiB; 0: estimated.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["name"].initial = "default"
        for name in ("nodes", "labels", "card_classes", "args", "env"):
            self.fields[name].widget.attrs["rows"] = 2

    def clean(self) -> dict[str, Any]:
        data = super().clean() or {}
        data["args"], data["env"] = data.get("args") or [], data.get("env") or {}
        try:
            data.update(profiles.lists({name: data.get(name) or empty() for name, empty in _LISTS.items()}))
            profiles.vet(data.get("engine", ""), data["args"], data["env"])
        except Refused as refused:
            if not self.errors:
                to_form(self, refused)
        return data


class ProfileInline(StackedInline):  # type: ignore[misc]
    model = Profile
    form = ProfileForm
    fields = [("name", "engine"), ("enabled", "priority"), ("context", "slots"), ("threads", "memory"), "nodes",
              "labels", ("gpus_per_node", "tp"), "card_classes", "card_memory", "args", "env", ("start_timeout", "drain_timeout")]  # fmt: skip
    show_change_link = False

    def get_extra(self, request: HttpRequest, obj: Any = None, **kwargs: Any) -> int:
        """A new model shows its first profile; left as it is, it is the default one."""
        return 0 if obj else 1


@admin.register(Model)
class ModelPages(ScopedPages):
    """Who has a role of some scopes finds the models that these own, and as operator enables and disables them; all else about them is
    a matter of the whole cluster."""

    paths = access.IN_SCOPE
    form = ModelForm
    inlines = [ProfileInline]
    actions = ["enable_selected", "disable_selected"]
    actions_detail = ["card"]
    list_display = ["name", "state", "scaling", "engine", "shape", "size", "owner", "created_at"]
    list_filter = ["enabled", "embeddings", "profiles__engine"]
    search_fields = ["name", "id", "description"]
    readonly_fields = ["weights", "rollback", "id", "weights_size", "facts", "created_at", "updated_at"]

    def rows(self) -> Any:
        return selectors.models_with_profiles()

    def get_list_display(self, request: HttpRequest) -> list[str]:
        if self.has_card_permission(request):
            return self.list_display
        return [name if name != "scaling" else "copies" for name in self.list_display]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self._held(request, "change").everywhere

    def has_switch_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, "change")

    def has_card_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        needed = ("catalog.view_model", "cluster.view_replica", "cluster.view_node")
        return bool(request.user.has_perms(needed))

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        """Whoever sees the form may give a model to any scope."""
        return super(ScopedPages, self).formfield_for_foreignkey(db_field, request, **kwargs)

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Of a model whose weights the cluster fetches there is no file to name, and no provider."""
        if obj is None:
            return [*ModelForm.Meta.fields]
        if obj.version_id is None:
            return [*ModelForm.Meta.fields, *self.readonly_fields[2:]]
        return [*(name for name in ModelForm.Meta.fields if name not in _OF_OTHERS), *self.readonly_fields]

    @admin.display(description="weights")
    def weights(self, row: Model) -> SafeString | str:
        return _version(row.version)

    @admin.display(description="before its last update")
    def rollback(self, row: Model) -> SafeString | str:
        return _version(row.previous)

    @display(description="state", label={"enabled": "success", "disabled": "warning"})  # type: ignore[untyped-decorator]
    def state(self, row: Model) -> str:
        return "enabled" if row.enabled else "disabled"

    @display(description="replicas")  # type: ignore[untyped-decorator]
    def copies(self, row: Model) -> str:
        least, most = row.replicas, row.max_replicas
        return f"{least}" if most is None or most == least else f"{least} to {most}"

    @display(description="replicas")  # type: ignore[untyped-decorator]
    def scaling(self, row: Model) -> SafeString:
        """How many it has, as a way to where they stand."""
        link = reverse("console:model", args=[row.pk])
        return format_html('<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', link, self.copies(row))

    @action(description="Replicas, scaling, decisions", permissions=["card"])  # type: ignore[untyped-decorator]
    def card(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return redirect("console:model", object_id)

    def engine(self, row: Any) -> str:
        if row.provider is not None:
            return f"provider {row.provider.name}"
        return ", ".join(sorted({profile.engine for profile in row.profiles.all() if profile.enabled})) or "-"

    def owner(self, row: Model) -> str:
        return str(row.project or row.team or row.organisation or "-")

    def shape(self, row: Model) -> str:
        parts = [row.facts.get("architecture"), row.facts.get("quantization")]
        return " ".join(part for part in parts if part) or "-"

    @admin.display(ordering="weights_size")
    def size(self, row: Model) -> str:
        return "-" if row.weights_size is None else format_bytes(row.weights_size)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """A changed model is written here; a new one in `save_related`, together with its first profile."""
        if change:
            changes = {name: form.cleaned_data[name] for name in form.changed_data}
            served.update(actor=self.actor(request), model=Model.objects.get(pk=obj.pk), **changes)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        actor = self.actor(request)
        if not change:
            given = [data for formset in formsets for data in _new_profiles(formset)]
            data = {name: form.cleaned_data[name] for name in ModelForm.Meta.fields}
            data["embeddings"] = data["embeddings"] or None  # not ticked: as the file says
            model = served.add_model(actor=actor, profile=given[0] if given else None, **data)
            for fields in given[1:]:
                profiles.add(actor=actor, model=model, **fields)
            form.instance.pk = model.pk
            return
        for formset in formsets:
            for deleted in formset.deleted_forms:
                if deleted.instance.pk and not deleted.instance._state.adding:
                    profiles.remove(actor=actor, profile=deleted.instance)
            for item in formset.initial_forms:
                if item.has_changed() and item not in formset.deleted_forms:
                    row = Profile.objects.select_related("model").get(pk=item.instance.pk)
                    profiles.update(
                        actor=actor,
                        profile=row,
                        **{n: item.cleaned_data[n] for n in item.changed_data if n in PROFILE_FIELDS},
                    )
            for fields in _new_profiles(formset):
                profiles.add(actor=actor, model=Model.objects.get(pk=form.instance.pk), **fields)

    def construct_change_message(self, request: HttpRequest, form: Any, formsets: Any, add: bool = False) -> Any:
        """Django's own log names the form's fields; what changed in profiles stands in our events."""
        return super().construct_change_message(request, form, [], add)

    def remove(self, request: HttpRequest, row: Any) -> None:
        served.remove(actor=self.actor(request), model=row)

    @action(description="Enable selected", permissions=["switch"])  # type: ignore[untyped-decorator]
    def enable_selected(self, request: HttpRequest, queryset: Any) -> None:
        self._each(request, queryset, served.enable, "enabled")

    @action(description="Disable selected: refuse new requests, finish running ones, stop", permissions=["switch"])  # type: ignore[untyped-decorator]
    def disable_selected(self, request: HttpRequest, queryset: Any) -> None:
        self._each(request, queryset, served.disable, "disabled")

    def _each(self, request: HttpRequest, queryset: Any, service: Any, done: str) -> None:
        rows = list(queryset)
        if self.allowed(request, "change", queryset).count() != len(rows):
            raise access.lacks(request.user, self._permission("change"), "all of these")
        with transaction.atomic():
            for row in rows:
                service(actor=self.actor(request), model=row)
        messages.success(request, f"{done}: {', '.join(row.name for row in rows)}")


_OF_OTHERS = ("weights_path", "weights_sha256", "provider", "provider_model")
"""Fields of models whose weights are not fetched."""


def _version(version: Version | None) -> SafeString | str:
    if version is None:
        return "-"
    link = reverse("admin:catalog_version_change", args=[version.pk])
    return format_html('<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>', link, version.name)


def _new_profiles(formset: Any) -> list[dict[str, Any]]:
    """Fields of the profiles that an inline form adds."""
    return [
        {name: item.cleaned_data[name] for name in PROFILE_FIELDS}
        for item in formset.extra_forms
        if item.has_changed() and item not in formset.deleted_forms
    ]
