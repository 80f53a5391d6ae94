"""External providers: add, change, give a key or take it, remove.

A key comes in here in clear and leaves as `sealed_key`: sealed under LLMGW_SECRET_KEY, for this provider alone. No
function gives it back; `unsealed` is for the one place that seals it anew for a node.
"""

from __future__ import annotations

import hashlib
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.db import transaction

from catalog.domain.providers import base_url, plain_key
from catalog.models import Provider
from catalog.services import rows
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.sealing import seal, unseal

FIELDS = frozenset({"name", "url", "api_key_file", "enabled"})
"""What callers may change; the key has functions of its own."""


def create(
    *, actor: str, name: str, url: str, api_key: str = "", api_key_file: str = "", enabled: bool = True
) -> Provider:
    """A new provider. With a key, with a file on the cloud nodes that holds one, or with neither: then none is sent."""
    if api_key and api_key_file:
        raise _both()
    provider = Provider(name=name, url=checked_url(url), api_key_file=api_key_file, enabled=enabled)
    if api_key:
        provider.sealed_key, provider.key_digest = _sealed(provider, checked_key(api_key, param="api_key"))
    return rows.add(provider, actor=actor, message=f"provider {name} added")


@transaction.atomic
def change(*, actor: str, provider: Provider, why: str = "", **changes: Any) -> Provider:
    """Change fields of a provider.

    A kept key goes to no other server than the one it was given for: to move the URL to another host, clear the key.
    """
    rows.known(changes, FIELDS, noun="provider")
    fresh = rows.lock(provider)
    if "url" in changes:
        changes["url"] = checked_url(changes["url"])
        if fresh.sealed_key and _origin(changes["url"]) != _origin(fresh.url):
            raise Refused(
                Kind.CONFLICT,
                "provider_key_set",
                f"The key of provider {fresh.name} was given for {fresh.url}: clear it, change the URL, set a key anew.",
                param="url",
            )
    if changes.get("api_key_file") and fresh.sealed_key:
        raise _both()
    return rows.change(provider, changes, actor=actor, message=f"provider {fresh.name} changed", why=why)


@transaction.atomic
def set_key(*, actor: str, provider: Provider, key: str) -> Provider:
    """Keep this key for it, in place of any other. It is not shown again."""
    if rows.lock(provider).api_key_file:
        raise _both()
    sealed, digest = _sealed(provider, checked_key(key))
    return _keep(
        actor, provider, sealed, digest, kind="provider_key_set", message=f"key of provider {provider.name} set"
    )


@transaction.atomic
def clear_key(*, actor: str, provider: Provider) -> Provider:
    """Forget its key. A second time changes nothing."""
    message = f"key of provider {provider.name} cleared"
    return _keep(actor, provider, "", "", kind="provider_key_cleared", message=message)


def remove(*, actor: str, provider: Provider) -> None:
    """Delete a provider and its key. Refused while models are answered by it."""
    rows.remove(provider, actor=actor, message=f"provider {provider.name} removed")


def unsealed(provider_id: str, sealed: str) -> str:
    """The key itself. Raises `llmgw_site.lib.sealing.WrongSecret` where LLMGW_SECRET_KEY is another now."""
    return unseal(sealed, secret=settings.SECRET_KEY, about=provider_id)


def checked_url(text: str) -> str:
    """A base URL as it is kept. Raises Refused."""
    url = base_url(text)
    if url is None:
        raise Refused(
            Kind.INVALID,
            "invalid_value",
            "url: the base of an OpenAI API is needed, http or https, without user, password, query or fragment, such as "
            "https://api.example.com/v1.",
            param="url",
        )
    return url


def checked_key(text: str, *, param: str = "key") -> str:
    """A key as a header carries it. Raises Refused, without showing it; `param`: what the caller named it."""
    key = plain_key(text)
    if key is None:
        raise Refused(
            Kind.INVALID,
            "invalid_value",
            f"{param}: one line of printable ASCII without spaces is needed, 1 to 4096 characters.",
            param=param,
        )
    return key


def _sealed(provider: Provider, text: str) -> tuple[str, str]:
    """A checked key, sealed, and a digest that names it. The digest is of the sealed text: it tells nothing of the key."""
    sealed = seal(text, secret=settings.SECRET_KEY, about=str(provider.pk))
    return sealed, hashlib.sha256(sealed.encode()).hexdigest()


def _keep(actor: str, provider: Provider, sealed: str, digest: str, *, kind: str, message: str) -> Provider:
    changes = {"sealed_key": sealed, "key_digest": digest}
    return rows.change(provider, changes, actor=actor, kind=kind, message=message)


def _both() -> Refused:
    return Refused(
        Kind.CONFLICT,
        "provider_has_key",
        "A provider has a key or a key file, not both: clear the one, then set the other.",
        param="api_key_file",
    )


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
