"""The chat page. The browser asks `/v1/chat/completions` itself, as any client does, with a key that lives an hour."""

from __future__ import annotations

from datetime import timedelta

from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from catalog.services import actors, keys
from llmgw_site.console import access, selectors
from llmgw_site.console.theme import MAY_CHAT
from llmgw_site.lib.errors import HTTP_STATUS, Kind, Refused, envelope

KEY_LIFE = timedelta(hours=1)


@access.page(*MAY_CHAT)
def page(request: HttpRequest) -> HttpResponse:
    """The page with the models as they stand."""
    return access.show(request, "console/chat.html", "Chat", models=selectors.chat_models())


@access.page(*MAY_CHAT)
def models(request: HttpRequest) -> HttpResponse:
    """The models as they stand now, for the page that is open."""
    return JsonResponse({"models": selectors.chat_models()})


@access.page(*MAY_CHAT)
@require_POST
def key(request: HttpRequest) -> HttpResponse:
    """A key for this user's chats: {"key", "prefix", "expires_at"}. The ones before are revoked.

    Only a key's hash is kept, so an older one could not be shown again; the page holds its own in the tab's storage.
    """
    who, name = actors.of_request(request), key_name(request.user.get_username())
    try:
        with transaction.atomic():
            for old in selectors.live_keys(name=name, created_by=who):
                keys.revoke(actor=who, key=old, why="a newer key for the same user's chats")
            project = selectors.first_project()
            if project is None:
                raise Refused(
                    Kind.CONFLICT, "project_missing", "A key belongs to a project and there is none: add one first."
                )
            expires = timezone.now() + KEY_LIFE
            _, secret = keys.issue(actor=who, project=project, name=name, expires_at=expires)
    except Refused as refusal:
        return JsonResponse(envelope(refusal), status=HTTP_STATUS[refusal.kind])
    return JsonResponse({"key": secret.text, "prefix": secret.prefix, "expires_at": expires.timestamp()})


def key_name(username: str) -> str:
    """What the list of keys calls it."""
    return f"console chat of {username}"[:100].strip()
