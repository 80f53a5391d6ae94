"""What the catalogue's admin pages share: refusals become messages, deleting says plainly what will go."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar

from django.contrib import messages
from django.contrib.admin import RelatedFieldListFilter
from django.core.exceptions import ValidationError
from django.db import transaction
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from unfold.admin import ModelAdmin

from catalog.services import access, actors
from catalog.services.holders import path
from llmgw_site.lib.errors import Kind, Refused


class _Abstract(ABCMeta, type(ModelAdmin)):  # type: ignore[misc]
    """Pages that lack a method are refused when they are registered."""


class ServicePages(ModelAdmin, metaclass=_Abstract):  # type: ignore[misc]
    """Pages whose writes go through services. Heirs override `save_model`, `save_related` and `remove`."""

    list_fullwidth = True
    warn_unsaved_form = True

    @abstractmethod
    def remove(self, request: HttpRequest, row: Any) -> None:
        """Delete a row by its service."""

    def actor(self, request: HttpRequest) -> str:
        return actors.of(user=request.user)

    @abstractmethod
    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Write what the form says by a service."""

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        self.remove(request, obj)

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        with transaction.atomic():
            for row in queryset:
                self.remove(request, row)

    def get_deleted_objects(self, objs: Iterable[Any], request: HttpRequest) -> Any:
        """What goes is what the service removes; it refuses by itself where something hangs on a row."""
        rows = list(objs)
        allowed = self.has_delete_permission(request)
        return [str(row) for row in rows], {}, set() if allowed else {self.opts.verbose_name}, []

    def changeform_view(self, request: Any, *args: Any, **kwargs: Any) -> HttpResponse:
        """What a service refuses of a form that looked right is an error of its field, and all that was typed stays."""

        def view() -> HttpResponse:
            page: HttpResponse = super(ServicePages, self).changeform_view(request, *args, **kwargs)
            return page

        try:
            return view()
        except Refused as refused:
            if request.method != "POST" or (refused.kind in _NO_FIELD and refused.param is None):
                return self._back(request, request.path, refused)
            request.refused = refused
        return self._answered(request, request.path, view)

    def get_form(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        form = super().get_form(request, *args, **kwargs)
        refused = getattr(request, "refused", None)
        if refused is None or self._of_inline(refused):
            return form
        return type(f"Refused{form.__name__}", (form,), {"full_clean": _refusing(form.full_clean, refused)})

    def _create_formsets(self, request: Any, obj: Any, change: bool) -> Any:
        formsets, inlines = super()._create_formsets(request, obj, change)
        refused = getattr(request, "refused", None)
        if refused is not None and self._of_inline(refused):
            forms = [form for formset in formsets for form in formset.forms if refused.param in form.fields]
            for form in sorted(forms, key=lambda item: not item.has_changed())[:1]:
                form.full_clean = partial(_refusing(type(form).full_clean, refused), form)
        return formsets, inlines

    def _of_inline(self, refused: Refused) -> bool:
        """Whether the field at fault is one of an inline form and none of the page's own."""
        own = getattr(self.form, "base_fields", {})
        return refused.param not in own and any(
            refused.param in getattr(item.form, "base_fields", {}) for item in self.inlines
        )

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        """A scope is offered by its path: many teams have a project of one name."""
        field = super().formfield_for_foreignkey(db_field, request, **kwargs)
        if field is not None and (above := _ABOVE.get(db_field.name)):
            field.queryset = field.queryset.select_related(above)
            field.label_from_instance = where
        return field

    def delete_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        back = request.path.removesuffix("delete/") + "change/"
        return self._answered(request, back, lambda: super(ServicePages, self).delete_view(request, *args, **kwargs))

    def changelist_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return self._answered(
            request, request.path, lambda: super(ServicePages, self).changelist_view(request, *args, **kwargs)
        )

    def _answered(self, request: HttpRequest, back: str, view: Callable[[], HttpResponse]) -> HttpResponse:
        """A service's refusal, which rolled everything back, as a message on the page one came from."""
        try:
            return view()
        except Refused as refused:
            return self._back(request, back, refused)

    def _back(self, request: HttpRequest, back: str, refused: Refused) -> HttpResponse:
        messages.error(request, refused.message)
        return HttpResponseRedirect(back)


def where(of: access.Holder) -> str:
    """A scope as people find it: with the names of those above it."""
    return " / ".join(path(of))


class ScopeFilter(RelatedFieldListFilter):
    """By a scope, each offered by its path."""

    def field_choices(self, field: Any, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        rows = field.related_model._default_manager.select_related(_ABOVE[field.name])
        return sorted(((row.pk, where(row)) for row in rows), key=lambda pair: pair[1])


class ScopedPages(ServicePages):
    """Pages of rows that are in scopes: who holds a permission of some scopes only finds and changes nothing else."""

    paths: ClassVar[access.Paths] = ()
    written_paths: ClassVar[access.Paths | None] = None
    """The same for changes, where it differs."""

    def get_queryset(self, request: HttpRequest) -> Any:
        held = self._held(request, "view") | self._held(request, "change") | self._held(request, "delete")
        return held.of_rows(self.rows(), self.paths)

    @abstractmethod
    def rows(self) -> Any:
        """All rows, with what lists show."""

    def get_list_filter(self, request: HttpRequest) -> Any:
        """A filter by scope names all there are: it is for whoever may see all."""
        filters = super().get_list_filter(request)
        if self._held(request, "view").everywhere:
            return filters
        return [item for item in filters if (item[0] if isinstance(item, tuple) else item) not in _SCOPES]

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.holds(request, "view", obj) or self.holds(request, "change", obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.holds(request, "add")

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.holds(request, "change", obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.holds(request, "delete", obj)

    def holds(self, request: HttpRequest, verb: str, row: Any = None) -> bool:
        """Whether the user may do this to the row; without one, to some row."""
        held = self._held(request, verb)
        if held.everywhere or row is None:
            return held.anywhere
        return held.of_rows(self.model._default_manager.filter(pk=row.pk), self._paths(verb)).exists()

    def allowed(self, request: HttpRequest, verb: str, rows: Any) -> Any:
        """Those of these rows that the user may do this to."""
        return self._held(request, verb).of_rows(rows, self._paths(verb))

    def delete_queryset(self, request: HttpRequest, queryset: Any) -> None:
        if self.allowed(request, "delete", queryset).count() != queryset.count():
            raise access.lacks(request.user, self._permission("delete"), "all of these")
        super().delete_queryset(request, queryset)

    def formfield_for_foreignkey(self, db_field: Any, request: Any, **kwargs: Any) -> Any:
        """Of scopes those are offered, and taken, in which the user may add such rows."""
        paths = _SCOPES.get(db_field.name)
        if paths is not None:
            rows = db_field.related_model._default_manager.all()
            kwargs["queryset"] = self._held(request, "add").of_rows(rows, paths)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def _paths(self, verb: str) -> access.Paths:
        return self.paths if verb == "view" or self.written_paths is None else self.written_paths

    def _permission(self, verb: str) -> str:
        return f"{self.opts.app_label}.{verb}_{self.opts.model_name}"

    def _held(self, request: HttpRequest, verb: str) -> access.Reach:
        return access.reach(request.user, self._permission(verb))


_SCOPES = {"organisation": access.ORGANISATIONS, "team": access.TEAMS, "project": access.PROJECTS}
_ABOVE = {"team": "organisation", "project": "team__organisation"}
_NO_FIELD = frozenset({Kind.NOT_FOUND, Kind.FORBIDDEN})
"""Refusals after which there is nothing to type anew."""


def _refusing(full_clean: Callable[[Any], None], refused: Refused) -> Callable[[Any], None]:
    """A form's check, with this as one more error."""

    def checked(form: Any) -> None:
        full_clean(form)
        to_form(form, refused)

    return checked


def to_form(form: ModelForm[Any], refused: Refused) -> None:
    """A refusal as an error of the field at fault; every refused argument is listed."""
    every = refused.extra.get("refusals") or [{"message": refused.message, "code": refused.code}]
    problems = [ValidationError(item["message"], code=item["code"]) for item in every]
    form.add_error(refused.param if refused.param in form.fields else None, problems)  # type: ignore[arg-type]
