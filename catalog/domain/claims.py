"""What a provider's claims say of a person here: the name, the roles by the operator's table, whose sessions end. Pure.

Source of the last: OpenID Connect Back-Channel Logout 1.0, sections 2.4 and 2.6.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from catalog.domain.roles import RANK, Role
from llmgw_site.lib.errors import Kind, Refused

USERNAME = re.compile(r"\A[\w.@+-]{1,150}\Z")
"""As Django's users have them."""
LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
"""What tells a logout token from any other token of the provider."""
LOGOUT_TYPES = ("", "jwt", "logout+jwt", "application/logout+jwt")
"""Types that its header may name: providers of before the final text name the first two."""
LOGOUT_AGE, LEEWAY = 600.0, 60.0
"""Seconds that a logout token may be old, whatever it says itself; that the provider's clock may differ."""
LONGEST = 255
"""Characters of a name that the provider gives: of a subject, a session, a token."""


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """Who has `value` in the claim, has `role`, of the scope (`team:NAME`, an id), or of the cluster where that is empty."""

    value: str
    role: Role
    scope: str = ""


def username(claims: Mapping[str, Any], claim: str) -> str:
    """The name of this claim. Raises Refused `oidc_no_username`."""
    name = claims.get(claim)
    if not isinstance(name, str) or not USERNAME.match(name):
        told = "does not tell" if name is None else f"tells {str(name)[:60]!r} as"
        raise Refused(
            Kind.FORBIDDEN,
            "oidc_no_username",
            f"The provider {told} the claim {claim}: 1 to 150 letters, digits and @ . + - _ are needed "
            "(LLMGW_OIDC_USERNAME_CLAIM names the claim).",
        )
    return name


def roles(claims: Mapping[str, Any], claim: str, table: Iterable[Mapped]) -> dict[str, Role]:
    """The roles by scope that follow from the claim, a text or a list of texts; of several of one scope the highest."""
    held = claims.get(claim)
    told = held if isinstance(held, (list, tuple)) else [held]
    values = {item for item in told if isinstance(item, str)}
    found: dict[str, Role] = {}
    for item in table:
        if item.value in values and (item.scope not in found or RANK[item.role] > RANK[found[item.scope]]):
            found[item.scope] = item.role
    return found


@dataclass(frozen=True, kw_only=True)
class LoggedOut:
    """Who was signed out at the provider: the session `sid`, or, where that is empty, all sessions of `subject`."""

    jti: str
    subject: str
    sid: str


def session_id(claims: Mapping[str, Any]) -> str:
    """The provider's name for its own session, of an ID token; empty where it tells none."""
    sid = claims.get("sid")
    return sid if _named(sid) else ""


def logged_out(claims: Mapping[str, Any], typ: object, *, issuer: str, client_id: str, now: float) -> LoggedOut:
    """What a logout token says whose signature was found good. `typ`: of its header. Raises Refused `oidc_untrusted` unless

    1. its type, where it names one, is a logout token's
    2. it comes from the issuer and is for this client, alone or among others
    3. it was made at most LOGOUT_AGE ago, not in the future, and has not expired
    4. it has the logout event, an object, among its events
    5. it has no nonce, so that no ID token passes for one
    6. it has a name of its own
    7. it names a session, a subject, or both
    """
    if typ is not None and (not isinstance(typ, str) or typ.lower() not in LOGOUT_TYPES):  # 1
        raise _bad(f"its type is {str(typ)[:60]!r}")
    if claims.get("iss") != issuer:  # 2
        raise _bad("it comes from another issuer")
    held = claims.get("aud")
    if client_id not in (held if isinstance(held, (list, tuple)) else [held]):
        raise _bad("it is for somebody else")
    made, until = claims.get("iat"), claims.get("exp")  # 3
    if not _time(made) or not _time(until):
        raise _bad("it does not say when it was made, and when it expires")
    if not now - LOGOUT_AGE - LEEWAY <= made <= now + LEEWAY or until <= now - LEEWAY:
        raise _bad("it is too old, or of the future")
    events = claims.get("events")  # 4
    if not isinstance(events, Mapping) or not isinstance(events.get(LOGOUT_EVENT), Mapping):
        raise _bad(f"it has no event {LOGOUT_EVENT}")
    if "nonce" in claims:  # 5
        raise _bad("it has a nonce")
    jti, subject, sid = (claims.get(name) for name in ("jti", "sub", "sid"))
    if not _named(jti):  # 6
        raise _bad("it has no name of its own (jti)")
    if not (subject or sid) or not all(value is None or _named(value) for value in (subject, sid)):  # 7
        raise _bad("it names neither a session (sid) nor a person (sub)")
    return LoggedOut(jti=jti, subject=subject or "", sid=sid or "")


def _named(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and 0 < len(value) <= LONGEST and value.isprintable()


def _time(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _bad(what: str) -> Refused:
    return Refused(Kind.FORBIDDEN, "oidc_untrusted", f"The logout token was not taken: {what}.")
