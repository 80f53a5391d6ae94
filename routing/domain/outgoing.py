"""A request as an engine or a provider is sent it: the last step before it leaves llmgw, never taken between nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from llmgw_site.lib.errors import Refused
from routing.domain import jsonbytes
from routing.domain.bodies import refused
from routing.domain.endpoints import COUNT_TOKENS, ENDPOINTS, MESSAGES, RESPONSES
from routing.domain.openai import Ask, upstream_body
from routing.domain.translate.back import Back, translated

LLAMA_CPP = "llama.cpp"
AS_CHAT = frozenset({MESSAGES, COUNT_TOKENS, RESPONSES})
"""Endpoints that a chat can stand for, where whoever answers has never heard of them."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """`path` begins with a slash; `body` is the client's unless something must change. `back`: brings the answer to the words
    of the API that was asked; None: it is in them. `as_chat`: the same as a chat, or why it cannot be one; None: it is one, or none
    can stand for it."""

    path: str
    body: bytes
    back: Back | None = None
    as_chat: Callable[[], Outgoing | Refused] | None = None


def outgoing(
    endpoint: str, ask: Ask, body: bytes, *, served_name: str, lora: bytes = b"", engine: str = ""
) -> Outgoing:
    """`engine`: the kind of engine it goes to; empty: a provider. Raises Refused(INVALID):

    1. `not_supported`   messages to be cut into tokens, of llama.cpp: it would answer that there are none
    """
    if ask.templated and engine == LLAMA_CPP:  # 1
        text = "The engine of this model cuts no messages into tokens: send the text itself as 'prompt'."
        raise refused("not_supported", text, "messages")
    if ask.twin:
        body = _twinned(body, ask.twin)
    as_chat = partial(_as_chat, endpoint, ask, body, served_name, lora) if endpoint in AS_CHAT else None
    changed = upstream_body(body, ask, served_name=served_name, lora=lora)
    return Outgoing(ENDPOINTS[endpoint].path, changed, as_chat=as_chat)


def _as_chat(endpoint: str, ask: Ask, body: bytes, served_name: str, lora: bytes) -> Outgoing | Refused:
    found = translated(endpoint, body)
    if isinstance(found, Refused):
        return found
    path, chat, back = found
    return Outgoing(path, upstream_body(chat, ask, served_name=served_name, lora=lora), back)


def _twinned(body: bytes, name: str) -> bytes:
    """The text under both of its names: llama.cpp reads `content`, vLLM `prompt`, and each takes the other for nothing."""
    place = jsonbytes.find(body, "prompt" if name == "content" else "content")
    assert place is not None
    return jsonbytes.insert(body, name, body[place[0] : place[1]])
