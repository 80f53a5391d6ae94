"""Paths below api/v1/."""

from __future__ import annotations

from typing import Any

urlpatterns: list[Any] = []
