"""What a provider's claims say of a person here: the name, and the roles by the operator's table. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from catalog.domain.roles import RANK, Role
from llmgw_site.lib.errors import Kind, Refused

USERNAME = re.compile(r"\A[\w.@+-]{1,150}\Z")
"""As Django's users have them."""


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
