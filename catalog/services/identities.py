"""People who come from a provider of single sign-on: found again by issuer and subject, with the roles that their claims give."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction

from catalog.domain.roles import Role
from catalog.models import Identity, RoleGrant
from catalog.services import events, holders, roles
from catalog.services.access import Scope
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)
SOURCE = "oidc"


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
