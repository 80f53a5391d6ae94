"""Celery without the folder that a process is started in: it looks there first, for whatever it imports, wherever Django is used.

A `click.py` in the folder where somebody calls `llmgw up` would be run by all our processes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import django.conf  # noqa: F401 - so that the fixup itself has nothing left to look for
from celery.fixups.django import DjangoFixup
from celery.loaders.app import AppLoader


class Loader(AppLoader):  # type: ignore[misc]
    """Imports as Python does."""

    def import_from_cwd(
        self, module: str, imp: Callable[..., ModuleType] | None = None, package: str | None = None
    ) -> ModuleType:
        return (imp or self.import_module)(module, package=package)

    def find_module(self, module: str) -> ModuleType:
        return self.import_module(module)  # type: ignore[no-any-return]


def fixup(app: Any) -> DjangoFixup:
    """Celery's own for Django, which puts the folder on the path for good; the path stays as it was."""
    before = list(sys.path)
    try:
        return DjangoFixup(app).install()
    finally:
        sys.path[:] = before
