"""/roles: who is admin, operator or viewer of the cluster or of a scope."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import selectors
from catalog.api.rows import Rows
from catalog.api.serializers import Strict
from catalog.choices import ROLES
from catalog.models import RoleGrant
from catalog.services import access, holders, roles
from catalog.services.access import Scope


class RoleOut(serializers.ModelSerializer[RoleGrant]):
    user = serializers.CharField(source="user.username", read_only=True)
    kind = serializers.SerializerMethodField(help_text="organisation, team, project; cluster.")
    scope = serializers.SerializerMethodField(help_text="Id of the scope; null: the cluster.")
    scope_name = serializers.SerializerMethodField()

    class Meta:
        model = RoleGrant
        fields = ["id", "user", "role", "kind", "scope", "scope_name", "source", "created_by", "created_at"]
        read_only_fields = fields

    def get_kind(self, row: RoleGrant) -> str:
        return "cluster" if row.scope is None else str(row.scope._meta.model_name)

    def get_scope(self, row: RoleGrant) -> str | None:
        return None if row.scope is None else row.scope.pk

    def get_scope_name(self, row: RoleGrant) -> str | None:
        return None if row.scope is None else row.scope.name


class RoleIn(Strict):
    user = serializers.CharField(max_length=150, help_text="Name of the user.")
    role = serializers.ChoiceField(ROLES)
    scope = serializers.CharField(
        max_length=120,
        required=False,
        allow_null=True,
        help_text="Name or id of an organisation, team or project; `team:NAME` where names repeat; null: the cluster.",
    )
    why = serializers.CharField(max_length=1000, required=False, allow_blank=True, help_text="For the event.")


class Roles(Rows):
    """Roles as they were given. A POST takes the place of the role that the user has of the same scope."""

    queryset = selectors.role_grants()
    serializer_class = RoleOut
    noun = "role"
    in_scopes = frozenset({"list", "retrieve", "create", "destroy"})
    paths = access.IN_SCOPE

    @extend_schema(request=RoleIn, responses={201: RoleOut})
    def create(self, request: Request) -> Response:
        data = self.checked(RoleIn)
        scope = self._scope(data.pop("scope", None))
        access.require(request.user, "catalog.add_rolegrant", scope)
        data["user"] = selectors.find_user(data["user"])
        return self.show(roles.give(actor=self.actor, scope=scope, **data), status=201)

    def destroy(self, request: Request, ref: str) -> Response:
        roles.take(actor=self.actor, grant=self.get_object())
        return Response(status=204)

    def get_object(self) -> Any:
        return self.allowed(selectors.find(self.get_queryset(), self.kwargs["ref"], noun=self.noun, by="pk"))

    def _scope(self, ref: str | None) -> Scope | None:
        if not ref:
            return None
        held = access.reach(self.request.user, "catalog.view_project") | access.reach(
            self.request.user, "catalog.add_rolegrant"
        )
        return holders.scope(ref, held)
