"""Who is acting, as events name them."""

from __future__ import annotations

from typing import Any

from catalog.models import AdminToken


def of(*, user: Any, token: Any = None) -> str:
    """`user:NAME`, or `token:PREFIX (user NAME)` when they came with an admin token."""
    name = "".join(c if c.isprintable() else "?" for c in str(user.get_username()))[:120]
    return f"token:{token.prefix} (user {name})" if isinstance(token, AdminToken) else f"user:{name}"


def of_request(request: Any) -> str:
    """The actor of a request of the admin API or the console."""
    return of(user=request.user, token=getattr(request, "auth", None))
