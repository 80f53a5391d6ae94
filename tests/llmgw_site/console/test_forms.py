"""console.forms: where the words of a refusal stand, and what they name there."""

from __future__ import annotations

import pytest

from llmgw_site.console import forms
from llmgw_site.lib.errors import Kind, Refused


@pytest.mark.parametrize(
    ("param", "message", "at", "focus", "words"),
    [
        ("scale", "scale: a number is needed.", "scale", "scale", "a number is needed"),  # at its field
        ("path", "path: there is no such file", "source", "source", "there is no such file"),  # called otherwise there
        ("slots", "slots: 9 are too many", "", "source", "slots: 9 are too many"),  # at the head: none of the form's
        (None, "nobody answers", "", "source", "nobody answers"),
    ],
)
def test_a_field_is_named_at_the_head_of_a_form_and_not_beside_itself(
    param: str | None, message: str, at: str, focus: str, words: str
) -> None:
    refused = Refused(Kind.INVALID, "invalid_value", message, param=param)
    found = forms.refusal(refused, form="adapter", fields=("source", "scale"), named={"path": "source"})
    assert (found.at, found.focus, found.words) == (at, focus, words)
