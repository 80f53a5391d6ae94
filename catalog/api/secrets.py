"""/keys and /tokens: the text of each is in the answer that makes it, and nowhere else ever."""

from __future__ import annotations

from typing import Any, ClassVar

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from catalog import selectors
from catalog.api.rows import Rows, flag_filter, text_filter
from catalog.api.serializers import KeyIn, KeyOut, NewKeyOut, NewTokenOut, RotateIn, TokenIn, TokenOut
from catalog.models import Project
from catalog.services import access, keys, tokens
from llmgw_site.lib.errors import Kind, Refused

ACTIVE = OpenApiParameter(
    "active", OpenApiTypes.BOOL, description="Only those not revoked (true), or only those (false)."
)


def _active(request: Request, rows: Any) -> Any:
    active = flag_filter(request, "active")
    return rows if active is None else rows.filter(revoked_at__isnull=active)


class _Secrets(Rows):
    """Names are free again after revoking, so a name means the live row, and a revoked one only if there is none."""

    def get_object(self) -> Any:
        rows, ref = self.get_queryset(), self.kwargs["ref"]
        try:
            return self.allowed(selectors.find(rows.filter(revoked_at__isnull=True), ref, noun=self.noun))
        except Refused as refused:
            if refused.kind != Kind.NOT_FOUND:
                raise
            return self.allowed(selectors.find(rows, ref, noun=self.noun))


class Keys(_Secrets):
    """Keys of the OpenAI endpoint. DELETE revokes: the row stays, the key is refused from then on."""

    queryset = selectors.keys()
    serializer_class = KeyOut
    noun = "key"
    in_scopes = frozenset({"list", "retrieve", "create", "rotate", "destroy"})
    paths = access.IN_PROJECT
    needs: ClassVar[dict[str, tuple[str, ...]]] = {"rotate": ("catalog.change_apikey",)}

    def filter_queryset(self, queryset: Any) -> Any:
        if self.action != "list":
            return queryset
        project = text_filter(self.request, "project")
        if project:
            queryset = queryset.filter(project=self._project(project))
        return _active(self.request, queryset)

    @extend_schema(parameters=[ACTIVE, OpenApiParameter("project", description="Only its keys (id or name).")])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().list(request, *args, **kwargs)

    @extend_schema(request=KeyIn, responses={201: NewKeyOut})
    def create(self, request: Request) -> Response:
        data = self.checked(KeyIn)
        ref = data.pop("project", None)
        projects = self.in_reach(Project.objects.all(), access.PROJECTS)
        project = self._project(ref) if ref else selectors.only_project(projects)
        keys.may_issue(request.user, project=project, priority=data.get("priority", 0))
        name = data.pop("user", None)
        user = selectors.find_user(name) if name else None
        key, secret = keys.issue(actor=self.actor, project=project, user=user, **data)
        return Response({**KeyOut(key).data, "key": secret.text}, status=201)

    def _project(self, ref: str) -> Project:
        found: Project = self.visible(selectors.projects(), access.PROJECTS, ref, noun="project")
        return found

    @extend_schema(request=RotateIn, responses={200: NewKeyOut})
    def rotate(self, request: Request, ref: str) -> Response:
        """Another text for the key, shown this once. The present one stays valid for `grace` seconds: it is still one key."""
        key, secret = keys.rotate(actor=self.actor, key=self.get_object(), **self.checked(RotateIn))
        return Response({**KeyOut(key).data, "key": secret.text})

    def destroy(self, request: Request, ref: str) -> Response:
        keys.revoke(actor=self.actor, key=self.get_object())
        return Response(status=204)


class Tokens(_Secrets):
    """Admin tokens: one's own, or everybody's for those who may (`catalog.manage_all_tokens`). DELETE revokes."""

    queryset = selectors.admin_tokens()
    serializer_class = TokenOut
    noun = "token"

    def get_queryset(self) -> Any:
        rows = selectors.admin_tokens()
        return rows if self._manages_all() else rows.filter(user_id=self.request.user.pk)  # type: ignore[misc]

    def filter_queryset(self, queryset: Any) -> Any:
        return _active(self.request, queryset) if self.action == "list" else queryset

    @extend_schema(parameters=[ACTIVE])
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        return super().list(request, *args, **kwargs)

    @extend_schema(request=TokenIn, responses={201: NewTokenOut})
    def create(self, request: Request) -> Response:
        data = self.checked(TokenIn)
        user = self._user(data.pop("user", None))
        token, secret = tokens.issue(actor=self.actor, user=user, **data)
        return Response({**TokenOut(token).data, "token": secret.text}, status=201)

    def destroy(self, request: Request, ref: str) -> Response:
        tokens.revoke(actor=self.actor, token=self.get_object())
        return Response(status=204)

    def _manages_all(self) -> bool:
        return bool(self.request.user.has_perm("catalog.manage_all_tokens"))

    def _user(self, name: str | None) -> Any:
        """Whom the new token acts as: a token for somebody else is power over them, so it takes the permission."""
        if name is None or name == self.request.user.get_username():
            return self.request.user
        if not self._manages_all():
            raise Refused(
                Kind.FORBIDDEN,
                "permission_denied",
                "You may make admin tokens for yourself only: leave `user` out.",
                param="user",
            )
        user = selectors.find_user(name)
        if user.is_superuser and not self.request.user.is_superuser:
            raise Refused(
                Kind.FORBIDDEN, "permission_denied", "Only a superuser makes tokens for a superuser.", param="user"
            )
        return user
