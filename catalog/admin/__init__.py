"""The catalogue's pages in the console. Every save is a call of a service; nothing here writes a row."""

from catalog.admin import events, providers, roles, scopes, secrets, served, versions

__all__ = ["events", "providers", "roles", "scopes", "secrets", "served", "versions"]
