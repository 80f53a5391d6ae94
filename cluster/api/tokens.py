"""/join-tokens: what lets machines into the cluster. The token's text is in the answer that makes it, and never again."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from cluster.api.serializers import Strict
from cluster.api.views import Rows
from cluster.models import JoinToken
from cluster.services import joining


class JoinTokenOut(serializers.ModelSerializer[JoinToken]):
    class Meta:
        model = JoinToken
        fields = ["id", "uses_allowed", "uses", "created_at", "created_by", "expires_at", "revoked_at"]
        read_only_fields = fields


class NewJoinTokenOut(JoinTokenOut):
    token = serializers.CharField(read_only=True, help_text="The token itself, shown this once.")
    command = serializers.CharField(read_only=True, help_text="Run it on the new machine: it joins and starts llmgw.")

    class Meta(JoinTokenOut.Meta):
        fields = [*JoinTokenOut.Meta.fields, "token", "command"]
        read_only_fields = fields


class JoinTokenIn(Strict):
    uses = serializers.IntegerField(
        min_value=1, max_value=joining.MAX_USES, default=1, help_text="Machines that it lets in."
    )
    hours = serializers.FloatField(
        min_value=0.01, max_value=joining.MAX_HOURS, default=24.0, help_text="How long it is worth something."
    )


class JoinTokens(Rows):
    """Tokens that let machines into the cluster. DELETE revokes: the row stays, the token is refused from then on."""

    queryset = joining.tokens()
    serializer_class = JoinTokenOut
    noun = "join token"

    @extend_schema(request=JoinTokenIn, responses={201: NewJoinTokenOut})
    def create(self, request: Request) -> Response:
        """Make a token."""
        shape = JoinTokenIn(data=request.data)
        shape.is_valid(raise_exception=True)
        issued = joining.issue(actor=self.actor, **shape.validated_data)
        shown: dict[str, Any] = {**JoinTokenOut(issued.token).data, "token": issued.text, "command": issued.command}
        return Response(shown, status=201, headers={"Cache-Control": "no-store"})

    def destroy(self, request: Request, ref: str) -> Response:
        joining.revoke(actor=self.actor, token_id=self.get_object().pk)
        return Response(status=204)
