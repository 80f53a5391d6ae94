"""Calls of the admin API as a client makes them: bytes in, status and JSON out, or text where it is a table (CSV)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import orjson
from django.test import Client

from tests.rows import a_token, a_user

CLIENT = Client(raise_request_exception=False)
"""One for all: it loads the middleware once, and callers differ by their token, not by cookies."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any
    headers: dict[str, str]

    @property
    def code(self) -> str:
        """The error's code, after checking that the envelope is whole."""
        error = self.body["error"]
        assert set(error) - {"extra"} == {"message", "type", "code", "param"}
        assert error["message"]
        return str(error["code"])


class Caller:
    """Somebody with a token; `Caller("")` is nobody."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, method: str, path: str, body: Any = None, *, raw: bytes | None = None, **headers: str) -> Answer:
        sent = {"authorization": f"Bearer {self._token}"} if self._token else {}
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        response = CLIENT.generic(
            method,
            f"/api/v1/{path}",
            data,
            content_type=headers.pop("content_type", "application/json"),
            headers={**sent, **headers},
        )
        content, plain = response.content, response.get("content-type", "").startswith("text/csv")
        return Answer(
            response.status_code,
            content.decode() if plain else orjson.loads(content) if content else None,
            {name.lower(): value for name, value in response.items()},
        )


def a_caller(name: str = "root", *permissions: str, superuser: bool = False) -> Caller:
    """A caller with these permissions; without any given, an administrator who may do everything."""
    user = a_user(name, *permissions, superuser=superuser or not permissions)
    return Caller(a_token(user, f"token of {name}"))
