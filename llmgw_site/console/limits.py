"""The limits pages: what keys, projects, teams and organisations may use of the endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest

from catalog.services import actors
from catalog.services import limits as service
from catalog.services.access import Holder, Reach
from llmgw_site.console.held import HeldPages
from llmgw_site.console.theme import MAY_CHANGE_LIMITS, MAY_SEE_LIMITS
from llmgw_site.lib.errors import Kind, Refused

FIELDS = (
    ("requests_per_minute", "Requests a minute", "60"),
    ("tokens_per_minute", "Tokens a minute", "100000"),
    ("parallel", "Requests at a time", "8"),
)


class LimitPages(HeldPages):
    noun = "limit"
    see, change = MAY_SEE_LIMITS, MAY_CHANGE_LIMITS
    left = "Left empty: not limited here"
    hint = (
        "A request reserves the tokens of its prompt and of the answer that it allows for (max_tokens), and is settled with the true "
        "count. What is over a limit is refused with status 429, which names the limit and says when there is room."
    )

    def listed(self, held: Reach) -> dict[str, Any]:
        rows = service.shown(held)
        return {"rows": [{"row": row, "depth": len(row.path) - 1, "path": " / ".join(row.path)} for row in rows]}

    def fields(self, request: HttpRequest, of: Holder, held: Reach, typed: Mapping[str, str] | None) -> Any:
        row = service.of_whom(of)
        shown = typed or {name: _shown(getattr(row, name, None)) for name, _, _ in FIELDS}
        return [
            {"name": name, "title": title, "example": example, "value": shown.get(name, "")}
            for name, title, example in FIELDS
        ]

    def put(self, request: HttpRequest, of: Holder, held: Reach, why: str) -> None:
        figures = {name: whole_number(request, name) for name, _, _ in FIELDS}
        service.put(actor=actors.of_request(request), of=of, **figures, why=why)

    def remove(self, request: HttpRequest, of: Holder) -> None:
        service.remove(actor=actors.of_request(request), of=of)


def _shown(value: int | None) -> str:
    return "" if value is None else str(value)


def whole_number(request: HttpRequest, name: str) -> int | None:
    """What a field of a form says; None where it is empty. Raises Refused."""
    text = str(request.POST.get(name, "")).strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > 16:
        raise Refused(Kind.INVALID, "invalid_value", f"{name}: {text[:32]!r} is no whole number from 0 on.", param=name)
    return int(text)


PAGES = LimitPages()
