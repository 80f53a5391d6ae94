"""Catalogue rows for tests, made by the services: every field has a sane default, a test names what it is about."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission, User

from catalog.domain.facts import ModelFacts
from catalog.domain.manifests import ManifestFile
from catalog.domain.repository import Format
from catalog.models import ApiKey, Model, Project, Provider, Version
from catalog.services import keys, providers, roles, scopes, served, tokens, versions
from llmgw_site.lib.units import MIB

ACTOR = "user:tester"


def a_project(name: str = "main") -> Project:
    organisation = scopes.create_organisation(actor=ACTOR, name=f"org of {name}")
    team = scopes.create_team(actor=ACTOR, organisation=organisation, name=f"team of {name}")
    return scopes.create_project(actor=ACTOR, team=team, name=name)


def a_key(
    name: str = "a key", *, project: Project | None = None, user: User | None = None, **fields: Any
) -> tuple[ApiKey, str]:
    """A key and its text. One of a user is of somebody in the project."""
    project = project or a_project(f"project of {name}")
    if user is not None:
        roles.give(actor=ACTOR, user=user, role="viewer", scope=project)
        fields["user"] = user
    key, secret = keys.issue(actor=ACTOR, project=project, name=name, **fields)
    return key, secret.text


def a_model(name: str = "tiny", **fields: Any) -> Model:
    """Its weights are on other machines if nothing is said of them, so its memory is declared."""
    elsewhere = not {"weights_path", "weights_size", "version"} & fields.keys()
    profile = {
        **({"memory": 64 * MIB} if elsewhere and not fields.get("provider") else {}),
        **(fields.pop("profile", None) or {}),
    } or None
    lies = {} if "version" in fields else {"weights_path": "/not/here/tiny.gguf"}
    base = {"actor": ACTOR, "name": name, **lies, "profile": profile}
    return served.add_model(**{**base, **fields})


def a_version(repository: str = "acme/tiny-GGUF", **fields: Any) -> Version:
    """Weights that the cluster fetches: one GGUF file, unless something else is said."""
    first = fields.pop("first", "tiny-Q4_K_M.gguf")
    size = fields.pop("size", 64 * MIB)
    base = {
        "actor": ACTOR,
        "format": Format.GGUF,
        "files": [ManifestFile(path=first, size=size, sha256="1" * 64)],
        "first": first,
        "facts": ModelFacts(kind="model", architecture="llama"),
        "quantization": "Q4_K_M",
        "registry": "https://huggingface.co",
        "repository": repository,
        "commit": "c" * 40,
    }
    return versions.keep(**{**base, **fields})


def a_provider(name: str = "acme", **fields: Any) -> Provider:
    return providers.create(**{"actor": ACTOR, "name": name, "url": "https://api.example.com/v1", **fields})


def a_user(name: str = "ann", *permissions: str, superuser: bool = False, staff: bool = True) -> User:
    """A user with these permissions (`catalog.view_model`)."""
    user: User = get_user_model().objects.create_user(name, password="a long password", is_staff=staff)
    user.is_superuser = superuser
    user.save()
    for permission in permissions:
        app, codename = permission.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    return user


def a_token(user: User, name: str = "a token", **fields: Any) -> str:
    """The text of an admin token of `user`."""
    return tokens.issue(actor=ACTOR, user=user, name=name, **fields)[1].text
