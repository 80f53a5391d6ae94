"""Paths of the catalogue below /api/v1/.

Names of models contain slashes, so `ref` takes them; paths that end in an action come first. A model whose own name
ends in /enable, /disable, /profiles or /adapters is reached by its id, as is one that ends in an order of the cluster's API
(/restart, /retry, /scale, /target, /why, /headroom, /update, /rollback, /origin, /check-origin, /bench). So is an adapter.
"""

from __future__ import annotations

from typing import Any

from django.urls import path, register_converter

from catalog.api.adapters import ModelAdapters
from catalog.api.aliases import Aliases
from catalog.api.limits import Limits
from catalog.api.providers import ProviderKey, Providers
from catalog.api.registry import Registry
from catalog.api.roles import Roles
from catalog.api.scopes import Organisations, Projects, Teams
from catalog.api.secrets import Keys, Tokens
from catalog.api.served import Events, ModelProfiles, Models, Profiles

LIST: dict[str, Any] = {"get": "list", "post": "create"}
READ: dict[str, Any] = {"get": "list"}
ITEM: dict[str, Any] = {"get": "retrieve", "patch": "partial_update", "delete": "destroy"}
SECRET: dict[str, Any] = {"get": "retrieve", "delete": "destroy"}
KEY: dict[str, Any] = {"put": "update", "delete": "destroy"}


class Ref:
    """An id or a name, slashes and spaces included."""

    regex = "[^/].*"

    def to_python(self, value: str) -> str:
        return value

    def to_url(self, value: str) -> str:
        return value


register_converter(Ref, "ref")

urlpatterns = [
    path("organisations", Organisations.as_view(LIST), name="organisations"),
    path("organisations/<ref:ref>", Organisations.as_view(ITEM), name="organisation"),
    path("teams", Teams.as_view(LIST), name="teams"),
    path("teams/<ref:ref>", Teams.as_view(ITEM), name="team"),
    path("projects", Projects.as_view(LIST), name="projects"),
    path("projects/<ref:ref>", Projects.as_view(ITEM), name="project"),
    path("roles", Roles.as_view(LIST), name="roles"),
    path("roles/<ref:ref>", Roles.as_view(SECRET), name="role"),
    path("keys", Keys.as_view(LIST), name="keys"),
    path("keys/<ref:ref>/rotate", Keys.as_view({"post": "rotate"}), name="key-rotate"),
    path("keys/<ref:ref>", Keys.as_view(SECRET), name="key"),
    path("limits", Limits.as_view(READ), name="limits"),
    path("limits/<ref:ref>", Limits.as_view({"get": "retrieve", **KEY}), name="limit"),
    path("tokens", Tokens.as_view(LIST), name="tokens"),
    path("tokens/<ref:ref>", Tokens.as_view(SECRET), name="token"),
    path("models", Models.as_view(LIST), name="models"),
    path("models/<ref:ref>/enable", Models.as_view({"post": "enable"}), name="model-enable"),
    path("models/<ref:ref>/disable", Models.as_view({"post": "disable"}), name="model-disable"),
    path("models/<ref:ref>/adapters", ModelAdapters.as_view(LIST), name="model-adapters"),
    path("models/<ref:ref>/adapters/<ref:adapter>", ModelAdapters.as_view(SECRET), name="model-adapter"),
    path("models/<ref:ref>/profiles", ModelProfiles.as_view(LIST), name="model-profiles"),
    path("models/<ref:ref>/profiles/<str:profile>", ModelProfiles.as_view(ITEM), name="model-profile"),
    path("models/<ref:ref>", Models.as_view(ITEM), name="model"),
    path("aliases", Aliases.as_view(LIST), name="aliases"),
    path("aliases/<ref:ref>", Aliases.as_view(ITEM), name="alias"),
    path("providers", Providers.as_view(LIST), name="providers"),
    path("providers/<ref:ref>/key", ProviderKey.as_view(KEY), name="provider-key"),
    path("providers/<ref:ref>", Providers.as_view(ITEM), name="provider"),
    path("profiles", Profiles.as_view(READ), name="profiles"),
    path("profiles/<ref:ref>", Profiles.as_view(ITEM), name="profile"),
    path("events", Events.as_view(READ), name="events"),
    path("registry/models", Registry.as_view(READ), name="registry"),
    path("registry/models/<path:ref>", Registry.as_view({"get": "retrieve"}), name="registry-model"),
]
