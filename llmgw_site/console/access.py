"""Who may open a console page: a signed-in member of staff with the page's permission."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.utils import timezone

from catalog.services import access as scoped

View = Callable[..., HttpResponseBase]


def page(*permissions: str, in_scopes: bool = False) -> Callable[[View], View]:
    """Guard a view: the sign-in page for strangers, 403 for who lacks one of `permissions`. Never cached.

    `in_scopes`: holding them in some scopes is enough; the view itself shows and takes nothing outside of these.
    """

    def guard(view: View) -> View:
        @wraps(view)
        def checked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            held = in_scopes and scoped.anywhere(request.user, permissions)
            if not held and not request.user.has_perms(permissions):  # type: ignore[union-attr]
                raise PermissionDenied(f"This page needs the permission {' and '.join(permissions)}.")
            if any("\x00" in str(value) for value in kwargs.values()):
                raise Http404("There is nothing with this id.")  # PostgreSQL cannot even be asked for it
            return view(request, *args, **kwargs)

        return admin.site.admin_view(checked)

    return guard


def show(request: HttpRequest, template: str, title: str, **context: Any) -> HttpResponse:
    """Render a whole page in the console's frame; with `refused` (forms.Refusal) it is one that says what was refused."""
    status = 409 if context.get("refused") is not None else 200
    return render(request, template, {**admin.site.each_context(request), "title": title, **context}, status=status)


def fragment(request: HttpRequest, template: str, **context: Any) -> HttpResponse:
    """Render parts of a page for `live.js`, with the server's time for the ages it counts on."""
    answer = render(request, template, context)
    answer.headers["X-Llmgw-Now"] = timezone.now().isoformat()
    return answer
