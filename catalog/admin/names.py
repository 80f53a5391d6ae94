"""The field of a list of model names: one a line, as people write it; JSON is taken, too."""

from __future__ import annotations

import json
import re
from typing import Any

from django import forms
from unfold.widgets import UnfoldAdminTextareaWidget


class NamesField(forms.CharField):
    """Names, each on a line of its own or behind a comma; None where there are none. A name has no space and no comma."""

    def __init__(self, **options: Any) -> None:
        super().__init__(required=False, widget=UnfoldAdminTextareaWidget(attrs={"rows": 4}), **options)

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(map(str, value)) if isinstance(value, (list, tuple)) else value

    def to_python(self, value: Any) -> Any:
        text = (value or "").strip()
        if not text:
            return None
        if text[0] in '["{':
            try:
                return json.loads(text)
            except ValueError:
                raise forms.ValidationError("Write one name a line.", code="invalid") from None
        return [name for name in (part.strip() for part in re.split(r"[\n,]", text)) if name]

    def has_changed(self, initial: Any, data: Any) -> bool:
        return bool(self.to_python(data) != (initial or None))


def shown(names: list[str] | None) -> str:
    """A list as a page that is not edited has it."""
    return "all" if names is None else ", ".join(names)
