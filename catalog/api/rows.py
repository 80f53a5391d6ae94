"""What the catalogue's viewsets share: one row by id or name, checked input, the actor."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from rest_framework import mixins, serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import selectors
from catalog.services import actors


class Rows(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Any]):
    """Lists and shows rows. `ref` in a path is an id or a name; an id wins."""

    lookup_url_kwarg = "ref"
    noun: ClassVar[str]

    def get_object(self) -> Any:
        rows: QuerySet[Any] = self.filter_queryset(self.get_queryset())
        return selectors.find(rows, self.kwargs["ref"], noun=self.noun)

    def checked(self, shape: type[serializers.Serializer[Any]], *, partial: bool = False) -> dict[str, Any]:
        """The body in this shape. Raises what the exception handler answers with 400."""
        serializer = shape(data=self.request.data, partial=partial)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)

    @property
    def actor(self) -> str:
        return actors.of_request(self.request)

    def show(self, row: Any, *, status: int = 200) -> Response:
        """The row as it is read, with what its lists show."""
        fresh = self.get_queryset().get(pk=row.pk)
        return Response(self.get_serializer(fresh).data, status=status)


def text_filter(request: Request, name: str) -> str | None:
    """A query parameter; None where it is absent or could match nothing."""
    value = request.query_params.get(name)
    return value.replace("\x00", "\ufffd") if value else None


def flag_filter(request: Request, name: str) -> bool | None:
    """A yes-or-no query parameter."""
    value = request.query_params.get(name, "").lower()
    if value in ("", "1", "true", "yes", "0", "false", "no"):
        return None if not value else value in ("1", "true", "yes")
    raise serializers.ValidationError({name: [serializers.ErrorDetail("Write true or false.", code="invalid_value")]})
