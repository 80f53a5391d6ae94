"""The smoke test: one real request through the client listener, as any client makes it, with a key that lives minutes.

On a machine without an edge the request goes to a node that serves the model, signed as a router's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx
import orjson
from django.conf import settings
from django.utils import timezone

from catalog import selectors as catalog
from catalog.services import keys, scopes
from llmgw_site.lib.errors import Kind, Refused
from workers import node_calls

ACTOR = "smoke test"
KEY_LIFE = timedelta(minutes=10)
QUESTION = "What is 2+3?"
MAX_TOKENS = 64
ONE_PIECE = 0.05
"""Seconds within which tokens came as one piece, so that the time between them tells nothing of the engine."""
PATIENCE = 40.0
"""Seconds that one try may take."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back. `tokens_per_second`: generated tokens over the time from the first to the last of them; where they came
    in one piece, over the whole answer's."""

    text: str
    tokens: int | None
    first_token_s: float | None
    total_s: float
    tokens_per_second: float | None


class NotYet(Exception):
    """The gateway does not know the key, or the model is not ready there: normal for a moment."""


class NoEdge(NotYet):
    """No edge runs on this machine: ask a node that serves the model."""


_held: dict[str, tuple[Any, str, float]] = {}
"""Keys issued ahead by this process: row, text, and when. A text is kept nowhere else, so a successor issues its own."""


def prepare(*, name: str, model: str) -> None:
    """Issue the key ahead, while the engine loads: it then has reached the gateway when it is needed."""
    if name in _held and time.monotonic() - _held[name][2] < KEY_LIFE.total_seconds() / 2:
        return
    revoke(name=name)
    key, secret = keys.issue(
        actor=ACTOR, project=_project(), name=name, models=[model], expires_at=timezone.now() + KEY_LIFE
    )
    _held[name] = (key, secret.text, time.monotonic())


@contextmanager
def short_key(*, name: str, model: str) -> Iterator[str]:
    """The text of a key for this model only; worth nothing afterwards, whatever happens."""
    prepare(name=name, model=model)
    key, text, _ = _held[name]
    try:
        yield text
    finally:
        _held.pop(name, None)
        keys.revoke(actor=ACTOR, key=key, why="the smoke test is over")


def revoke(*, name: str) -> None:
    """Revoke what an interrupted or abandoned test left behind."""
    _held.pop(name, None)
    for key in catalog.keys().filter(name=name, revoked_at__isnull=True):
        keys.revoke(actor=ACTOR, key=key, why="left behind by a smoke test that was not finished")


def _project() -> Any:
    """Where the requests of smoke tests are counted."""
    organisation = catalog.organisations().filter(name="llmgw").first()
    organisation = organisation or scopes.create_organisation(actor=ACTOR, name="llmgw")
    team = catalog.teams().filter(organisation=organisation, name="system").first()
    team = team or scopes.create_team(actor=ACTOR, organisation=organisation, name="system")
    project = catalog.projects().filter(team=team, name="smoke tests").first()
    return project or scopes.create_project(actor=ACTOR, team=team, name="smoke tests")


def ask(*, model: str, key: str, embeddings: bool, node: Any = None, replica: str = "") -> Answer:
    """One request. Raises NotYet where it may work in a moment, Refused where it will not.

    `node`: the row of the node to ask directly; None: through this machine's client listener, with `key`. `replica`: only what this
    one says counts, of those that the node has.
    """
    path = "/v1/embeddings" if embeddings else "/v1/chat/completions"
    body: dict[str, Any] = {"model": model}
    if embeddings:
        body["input"] = QUESTION
    else:
        body |= {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": MAX_TOKENS, "temperature": 0}
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    raw = orjson.dumps(body)
    began = time.monotonic()
    try:
        own = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        way = (
            node_calls.Way(settings.CONFIG.client_listener, own, True, {})
            if node is None
            else node_calls.forwarded(node, path=path, body=raw)
        )
        with (
            httpx.Client(base_url=way.base_url, timeout=PATIENCE, trust_env=False, verify=way.verify) as client,
            client.stream("POST", path, content=raw, headers=way.headers, extensions=way.extensions) as response,
        ):
            if replica and response.headers.get("x-llmgw-replica") != replica:
                response.read()
                raise NotYet("another replica answered" if response.status_code == 200 else _message(response))
            if response.status_code in (401, 404, 503, 508):
                response.read()
                raise NoEdge(_message(response)) if _code(response) == "module_stopped" else NotYet(_message(response))
            if response.status_code != 200:
                response.read()
                raise Refused(Kind.UPSTREAM, "smoke_test_failed", f"the model refused to answer: {_message(response)}")
            return _vector(response, began) if embeddings else _words(response, began)
    except (httpx.HTTPError, OSError) as error:
        who = "the client listener" if node is None else f"node {node.name}"
        raise NotYet(f"{who} does not answer ({type(error).__name__})") from None


def _code(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return ""


def _message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"HTTP {response.status_code}"


def _vector(response: httpx.Response, began: float) -> Answer:
    data = orjson.loads(response.read())
    size = len(data["data"][0]["embedding"])
    total = time.monotonic() - began
    return Answer(
        text=f"a vector of {size} numbers", tokens=None, first_token_s=None, total_s=total, tokens_per_second=None
    )


def _words(response: httpx.Response, began: float) -> Answer:
    text, tokens, first, last = "", None, None, began
    for line in response.iter_lines():
        if not line.startswith("data: ") or line == "data: [DONE]":
            continue
        chunk = orjson.loads(line.removeprefix("data: "))
        if "error" in chunk:
            raise Refused(Kind.UPSTREAM, "smoke_test_failed", f"the answer broke off: {chunk['error'].get('message')}")
        if usage := chunk.get("usage"):
            tokens = usage.get("completion_tokens")
        for choice in chunk.get("choices", ()):
            delta = choice.get("delta", {})
            piece = delta.get("content") or delta.get("reasoning_content") or ""
            if piece:
                last = time.monotonic()
                first = last if first is None else first
                text += piece
    if first is None:
        raise Refused(Kind.UPSTREAM, "smoke_test_failed", "the model answered without a single token")
    return Answer(
        text=text,
        tokens=tokens,
        first_token_s=first - began,
        total_s=time.monotonic() - began,
        tokens_per_second=rate(tokens, first=first - began, last=last - began),
    )


def rate(tokens: int | None, *, first: float, last: float) -> float | None:
    """Tokens a second of an answer whose first token came after so many seconds, and its last; None: not to be told."""
    if not tokens or tokens < 2 or last <= 0:
        return None
    return (tokens - 1) / (last - first) if last - first >= ONE_PIECE else tokens / last
