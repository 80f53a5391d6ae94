"""/quotas: what parts of the tenancy tree are guaranteed of the fleet, may have at most, and hold."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.models import Quota
from catalog.services import access, actors, holders
from cluster import selectors
from cluster.api.serializers import Strict
from cluster.domain.accounts import Account, Books, books
from cluster.domain.amounts import as_amount
from cluster.services import quotas
from llmgw_site.lib.errors import Kind, Refused

MOST = (1 << 53) - 1


class AmountIn(Strict):
    """What is left out is neither guaranteed nor limited."""

    cards = serializers.DictField(
        child=serializers.IntegerField(min_value=0, max_value=MOST), required=False, help_text="Number by class."
    )
    cores = serializers.IntegerField(min_value=0, max_value=MOST, required=False, allow_null=True)
    memory = serializers.IntegerField(
        min_value=0, max_value=MOST, required=False, allow_null=True, help_text="Bytes of the nodes' own memory."
    )


class QuotaIn(Strict):
    """All of a quota: what is left out is cleared."""

    guarantee = AmountIn(required=False, help_text="What the scope's models get in any case.")
    limit = AmountIn(required=False, help_text="What they may have at most.")
    why = serializers.CharField(max_length=1000, required=False, allow_blank=True, help_text="For the event.")


class AmountOut(serializers.Serializer[Any]):
    cards = serializers.DictField(
        child=serializers.FloatField(),
        required=False,
        help_text="Number by class. A replica counts as one part of as many as fit on its card beside each other.",
    )
    cores = serializers.IntegerField(required=False)
    memory = serializers.IntegerField(required=False, help_text="Bytes.")


class QuotaOut(serializers.Serializer[Any]):
    scope = serializers.CharField(help_text="Id of the organisation, team or project.")
    kind = serializers.ChoiceField(["organisation", "team", "project"])
    name = serializers.CharField()
    path = serializers.ListField(child=serializers.CharField(), help_text="Names from the organisation down.")
    guarantee = AmountOut()
    limit = AmountOut()
    held = AmountOut(help_text="By its models and those of the scopes beneath.")
    borrowed = AmountOut(help_text="Held beyond the guarantee.")
    models = serializers.ListField(child=serializers.CharField(), help_text="Names of the models it owns itself.")
    problems = serializers.ListField(
        child=serializers.CharField(), help_text="Why its guarantees, or all together, cannot be given."
    )


SEE = "catalog.view_quota"
_REF = OpenApiParameter("ref", location="path", description="Id or name of the scope; `team:NAME` where names repeat.")


class Quotas(viewsets.GenericViewSet[Any]):
    """Quotas of scopes: capacity that is guaranteed, and bounds of it. What is held beyond a guarantee is borrowed."""

    queryset = Quota.objects.order_by("id")
    serializer_class = QuotaOut
    lookup_url_kwarg = "ref"
    needs: ClassVar[dict[str, tuple[str, ...]]] = {"update": ("catalog.add_quota", "catalog.change_quota")}

    in_scopes = frozenset({"list", "retrieve", "update", "destroy"})

    def list(self, request: Request) -> Response:
        """Scopes that have a quota, in the order of the tree."""
        found = self._books()
        rows = self.paginate_queryset([item for item in found.accounts if item.set])  # type: ignore[arg-type]
        return self.get_paginated_response([_shown(item, found) for item in rows or ()])

    @extend_schema(parameters=[_REF])
    def retrieve(self, request: Request, ref: str) -> Response:
        return self._show(self._scope(ref), self._books())

    @extend_schema(parameters=[_REF], request=QuotaIn)
    def update(self, request: Request, ref: str) -> Response:
        """Set a scope's quota in place of the one it may have. Guarantees that cannot be given are refused with the sums."""
        shape = QuotaIn(data=request.data)
        shape.is_valid(raise_exception=True)
        data = shape.validated_data
        amounts = {"guarantee": data.get("guarantee", {}), "limit": data.get("limit", {})}
        scope, held = self._scope(ref, *self.needs["update"]), access.reach(request.user, "catalog.change_quota")
        why = data.get("why", "")
        quotas.put(actor=actors.of_request(request), scope=scope, **amounts, why=why, held=held)
        return self._show(scope, books(selectors.world()))

    @extend_schema(parameters=[_REF])
    def destroy(self, request: Request, ref: str) -> Response:
        quotas.remove(actor=actors.of_request(request), scope=self._scope(ref, "catalog.delete_quota"))
        return Response(status=204)

    def _scope(self, ref: str, *needs: str) -> Any:
        return holders.reached(self.request.user, ref, see=SEE, needs=needs, keys=False)

    def _books(self) -> Books:
        """What the caller may see."""
        held, found = access.reach(self.request.user, SEE), books(selectors.world())
        return found if held.everywhere else found.within(held.ids)

    def _show(self, scope: Any, found: Books) -> Response:
        for item in found.accounts:
            if item.scope.id == scope.pk and item.set:
                return Response(_shown(item, found))
        raise Refused(Kind.NOT_FOUND, "not_found", f"The {scope._meta.model_name} {scope.name} has no quota.")


def _shown(account: Account, found: Books) -> dict[str, Any]:
    scope = account.scope
    return {
        "scope": scope.id,
        "kind": scope.kind,
        "name": scope.name,
        "path": list(account.path),
        "guarantee": as_amount(account.guarantee),
        "limit": as_amount(account.limit),
        "held": as_amount({key: value for key, value in account.held.items() if value}),
        "borrowed": as_amount(account.borrowed),
        "models": list(account.models),
        "problems": [item.message for item in found.problems_of(scope)],
    }
