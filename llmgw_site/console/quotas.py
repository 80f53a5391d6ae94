"""The quotas pages: what parts of the tenancy tree are guaranteed, may have and hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from catalog.services import actors
from catalog.services.access import Holder, Reach
from cluster.services import quotas as service
from llmgw_site.console import selectors
from llmgw_site.console.held import HeldPages
from llmgw_site.console.theme import MAY_CHANGE_QUOTAS, MAY_SEE_QUOTAS
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import parse_bytes

PARTS = ("guarantee", "limit")
MOST = (1 << 53) - 1
"""Of anything; the API takes no more either."""


class QuotaPages(HeldPages):
    noun = "quota"
    see, change = MAY_SEE_QUOTAS, MAY_CHANGE_QUOTAS
    keys = False
    live = True
    left = "Left empty: neither guaranteed nor limited"
    hint = (
        "What is guaranteed is not taken from its models for those of others. What it holds beyond that is borrowed, and given back when "
        "somebody within their own guarantee wants it. A model that would take it over “at most” waits, and says so."
    )

    def listed(self, held: Reach) -> dict[str, Any]:
        return {"page": selectors.quotas(held)}

    def fields(self, request: HttpRequest, of: Holder, held: Reach, typed: Mapping[str, str] | None) -> Any:
        return selectors.quota_fields(of.pk, held, typed)

    def put(self, request: HttpRequest, of: Holder, held: Reach, why: str) -> None:
        amounts = {part: _amount(request, part) for part in PARTS}
        service.put(actor=actors.of_request(request), scope=of, **amounts, why=why, held=held)  # type: ignore[arg-type]

    def remove(self, request: HttpRequest, of: Holder) -> None:
        service.remove(actor=actors.of_request(request), scope=of)  # type: ignore[arg-type]


def _amount(request: HttpRequest, part: str) -> dict[str, Any]:
    """What the form names; an empty field names nothing. Raises Refused."""
    found: dict[str, Any] = {}
    for name, text in request.POST.items():
        kind, _, key = name.partition(":")
        if kind != part or not isinstance(text, str) or not text.strip():
            continue
        try:
            value = parse_bytes(text) if key == "memory" else _number(text)
            if value > MOST:
                raise ValueError("no fleet has so much")
        except ValueError as error:
            raise Refused(Kind.INVALID, "invalid_value", f"{name}: {error}.", param=name) from None
        if key.startswith("cards:"):
            found.setdefault("cards", {})[key.removeprefix("cards:")] = value
        else:
            found[key] = value
    return found


def _number(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 32:
        raise ValueError(f"{text[:32]!r} is no whole number from 0 on")
    return int(text)


PAGES = QuotaPages()
