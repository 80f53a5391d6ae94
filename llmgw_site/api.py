"""What every endpoint of the admin API shares: who is calling, what they may, bounds, pages, and the one error envelope.

    {"error": {"message": "...", "type": "invalid_request_error", "code": "name", "param": "name"}}

A view is open to nobody by default. It says what it needs by its queryset (Django's model permissions: view, add,
change, delete by method), or in `needs`, a dict of action or method to permissions.
"""

from __future__ import annotations

import logging
import re
import secrets
import sys
from typing import Any

import orjson
from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from django.db import IntegrityError, OperationalError
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views import defaults
from rest_framework import exceptions
from rest_framework.authentication import BaseAuthentication, get_authorization_header
from rest_framework.pagination import PageNumberPagination
from rest_framework.parsers import BaseParser
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from catalog.services import access, tokens
from llmgw_site.lib.errors import HTTP_STATUS, Kind, Refused, envelope

log = logging.getLogger("llmgw.web")

# --- who


class AdminTokenAuthentication(BaseAuthentication):
    """`Authorization: Bearer at-llmgw-…`: acts as the token's user. Anything else is left to the session."""

    def authenticate(self, request: Request) -> tuple[Any, Any] | None:
        kind, _, text = get_authorization_header(request).decode("latin-1").partition(" ")
        if kind.lower() != "bearer":
            return None
        now = timezone.now()
        token = tokens.authenticate(text.strip(), now=now)
        tokens.touch(token, now=now)
        return token.user, token

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="llmgw admin API"'


class ModelPermissions(BasePermission):
    """Django's permissions decide. Anonymous callers get 401, known ones without the permission 403.

    An action that a view names in `in_scopes` is open to who holds the permission of some scopes, too: the view itself shows
    and takes nothing that is outside of these (`catalog.api.rows`).
    """

    VERBS = {"GET": "view", "HEAD": "view", "POST": "add", "PUT": "change", "PATCH": "change", "DELETE": "delete"}

    def has_permission(self, request: Request, view: Any) -> bool:
        if not request.user or not request.user.is_authenticated:
            return False
        needed = self.needed(request.method or "", view)
        action = getattr(view, "action", None) or (request.method or "")
        held = _anywhere if action in getattr(view, "in_scopes", ()) else _everywhere
        missing = [name for name in needed if not held(request.user, name)]
        if missing:
            raise Refused(
                Kind.FORBIDDEN,
                "permission_denied",
                f"{request.user.get_username()} lacks the permission {missing[0]}: an administrator can give it.",
            )
        return True

    def needed(self, method: str, view: Any) -> tuple[str, ...]:
        """1. What the view names for its action. 2. For the method. 3. What its model asks for this method."""
        if method == "OPTIONS":
            return ()
        if method not in view.allowed_methods:
            raise exceptions.MethodNotAllowed(method)
        needs: dict[str, tuple[str, ...]] = getattr(view, "needs", {})
        for name in (getattr(view, "action", None), "GET" if method == "HEAD" else method):
            if name in needs:
                return needs[name]
        meta = view.queryset.model._meta  # a view that says neither is a defect: AttributeError, answered as 500
        return (f"{meta.app_label}.{self.VERBS[method]}_{meta.model_name}",)


def _everywhere(user: Any, permission: str) -> bool:
    return bool(user.has_perm(permission))


def _anywhere(user: Any, permission: str) -> bool:
    return access.reach(user, permission).anywhere


# --- what comes in, what goes out


class BoundedJSONParser(BaseParser):
    """JSON of at most LLMGW_MAX_BODY bytes and LLMGW_MAX_JSON_DEPTH levels; an object, as every endpoint wants one."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        limit = settings.CONFIG.max_body
        raw = stream.read(limit + 1)
        if len(raw) > limit:
            raise Refused(
                Kind.TOO_LARGE, "body_too_large", f"The body is larger than {limit} bytes: send less (LLMGW_MAX_BODY)."
            )
        if depth(raw) > settings.CONFIG.max_json_depth:
            raise Refused(
                Kind.INVALID,
                "json_too_deep",
                f"The body nests deeper than {settings.CONFIG.max_json_depth} levels (LLMGW_MAX_JSON_DEPTH).",
            )
        try:
            data = orjson.loads(raw)
        except orjson.JSONDecodeError as error:
            raise Refused(
                Kind.INVALID, "invalid_json", f"The body is not valid JSON ({str(error)[:200]}): send an object."
            ) from None
        if not isinstance(data, dict):
            raise Refused(Kind.INVALID, "not_an_object", "The body is valid JSON but no object: send {...}.")
        return data


_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def depth(raw: bytes) -> int:
    """Deepest nesting of a JSON text, from its brackets alone: nothing is built, nothing recurses."""
    level = deepest = 0
    for byte in _STRING.sub(b"", raw).translate(None, _NO_BRACKETS):
        if byte in b"[{":
            level += 1
            deepest = max(deepest, level)
        else:
            level -= 1
    return deepest


class Pages(PageNumberPagination):
    """`?page=2&page_size=50`; answers {"count", "next", "previous", "results"}."""

    page_size = 100
    page_size_query_param = "page_size"
    max_page_size = 1000


# --- errors

_FIELD_CODES = {"required": "missing_field"}
_OUR_CODES = ("unknown_field", "invalid_value")
"""DRF's many codes of a wrong value are one of ours: `param` and the message say the rest."""


def render_exception(error: Exception, context: dict[str, Any]) -> Response:
    """Every exception of a view as an answer; what was not foreseen is logged with a request id and shows nothing."""
    from rest_framework.views import set_rollback  # DRF's views import this module through its settings

    set_rollback()
    refused = as_refused(error, context.get("request"))
    response = Response(envelope(refused), status=_status(error, refused))
    if refused.retry_after is not None:
        response["Retry-After"] = str(max(1, round(refused.retry_after)))
    if response.status_code == 401:
        response["WWW-Authenticate"] = 'Bearer realm="llmgw admin API"'
    if isinstance(error, exceptions.MethodNotAllowed) and context.get("view") is not None:
        response["Allow"] = ", ".join(context["view"].allowed_methods)
    return response


def _status(error: Exception, refused: Refused) -> int:
    if isinstance(error, (exceptions.MethodNotAllowed, exceptions.UnsupportedMediaType, exceptions.NotAcceptable)):
        return error.status_code
    return HTTP_STATUS[refused.kind]


def as_refused(error: Exception, request: Any) -> Refused:
    """What DRF and Django raise, as one of our refusals."""
    match error:
        case Refused():
            return error
        case exceptions.ValidationError():
            param, code, message = first_problem(error.get_full_details())
            code = _FIELD_CODES.get(code, code if code in _OUR_CODES else "invalid_value")
            return Refused(Kind.INVALID, code, f"{param}: {message}" if param else message, param=param)
        case exceptions.NotAuthenticated() | exceptions.AuthenticationFailed():
            return Refused(
                Kind.UNAUTHORIZED,
                "authentication_needed",
                "The admin API needs `Authorization: Bearer at-llmgw-…`, or the console's session.",
            )
        case exceptions.PermissionDenied():
            return Refused(Kind.FORBIDDEN, "permission_denied", str(error.detail))
        case Http404() | exceptions.NotFound():
            return Refused(Kind.NOT_FOUND, "not_found", "There is no such thing here.")
        case exceptions.MethodNotAllowed():
            return Refused(Kind.INVALID, "method_not_allowed", str(error.detail))
        case exceptions.UnsupportedMediaType():
            return Refused(Kind.INVALID, "unsupported_media_type", "Send JSON, with Content-Type: application/json.")
        case RequestDataTooBig():
            return Refused(Kind.TOO_LARGE, "body_too_large", "The body is too large: send less (LLMGW_MAX_BODY).")
        case exceptions.APIException() if error.status_code < 500:
            return Refused(Kind.INVALID, str(error.default_code), str(error.detail))
        case IntegrityError():
            _log(error, request, "row_conflict", logging.WARNING)
            return Refused(
                Kind.CONFLICT,
                "changed_meanwhile",
                "Somebody else changed the same rows at the same time: look, then try again.",
            )
        case OperationalError():
            request_id = _log(error, request, "database_failed", logging.ERROR)
            return Refused(
                Kind.UNAVAILABLE,
                "database_unavailable",
                f"{_trouble(error)} (request {request_id}).",
                retry_after=2,
            )
        case _:
            return internal(error, request)


def _trouble(error: OperationalError) -> str:
    """A disk that is full is somebody's to mend; SQLite says so in words, PostgreSQL by its code."""
    full = "disk is full" in str(error) or getattr(error.__cause__, "sqlstate", "") == "53100"
    return (
        "The database cannot write, for its disk is full: make room there" if full else "The database does not answer"
    )


def internal(error: BaseException | None, request: Any) -> Refused:
    """A defect of ours: all of it into the log, none of it into the answer."""
    request_id = _log(error, request, "request_failed", logging.ERROR)
    return Refused(
        Kind.INTERNAL, "internal_error", f"A defect of llmgw; the log of `web` says more about request {request_id}."
    )


def _log(error: BaseException | None, request: Any, name: str, level: int) -> str:
    request_id = (request.headers.get("x-request-id", "") if request is not None else "") or secrets.token_hex(8)
    request_id = "".join(c for c in request_id if c.isalnum() or c in "-_.")[:64]
    if log.isEnabledFor(level):
        fields = {
            "request_id": request_id,
            "path": getattr(request, "path", None),
            "method": getattr(request, "method", None),
        }
        log.log(level, name, extra={"f": fields}, exc_info=error)
    return request_id


def first_problem(details: Any, param: str | None = None) -> tuple[str | None, str, str]:
    """The first leaf of DRF's tree of problems: where, its code, its text."""
    while True:
        if isinstance(details, dict) and set(details) == {"message", "code"}:
            return param, str(details["code"]), str(details["message"])
        if isinstance(details, dict) and details:
            key, details = next(iter(details.items()))
            if key != "non_field_errors":
                param = f"{param}.{key}" if param else str(key)
        elif isinstance(details, list) and details:
            details = next((item for item in details if item), None)
        else:
            return param, "invalid", "The value is not valid."


def _is_api(request: HttpRequest) -> bool:
    return request.path.startswith("/api/")


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """404 of the whole site: the envelope below /api, Django's page elsewhere."""
    if not _is_api(request):
        return defaults.page_not_found(request, exception)
    refused = Refused(Kind.NOT_FOUND, "not_found", "There is no such path; /api/v1/docs lists them.")
    return JsonResponse(envelope(refused), status=404)


def server_error(request: HttpRequest) -> HttpResponse:
    """500 outside of API views, where no exception handler of DRF's stands."""
    if not _is_api(request):
        return defaults.server_error(request)
    return JsonResponse(envelope(internal(sys.exc_info()[1], request)), status=500)
