"""What the catalogue's viewsets share: one row by id or name, only rows that the caller may see, checked input, the actor."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from rest_framework import mixins, serializers, viewsets
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import selectors
from catalog.services import access, actors


class Rows(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet[Any]):
    """Lists and shows rows. `ref` in a path is an id or a name; an id wins.

    `in_scopes`: actions that are open to whoever holds the permission of some scopes only; `paths`: how a row leads to its
    scopes. Rows out of reach are as if they were not there; one that may be seen and not changed is refused.
    """

    lookup_url_kwarg = "ref"
    noun: ClassVar[str]
    in_scopes: ClassVar[frozenset[str]] = frozenset()
    paths: ClassVar[access.Paths] = ()
    written_paths: ClassVar[access.Paths | None] = None
    """The same for changes, where it differs."""

    def get_queryset(self) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset()
        if not self.in_scopes or getattr(self, "swagger_fake_view", False):
            return rows
        return self.in_reach(rows, self.paths)

    def in_reach(self, rows: QuerySet[Any], paths: access.Paths) -> QuerySet[Any]:
        """Those that the caller may see, or may do to what this request is about."""
        meta = rows.model._meta
        held = access.reach(self.request.user, f"{meta.app_label}.view_{meta.model_name}")
        for permission in self._needed():
            held |= access.reach(self.request.user, permission)
        return held.of_rows(rows, paths)

    def _needed(self) -> tuple[str, ...]:
        return self.get_permissions()[0].needed(self.request.method or "", self)  # type: ignore[attr-defined, no-any-return]

    def get_object(self) -> Any:
        rows: QuerySet[Any] = self.filter_queryset(self.get_queryset())
        return self.allowed(selectors.find(rows, self.kwargs["ref"], noun=self.noun))

    def allowed(self, row: Any) -> Any:
        """The row, if this request may do to it what it wants to. Raises Refused."""
        if self.request.method in ("GET", "HEAD") or not self.in_scopes:
            return row
        paths = self.paths if self.written_paths is None else self.written_paths
        for permission in self._needed():
            rows = type(row)._default_manager.filter(pk=row.pk)
            if not access.reach(self.request.user, permission).of_rows(rows, paths).exists():
                raise access.lacks(self.request.user, permission, f"the {self.noun} {row}")
        return row

    def visible(self, rows: QuerySet[Any], paths: access.Paths, ref: str, *, noun: str) -> Any:
        """A row that a body or a query names, if the caller may see it; else it is as if it were not there."""
        return selectors.find(self.in_reach(rows, paths), ref, noun=noun)

    def checked(self, shape: type[serializers.Serializer[Any]], *, partial: bool = False) -> dict[str, Any]:
        """The body in this shape. Raises what the exception handler answers with 400."""
        serializer = shape(data=self.request.data, partial=partial)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)

    @property
    def actor(self) -> str:
        return actors.of_request(self.request)

    def show(self, row: Any, *, status: int = 200) -> Response:
        """The row as it is read, with what its lists show. Who may change and not see it is shown it all the same."""
        rows: QuerySet[Any] = super().get_queryset() if self.in_scopes else self.get_queryset()
        fresh = rows.get(pk=row.pk)
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
