"""People who come from a provider of single sign-on: found again by issuer and subject, with the roles that their claims give;
and the sessions that they have here, which end where the provider says so."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.sessions.models import Session
from django.db import IntegrityError, transaction

from catalog.domain.claims import LEEWAY, LOGOUT_AGE, LoggedOut
from catalog.domain.roles import Role
from catalog.models import Identity, LogoutToken, ProviderSession, RoleGrant
from catalog.services import events, holders, roles
from catalog.services.access import Scope
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)
SOURCE = "oidc"
KEPT = timedelta(seconds=LOGOUT_AGE + 10 * LEEWAY)
"""That a logout token is known again: for longer than one can be good."""


def arrive(*, issuer: str, subject: str, name: str, email: str, wanted: Mapping[str, Role]) -> Any:
    """The user who is this person, made now where there is none. `wanted`: roles by scope, as claims give them now.

    1. a person who was here before is the same user, under whatever name; roles that came from claims follow them, also where
       none is left: keys, tokens and open sessions of somebody who is refused can do no more than the claims say
    2. a new one gets an account without a password; a name that somebody has already is refused: `oidc_username_taken`
    3. who is deactivated here, or has no role at all, is refused: `oidc_not_allowed`; somebody new leaves no account then
    """
    actor = f"oidc:{issuer}"[:200]
    with transaction.atomic():
        identity = Identity.objects.select_related("user").filter(issuer=issuer, subject=subject).first()  # 1
        user = identity.user if identity else _made(actor, issuer, subject, name, email)
        if user.is_active:
            _follow(actor, user, wanted)
            user = type(user).objects.get(pk=user.pk)
        refused = _refusal(user, name)
        if refused is not None and identity is None:
            raise refused  # 3, and nothing of it stays
    if refused is not None:
        raise refused
    return user


def opened(*, issuer: str, subject: str, sid: str, session_key: str) -> None:
    """The person has this session of the console now; `sid`: the provider's name for its own, which it came from."""
    identity = Identity.objects.get(issuer=issuer, subject=subject)
    ProviderSession.objects.update_or_create(session_id=session_key, defaults={"identity": identity, "sid": sid})


@contextmanager
def kept(session: Any) -> Iterator[None]:
    """What is known of a session goes with it where it gets another key here, as it does when a password is set."""
    row = ProviderSession.objects.filter(session_id=session.session_key).first()
    yield
    if row is not None and session.session_key not in (None, row.session_id):
        values = {"identity_id": row.identity_id, "sid": row.sid}
        ProviderSession.objects.update_or_create(session_id=session.session_key, defaults=values)


@transaction.atomic
def end_sessions(*, issuer: str, told: LoggedOut, now: datetime) -> int:
    """End what the provider says has ended; returns how many sessions. Raises Refused `oidc_untrusted` where the token was
    taken before.

    1. all sessions of the subject, where no session is named
    2. the session that is named, if it is the subject's where one is named, too; and with it those of the subject whose own
       name at the provider is not known: better one too many
    """
    LogoutToken.objects.filter(created_at__lt=now - KEPT).delete()
    try:
        with transaction.atomic():
            LogoutToken.objects.create(issuer=issuer, jti=told.jti)
    except IntegrityError:
        raise Refused(
            Kind.FORBIDDEN, "oidc_untrusted", "The logout token was not taken: it was taken before."
        ) from None
    held = ProviderSession.objects.filter(identity__issuer=issuer)
    if told.subject:
        held = held.filter(identity__subject=told.subject)  # 1
    if told.sid:
        held = held.filter(sid__in=(told.sid, "") if told.subject else (told.sid,))  # 2
    found = list(held.select_related("identity__user"))
    Session.objects.filter(pk__in=[row.pk for row in found]).delete()
    for user in {row.identity.user for row in found}:
        events.append(
            actor=f"oidc:{issuer}"[:200], kind="signed_out", subject_kind="user", subject_id=str(user.pk),
            message=f"user {user.get_username()} signed out at the provider: the sessions here that came from there ended",
        )  # fmt: skip
    return len(found)


def _refusal(user: Any, name: str) -> Refused | None:
    if not user.is_active:
        return _not_allowed(name, "the account was deactivated")
    if not (user.is_staff and user.get_all_permissions()):
        return _not_allowed(name, "none of the groups that the provider tells comes with a role (LLMGW_OIDC_ROLES)")
    return None


def _made(actor: str, issuer: str, subject: str, name: str, email: str) -> Any:
    taken = Refused(  # 2
        Kind.CONFLICT,
        "oidc_username_taken",
        f"There is a user {name} already who does not come from the provider: an administrator can rename one of the two.",
    )
    if get_user_model().objects.filter(username=name).exists():
        raise taken
    user = get_user_model()(username=name, email=email[:254])
    user.set_unusable_password()
    try:
        with transaction.atomic():
            user.save()
            Identity.objects.create(user=user, issuer=issuer, subject=subject)
    except IntegrityError:
        raise taken from None
    events.append(
        actor=actor, kind="user_added", subject_kind="user", subject_id=str(user.pk),
        message=f"user {name} came from {issuer}",
    )  # fmt: skip
    return user


def _follow(actor: str, user: Any, wanted: Mapping[str, Role]) -> None:
    """Roles that came from claims become what the claims say now; those that were given here stay as they are."""
    scopes: dict[str, tuple[Scope | None, Role]] = {}
    for ref, role in wanted.items():
        try:
            scope = holders.scope(ref) if ref else None
        except Refused as refused:
            event(log, "oidc_role_unknown", level=logging.WARNING, scope=ref[:100], reason=refused.message)
            continue
        scopes[scope.pk if scope is not None else ""] = scope, role
    held = {grant.scope.pk if grant.scope is not None else "": grant for grant in RoleGrant.objects.filter(user=user)}
    for scope_id, grant in held.items():
        if grant.source == SOURCE and scope_id not in scopes:
            roles.take(actor=actor, grant=grant)
    for scope_id, (scope, role) in scopes.items():
        if scope_id not in held or held[scope_id].source == SOURCE:
            roles.give(actor=actor, user=user, role=role, scope=scope, source=SOURCE)


def _not_allowed(name: str, why: str) -> Refused:
    return Refused(Kind.FORBIDDEN, "oidc_not_allowed", f"{name} may not open this console: {why}.")
