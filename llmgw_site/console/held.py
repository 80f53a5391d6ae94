"""Pages of what is set of organisations, teams, projects and keys: a list, the form of one, and its removal. One mechanism for
limits, quotas and budgets; each says what its list shows, which fields its form has, and which service it calls.

Who holds the permission of some scopes sees what is in these, and sets what has a scope of theirs above it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST

from catalog.services import access as scoped
from catalog.services import holders
from catalog.services.access import Holder, Reach
from llmgw_site.console import access, forms
from llmgw_site.lib.errors import Kind, Refused


class HeldPages(ABC):
    """`noun` names its paths and its templates: `limit` has console:limits, console:limit-set, console:limit-remove, and
    limits.html, limits_parts.html (`live`), limit_fields.html."""

    noun: ClassVar[str]
    see: ClassVar[Sequence[str]]
    change: ClassVar[Sequence[str]]
    keys: ClassVar[bool] = True
    """Whether keys have one, too."""
    live: ClassVar[bool] = False
    """Whether the page asks for its parts again."""
    left: ClassVar[str]
    """What an empty field means."""
    hint: ClassVar[str]
    """What the form should not be sent without knowing."""

    @abstractmethod
    def listed(self, held: Reach) -> dict[str, Any]:
        """What the list shows of what is in reach."""

    @abstractmethod
    def fields(self, request: HttpRequest, of: Holder, held: Reach, typed: Mapping[str, str] | None) -> Any:
        """The form's fields as they stand, or as somebody typed them who was refused."""

    @abstractmethod
    def put(self, request: HttpRequest, of: Holder, held: Reach, why: str) -> None:
        """Set it. Raises Refused, `param` being the field at fault."""

    @abstractmethod
    def remove(self, request: HttpRequest, of: Holder) -> None:
        """Take it away. Raises Refused."""

    @property
    def index_view(self) -> access.View:
        return access.page(*self.see, in_scopes=True)(require_http_methods(["GET", "HEAD"])(self._index))

    @property
    def set_view(self) -> access.View:
        return access.page(*self.see, *self.change, in_scopes=True)(
            require_http_methods(["GET", "HEAD", "POST"])(self._set)
        )

    @property
    def remove_view(self) -> access.View:
        return access.page(*self.see, *self.change, in_scopes=True)(require_POST(self._remove))

    def _index(self, request: HttpRequest) -> HttpResponse:
        """All that has one, in the order of the tree. With `?parts` what changes alone."""
        held = scoped.reach(request.user, self.see[0])
        places = holders.governed(request.user, self.change, keys=self.keys)
        context = {**self.listed(held), "noun": self.noun, "places": places, "may_change": {id for id, _ in places}}
        if self.live and "parts" in request.GET:
            return access.fragment(request, f"console/{self.noun}s_parts.html", **context)
        return access.show(request, f"console/{self.noun}s.html", f"{self.noun.capitalize()}s", **context)

    def _set(self, request: HttpRequest) -> HttpResponse:
        """The form of one, `?of=`; a refusal is shown beside the field at fault, and what was typed stays."""
        try:
            of = self._of(request)
        except Refused as refusal:
            return self._back(request, refusal)
        held = scoped.reach(request.user, self.change[0])
        refused = None
        if request.method == "POST":
            try:
                self.put(request, of, held, request.POST.get("why", "")[:1000])
                messages.success(request, f"The {self.noun} of {of.name} is set.")
                return redirect(f"console:{self.noun}s")
            except Refused as refusal:
                refused = refusal
        return self._form(request, of, held, refused)

    def _form(self, request: HttpRequest, of: Holder, held: Reach, refused: Refused | None) -> HttpResponse:
        typed = forms.typed(request, request.POST) if refused else None
        context = {
            "of": of,
            "kind": holders.kind(of),
            "path": " / ".join(holders.path(of)),
            "noun": self.noun,
            "back": reverse(f"console:{self.noun}s"),
            "fields": self.fields(request, of, held, typed),
            "fields_of": f"console/{self.noun}_fields.html",
            "left": self.left,
            "hint": self.hint,
            "refused": refused and forms.refusal(refused, form="held", fields=[*typed] if typed else ()),
            "why": request.POST.get("why", ""),
        }
        return access.show(request, "console/held_form.html", f"{self.noun.capitalize()} of {of.name}", **context)

    def _remove(self, request: HttpRequest) -> HttpResponse:
        try:
            of = self._of(request)
            self.remove(request, of)
        except Refused as refusal:
            return self._back(request, refusal)
        messages.success(request, f"{of.name} has no {self.noun} any more.")
        return redirect(f"console:{self.noun}s")

    def _of(self, request: HttpRequest) -> Holder:
        """What `?of=` names, if the user may set this of it. Raises Refused, PermissionDenied."""
        try:
            ref = request.GET.get("of", "")
            return holders.reached(request.user, ref, see=self.see[0], needs=self.change, keys=self.keys)
        except Refused as refusal:
            if refusal.kind is Kind.FORBIDDEN:
                raise PermissionDenied(refusal.message) from None
            raise

    def _back(self, request: HttpRequest, refusal: Refused) -> HttpResponse:
        messages.error(request, f"{refusal.message} ({refusal.code})")
        return redirect(f"console:{self.noun}s")
