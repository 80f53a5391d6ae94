"""A request as an engine or a provider is sent it: the last step before it leaves llmgw, never taken between nodes."""

from __future__ import annotations

from dataclasses import dataclass

from routing.domain import jsonbytes
from routing.domain.bodies import refused
from routing.domain.endpoints import ENDPOINTS
from routing.domain.openai import Ask, upstream_body

LLAMA_CPP = "llama.cpp"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """`path` begins with a slash; `body` is the client's unless something must change."""

    path: str
    body: bytes


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
    return Outgoing(ENDPOINTS[endpoint].path, upstream_body(body, ask, served_name=served_name, lora=lora))


def _twinned(body: bytes, name: str) -> bytes:
    """The text under both of its names: llama.cpp reads `content`, vLLM `prompt`, and each takes the other for nothing."""
    place = jsonbytes.find(body, "prompt" if name == "content" else "content")
    assert place is not None
    return jsonbytes.insert(body, name, body[place[0] : place[1]])
