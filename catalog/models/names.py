"""The one namespace of what clients put into `model`: models, adapters and aliases."""

from __future__ import annotations

from django.apps import apps
from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.db import models

MODEL_NAME = r"\A[A-Za-z0-9][A-Za-z0-9._:/@-]{0,127}\Z"
_KINDS = {"Model": "a model", "Adapter": "an adapter", "Alias": "an alias"}


def name_field(help_text: str) -> models.CharField[str, str]:
    """A name that clients ask for. A row that has one has `shares_names`, too, and calls `check_free` when it is checked."""
    wrong = "A name begins with a letter or digit and has at most 128 of A-Z a-z 0-9 . _ : / @ -"
    return models.CharField(
        max_length=128, unique=True, help_text=help_text, validators=[RegexValidator(MODEL_NAME, wrong, "name")]
    )


def check_free(row: models.Model, name: str) -> None:
    """Raises ValidationError `name_taken` where a row of another kind has the name."""
    own = _KINDS[type(row).__name__]
    for kind, told in _KINDS.items():
        other = apps.get_model("catalog", kind)
        if type(row) is not other and other.objects.filter(name=name).exists():
            text = f"There is {told} named {name}: {own} needs a name of its own."
            raise ValidationError({"name": ValidationError(text, code="name_taken")})
