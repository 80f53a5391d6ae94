"""Frozen views of catalogue rows, as the floors above work with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class KeyView:
    """A key that is worth something now."""

    key_id: str
    sha256: str
    prefix: str
    project_id: str
    models: tuple[str, ...] | None  # names it may use; None: all
    expires_at: float | None


@dataclass(frozen=True, kw_only=True)
class ProfileView:
    """One way to run a model; 0 means the node's or the setting's value. `digest`-worthy: everything here."""

    profile_id: str
    name: str
    engine: str
    priority: int
    context: int
    slots: int
    threads: int
    memory: int
    args: tuple[str, ...]
    env: Mapping[str, str]
    start_timeout: float
    drain_timeout: float


@dataclass(frozen=True, kw_only=True)
class ModelView:
    """A model with its enabled profiles, first choice first."""

    model_id: str
    name: str
    enabled: bool
    replicas: int
    created_at: float
    weights_path: str
    weights_size: int | None
    weights_sha256: str
    embeddings: bool
    owner: str  # name of the owning project; empty: everybody's
    facts: Mapping[str, Any] = field(default_factory=dict)
    profiles: tuple[ProfileView, ...] = ()
