"""/providers, and /providers/{ref}/key: a key goes in, none ever comes out."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import selectors
from catalog.api.rows import Rows
from catalog.api.serializers import NewProviderIn, ProviderIn, ProviderKeyIn, ProviderOut
from catalog.services import providers


class Providers(Rows):
    """External providers of the OpenAI API, by id or name."""

    queryset = selectors.providers()
    serializer_class = ProviderOut
    noun = "provider"

    @extend_schema(request=NewProviderIn, responses={201: ProviderOut})
    def create(self, request: Request) -> Response:
        return self.show(providers.create(actor=self.actor, **self.checked(NewProviderIn)), status=201)

    @extend_schema(request=ProviderIn)
    def partial_update(self, request: Request, ref: str) -> Response:
        changes = self.checked(ProviderIn, partial=True)
        return self.show(providers.change(actor=self.actor, provider=self.get_object(), **changes))

    def destroy(self, request: Request, ref: str) -> Response:
        providers.remove(actor=self.actor, provider=self.get_object())
        return Response(status=204)


class ProviderKey(Rows):
    """The key of a provider: PUT keeps one in place of any other, DELETE forgets it."""

    queryset = selectors.providers()
    serializer_class = ProviderOut
    noun = "provider"
    needs: Any = {"update": ("catalog.change_provider",), "destroy": ("catalog.change_provider",)}

    @extend_schema(request=ProviderKeyIn)
    def update(self, request: Request, ref: str) -> Response:
        given = self.checked(ProviderKeyIn)
        return self.show(providers.set_key(actor=self.actor, provider=self.get_object(), key=given["key"]))

    def destroy(self, request: Request, ref: str) -> Response:
        providers.clear_key(actor=self.actor, provider=self.get_object())
        return Response(status=204)
