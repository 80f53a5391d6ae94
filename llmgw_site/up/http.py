"""The supervisor's HTTP: a handful of small JSON calls to its own services, by the standard library, to stay small.

Over TCP (the client listener) or a unix socket (`web` directly). Always a new connection; nothing here is hot.
"""

from __future__ import annotations

import http.client
import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class NoAnswer(Exception):
    """Nobody answered, or what came was no HTTP."""


@dataclass(frozen=True)
class Answer:
    status: int
    body: Any  # decoded JSON, or the text where it is none

    @property
    def message(self) -> str:
        """What a refusal says, for people."""
        try:
            return str(self.body["error"]["message"])
        except (TypeError, KeyError):
            return f"HTTP {self.status}"

    @property
    def code(self) -> str:
        """The stable code of a refusal; empty where there is none."""
        try:
            return str(self.body["error"]["code"])
        except (TypeError, KeyError):
            return ""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def call(
    where: Path | tuple[str, int],
    method: str,
    path: str,
    *,
    body: Any = None,
    bearer: str = "",
    timeout: float = 5.0,
) -> Answer:
    """One request to a unix socket or (host, port). Raises NoAnswer."""
    link = (
        _UnixConnection(where, timeout)
        if isinstance(where, Path)
        else http.client.HTTPConnection(*where, timeout=timeout)
    )
    headers = {"content-type": "application/json"} if body is not None else {}
    if bearer:
        headers["authorization"] = f"Bearer {bearer}"
    try:
        link.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
        response = link.getresponse()
        text = response.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(str(error) or type(error).__name__) from None
    finally:
        link.close()
    try:
        return Answer(response.status, json.loads(text))
    except ValueError:
        return Answer(response.status, text)
