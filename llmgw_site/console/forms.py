"""A form that was refused: what was typed stays in it, and the refusal stands beside the field at fault. One mechanism for all pages.

A view hands `refused=forms.refusal(...)` to `access.show`; a template says `{% with form="scale" %}` around a form, includes
console/refused.html at its head, and console/field_wrong.html and console/field_error.html with the `name` of each field.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from django.http import HttpRequest

from llmgw_site.lib.errors import Refused

LONGEST = 4000
"""Characters of a field that stand in its form again."""
NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """`form`: which of the page's; `at`: the field at fault, empty where it is none of them: then the words stand at the form's head;
    `focus`: the field to go on at."""

    form: str
    at: str
    focus: str
    words: str
    code: str


def refusal(refused: Refused, *, form: str, fields: Collection[str], named: Mapping[str, str] = NONE) -> Refusal:
    """`fields`: of the form, the one to look at first in front; `named`: what a field is called there that the refusal calls otherwise,
    or (under "") does not name."""
    param = refused.param or ""
    field = named.get(param, param)
    at = field if field in fields else ""
    words = refused.message.rstrip(".")
    return Refusal(
        form=form,
        at=at,
        focus=at or next(iter(fields), ""),
        words=words.removeprefix(f"{param}: ") if at else words,  # beside its field it need not be named
        code=refused.code,
    )


def typed(request: HttpRequest, names: Iterable[str]) -> dict[str, str]:
    """What stood in these fields of the form that was sent."""
    return {name: request.POST.get(name, "")[:LONGEST].replace("\x00", "\ufffd") for name in names}
