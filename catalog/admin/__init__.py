"""The catalogue's pages in the console. Every save is a call of a service; nothing here writes a row."""

from catalog.admin import aliases, events, providers, roles, scopes, secrets, served, versions

__all__ = ["aliases", "events", "providers", "roles", "scopes", "secrets", "served", "versions"]
