"""Shapes of organisations, teams and projects in the admin API."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from catalog.api.serializers import Strict
from catalog.choices import CLASSES
from catalog.models import Organisation, Project, Team


class _ScopeOut(serializers.Serializer[Any]):
    allowed_models = serializers.ListField(
        child=serializers.CharField(),
        allow_null=True,
        read_only=True,
        help_text="Models and adapters that keys below it may use, as far as the scopes above allow it; null: all.",
    )
    priority_class = serializers.CharField(read_only=True, help_text="What it says itself; empty: nothing.")
    effective_class = serializers.CharField(
        read_only=True,
        help_text="Of requests below it of which nothing else is said: where they wait for room, those of a higher class go first.",
    )


class OrganisationOut(_ScopeOut, serializers.ModelSerializer[Organisation]):
    class Meta:
        model = Organisation
        fields = ["id", "name", "allowed_models", "priority_class", "effective_class", "created_at"]
        read_only_fields = fields


class TeamOut(_ScopeOut, serializers.ModelSerializer[Team]):
    organisation_name = serializers.CharField(source="organisation.name", read_only=True)

    class Meta:
        model = Team
        fields = [
            "id", "name", "organisation", "organisation_name", "allowed_models", "priority_class", "effective_class", "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class ProjectOut(_ScopeOut, serializers.ModelSerializer[Project]):
    team_name = serializers.CharField(source="team.name", read_only=True)

    class Meta:
        model = Project
        fields = [
            "id", "name", "team", "team_name", "allowed_models", "priority_class", "effective_class", "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class ScopeIn(Strict):
    name = serializers.CharField(max_length=100)
    allowed_models = serializers.ListField(
        child=serializers.CharField(max_length=128),
        allow_null=True,
        required=False,
        max_length=1000,
        help_text="Models and adapters that keys below it may use; null: all.",
    )
    priority_class = serializers.ChoiceField(
        CLASSES,
        required=False,
        allow_blank=True,
        help_text="Where requests wait for room, those of a higher class go first. Empty: as the scope above it; at the top standard.",
    )


class OrganisationIn(ScopeIn):
    pass


class TeamIn(ScopeIn):
    organisation = serializers.CharField(max_length=100, help_text="Id or name.")


class ProjectIn(ScopeIn):
    team = serializers.CharField(max_length=100, help_text="Id or name.")
