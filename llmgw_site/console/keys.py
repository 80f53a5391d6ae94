"""The page that gives an API key another text. The text is shown once, on the key's own page, by a message in the browser's cookie."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods

from catalog import selectors as catalog
from catalog.services import access as scoped
from catalog.services import actors, keys
from llmgw_site.console import access, forms
from llmgw_site.console.theme import MAY_ROTATE_KEYS
from llmgw_site.lib.errors import Refused

GRACES = ((0, "it ends now"), (3_600, "1 hour"), (86_400, "1 day"), (604_800, "7 days"), (2_592_000, "30 days"))
"""Seconds that the present text goes on to be valid, as the form offers them."""
USUAL = 86_400


@access.page(*MAY_ROTATE_KEYS, in_scopes=True)
@require_http_methods(["GET", "HEAD", "POST"])
def rotate(request: HttpRequest, key_id: str) -> HttpResponse:
    """The form, and what it asks for; a refusal is shown in it as it was filled in."""
    try:
        held = scoped.reach(request.user, "catalog.change_apikey")
        key = catalog.find(held.of_rows(catalog.keys(), scoped.IN_PROJECT), key_id, noun="key")
    except Refused as refusal:
        messages.error(request, refusal.message)
        return redirect("admin:catalog_apikey_changelist")
    context: dict[str, Any] = {
        "key": key,
        "graces": [(str(seconds), words) for seconds, words in GRACES],
        "typed": {"grace": str(USUAL), "why": ""},
    }
    if request.method == "POST":
        try:
            grace, why = _seconds(request.POST.get("grace", "")), request.POST.get("why", "")[:1000]
            key, secret = keys.rotate(actor=actors.of_request(request), key=key, grace=grace, why=why)
        except Refused as refusal:
            typed = forms.typed(request, ("grace", "why"))
            context |= {"typed": typed, "refused": forms.refusal(refusal, form="rotate", fields=typed)}
        else:
            told = "The API key {} has another text. Copy it now, it is not shown again: <code>{}</code>"
            messages.warning(request, format_html(told, key.name, secret.text))
            return redirect("admin:catalog_apikey_change", key.pk)
    return access.show(request, "console/key_rotate.html", f"Another text for {key.name}", **context)


def _seconds(text: str) -> float:
    """Of the form; what is no number is refused as one out of bounds."""
    return float(text) if text.isdecimal() and len(text) < 10 else -1.0
