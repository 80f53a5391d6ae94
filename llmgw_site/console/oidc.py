"""Sign-in and sign-out through the operator's OpenID Connect provider. Local accounts stay as they are, beside it.

The browser leaves with a state, a nonce and a challenge that only its own session knows, and comes back to `/admin/oidc/callback`.
A refusal is shown on the sign-in page. The session here is a session as any other; the provider keeps one of its own, which the
page after signing out leads to; and where that ends, the provider says so to `/admin/oidc/backchannel-logout`.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import lru_cache
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.auth import login, user_logged_in
from django.dispatch import receiver
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_GET, require_POST

from catalog.domain.claims import Mapped, logged_out, roles, session_id, username
from catalog.domain.roles import Role
from catalog.services import identities, signins
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.oidc import Provider, Started

TRIES = "oidc_tries"
CAME = "oidc_came"
"""Keys of the browser's session: tries that are under way, by state; that it began with the provider."""
MOST_TRIES, PATIENCE = 5, 600.0
"""At once in one browser, as tabs make them; seconds that a person may take at the provider."""
LONGEST_TOKEN = 16_384
"""Characters of a logout token that are read."""


def provider() -> Provider | None:
    """The provider of the settings; None: local accounts only."""
    config: Config = settings.CONFIG
    if not config.oidc_issuer:
        return None
    return _provider(
        config.oidc_issuer,
        config.oidc_client_id,
        config.oidc_client_secret,
        config.oidc_scopes,
        config.private_addresses,
    )


@lru_cache(maxsize=4)
def _provider(issuer: str, client_id: str, secret: str, scopes: str, private: bool) -> Provider:
    return Provider(issuer=issuer, client_id=client_id, client_secret=secret, scopes=scopes, private=private)


@require_GET
@never_cache
def start(request: HttpRequest) -> HttpResponse:
    """Off to the provider."""
    it = _needed()
    try:
        begun = it.start(_callback(request))
    except Refused as refused:
        return _back(request, refused)
    now = timezone.now().timestamp()
    tries = {**_tries(request, now), begun.state: {**asdict(begun), "at": now, "next": _next(request)}}
    request.session[TRIES] = dict(sorted(tries.items(), key=lambda item: item[1]["at"])[-MOST_TRIES:])
    if not request.user.is_authenticated:  # anybody can begin: what nobody comes back to is not kept for weeks
        request.session.set_expiry(int(PATIENCE))
    return redirect(begun.url)


@receiver(user_logged_in)
def _signed_in(*, request: HttpRequest | None, **kwargs: Any) -> None:
    """However it was: the session is one as any other from here on."""
    if request is not None:
        request.session.set_expiry(None)


@require_GET
@never_cache
def callback(request: HttpRequest) -> HttpResponse:
    """Back from the provider. A state counts once."""
    it, now, config = _needed(), timezone.now(), settings.CONFIG
    tries = _tries(request, now.timestamp())
    kept = tries.pop(request.GET.get("state", ""), None)
    request.session[TRIES] = tries
    try:
        if kept is None:
            told = "This browser did not begin this sign-in here, or too long ago: begin anew."
            raise Refused(Kind.FORBIDDEN, "oidc_untrusted", told)
        begun = Started(**{name: kept[name] for name in ("url", "state", "nonce", "verifier")})
        claims = it.finish(begun, request.GET.dict(), _callback(request))
        table = [Mapped(value=value, role=Role(role), scope=scope) for value, role, scope in config.oidc_roles]
        email = claims.get("email")
        user = identities.arrive(
            issuer=it.issuer, subject=claims["sub"], name=username(claims, config.oidc_username_claim),
            email=email if isinstance(email, str) else "", wanted=roles(claims, config.oidc_roles_claim, table),
        )  # fmt: skip
    except Refused as refused:
        return _back(request, refused)
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    request.session.pop(TRIES, None)
    request.session[CAME] = True
    request.session.save()  # who was somebody else here before has a session without a key until then
    identities.opened(
        issuer=it.issuer, subject=claims["sub"], sid=session_id(claims), session_key=str(request.session.session_key)
    )
    signins.succeeded(user=user, address=str(request.META.get("REMOTE_ADDR") or "unknown"))
    return redirect(kept["next"])


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """Of this console; who came by the provider is told where its session ends. In place of the admin's own view."""
    came, it = bool(request.session.get(CAME)), provider()
    admin.site.logout(request)
    end = it.end_session(_ours(request, "admin:login")) if came and it is not None else ""
    if end:
        name = settings.CONFIG.oidc_name
        told = 'You are signed out here. {} still knows you: <a class="underline" href="{}">sign out there, too</a>.'
        messages.info(request, format_html(told, name[:1].upper() + name[1:], end))
    return redirect("admin:login")


@csrf_exempt  # the provider itself asks, with no session of ours: what it signed stands for it
@require_POST
def backchannel_logout(request: HttpRequest) -> HttpResponse:
    """The provider says that somebody signed out there: the sessions that came from there end (OpenID Connect Back-Channel
    Logout 1.0). 200, also where there is none any more; 400 with the reason where the token is not taken."""
    it, now = _needed(), timezone.now()
    answer = HttpResponse()
    try:
        header, claims = it.told(request.POST.get("logout_token", "")[:LONGEST_TOKEN])
        told = logged_out(
            claims, header.get("typ"), issuer=it.issuer, client_id=it.client_id, now=now.timestamp()
        )  # fmt: skip
        identities.end_sessions(issuer=it.issuer, told=told, now=now)
    except Refused as refused:
        answer = JsonResponse(
            {"error": "invalid_request", "error_description": f"{refused.message} ({refused.code})"}, status=400
        )
    answer["Cache-Control"] = "no-store"
    return answer


def _needed() -> Provider:
    it = provider()
    if it is None:
        raise Http404("There is no provider of single sign-on: LLMGW_OIDC_ISSUER names one.")
    return it


def _callback(request: HttpRequest) -> str:
    """The address that the provider sends people back to, and has to know."""
    return _ours(request, "console:oidc-callback")


def _ours(request: HttpRequest, name: str) -> str:
    """The whole address of a page of ours, as people reach it."""
    path, public = reverse(name), settings.CONFIG.public_url
    return public.rstrip("/") + path if public else request.build_absolute_uri(path)


def _next(request: HttpRequest) -> str:
    """Where the person wanted to go, if that is a page of ours."""
    wanted = request.GET.get("next", "")
    allowed = url_has_allowed_host_and_scheme(wanted, allowed_hosts=None)
    return wanted if allowed and wanted.startswith("/") else reverse("admin:index")


def _tries(request: HttpRequest, now: float) -> dict[str, Any]:
    held = request.session.get(TRIES, {})
    return {state: kept for state, kept in held.items() if now - kept["at"] < PATIENCE}


def _back(request: HttpRequest, refused: Refused) -> HttpResponse:
    messages.error(request, f"{refused.message} ({refused.code})")
    return redirect("admin:login")
