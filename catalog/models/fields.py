"""Columns that several tables share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from operator import or_
from typing import Any

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q

from catalog.choices import CLASSES
from llmgw_site.lib.clock import new_id

LABEL = r"\A[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f])?\Z"
"""A name for people: no control characters, no space at either end."""


def id_field(kind: str) -> models.CharField[str, str]:
    """The primary key of every table: a readable id that says what it names, such as `key_0mhx3k…`."""
    return models.CharField(primary_key=True, max_length=40, default=partial(new_id, kind), editable=False)


def label_field(help_text: str = "", *, unique: bool = False) -> models.CharField[str, str]:
    """A name for people, 1 to 100 characters."""
    wrong = "A name has 1 to 100 printable characters and no space at its ends."
    return models.CharField(
        max_length=100, unique=unique, help_text=help_text, validators=[RegexValidator(LABEL, wrong, code="name")]
    )


def allowlist_field(help_text: str) -> models.JSONField[Any, Any]:
    """Names of models and adapters that may be used; null: all. Checked by `services.allowlists`."""
    return models.JSONField(null=True, blank=True, default=None, help_text=help_text)


def class_field(help_text: str) -> models.CharField[str, str]:
    """One of CLASSES; empty: nothing is said. Its table has `class_known`."""
    return models.CharField("class", max_length=16, blank=True, choices=CLASSES, help_text=help_text)


def class_known(name: str) -> models.CheckConstraint:
    known = Q(priority_class="") | Q(priority_class__in=[value for value, _ in CLASSES])
    return models.CheckConstraint(condition=known, name=name)


SCOPES = ("organisation", "team", "project")
HOLDERS = (*SCOPES, "key")
"""Columns of a table whose rows are each of one of these."""


def of_one(columns: Sequence[str], *, or_none: bool = False) -> Q:
    """That exactly one of these columns is set; or, where none may be, at most one."""
    each = [Q(**{f"{name}__isnull": name != one for name in columns}) for one in columns]
    none = [Q(**{f"{name}__isnull": True for name in columns})] if or_none else []
    return reduce(or_, [*none, *each])


def held_by(row: models.Model, columns: Sequence[str]) -> Any:
    """What the one column that is set leads to; None where none is."""
    name = next((name for name in columns if getattr(row, f"{name}_id") is not None), None)
    return None if name is None else getattr(row, name)
