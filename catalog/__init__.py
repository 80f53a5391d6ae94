"""The ground: what we offer (models, profiles), to whom (organisations, teams, projects, keys), how much of it.

Everything is written through `services/`. Imports nobody but lib.
"""
