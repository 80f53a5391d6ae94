"""What the catalogue's admin pages share: refusals become messages, deleting says plainly what will go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from django.contrib import messages
from django.core.exceptions import ValidationError
from django.db import transaction
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from unfold.admin import ModelAdmin

from catalog.services import actors
from llmgw_site.lib.errors import Refused


class ServicePages(ModelAdmin):  # type: ignore[misc]
    """Pages whose writes go through services. Heirs override `save_model`, `save_related` and `remove`."""

    show_full_result_count = False
    list_fullwidth = True
    warn_unsaved_form = True

    def remove(self, request: HttpRequest, row: Any) -> None:
        """Delete a row by its service."""
        raise NotImplementedError

    def actor(self, request: HttpRequest) -> str:
        return actors.of(user=request.user)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        raise NotImplementedError

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

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        return self._answered(
            request, request.path, lambda: super(ServicePages, self).changeform_view(request, *args, **kwargs)
        )

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
            messages.error(request, refused.message)
            return HttpResponseRedirect(back)


def to_form(form: ModelForm[Any], refused: Refused) -> None:
    """A refusal as an error of the field at fault; every refused argument is listed."""
    every = refused.extra.get("refusals") or [{"message": refused.message, "code": refused.code}]
    problems = [ValidationError(item["message"], code=item["code"]) for item in every]
    form.add_error(refused.param if refused.param in form.fields else None, problems)  # type: ignore[arg-type]
