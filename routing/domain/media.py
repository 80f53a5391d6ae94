"""Pictures, sounds and films in a request: none that an engine would fetch, and what engines say where they cannot use one.

llama.cpp fetches whatever address stands where the data of a picture should be, a film's and a sound's too; vLLM does the
same. Such an engine stands inside the operator's network and follows no guard, so a client could have it read what only
nodes may reach. Data comes in the request itself; an external provider fetches from where it stands, and may.

Sources: llama.cpp tools/server/server-common.cpp (`handle_media`), vLLM multimodal/media/connector.py (`load_from_url`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from llmgw_site.lib.errors import Kind, Refused
from routing.domain.blocks import blocks
from routing.domain.endpoints import ENDPOINTS, Shape, shape_of
from routing.domain.multipart import Field

ADDRESS = re.compile(r"[\x00-\x20]*(?:http|[a-z][a-z0-9+.-]*:/)", re.IGNORECASE)
"""What an engine could take for an address: a scheme with a slash, and anything that begins as llama.cpp looks for it.
`data:` has no slash there; base64 has no colon."""
SPOKEN = frozenset({"model", "prompt", "negative_prompt", "input", "instructions", "text", "user"})
"""Members and fields that ask for sounds and pictures in words."""
TEXTS = frozenset({"text", "prompt_string", "refusal", "thinking", "type"})
"""Members of a part that are read as text, whatever stands in them."""


def fetched(endpoint: str, value: Mapping[str, Any]) -> str:
    """Where in a body the first address stands that an engine would fetch, such as `messages[0].content[1].image_url.url`;
    empty: nowhere. Looked at are the parts of messages, and the prompts, inputs, queries and documents that are objects; of
    messages and responses the blocks and items."""
    shape = shape_of(endpoint)
    parts = _parts(value) if shape is Shape.OPENAI else blocks(shape, value)
    if ENDPOINTS[endpoint].opaque:
        parts = ((name, item) for name, item in value.items() if name not in SPOKEN)
    for place, part in parts:
        found = _address(place, part)
        if found:
            return found
    return ""


def fetched_by(field: Field) -> str:
    """The same of a form's field; files are data."""
    spoken = field.file or field.name in SPOKEN
    return "" if spoken or not ADDRESS.match(field.value.decode("utf-8", "replace")) else field.name


def _parts(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    messages = value.get("messages")
    for number, message in enumerate(messages if type(messages) is list else ()):
        content = message.get("content") if type(message) is dict else None
        if type(content) is dict:
            yield f"messages[{number}].content", content
        elif type(content) is list:
            for at, part in enumerate(content):
                if type(part) is dict:
                    yield f"messages[{number}].content[{at}]", part
    for name in ("prompt", "input", "query", "documents"):
        found = value.get(name)
        if type(found) is dict:
            yield name, found
        elif type(found) is list:
            for at, part in enumerate(found):
                if type(part) is dict:
                    yield f"{name}[{at}]", part


def _address(place: str, value: Any) -> str:
    """As `fetched`, of one part. Bodies are bounded in depth, so this is."""
    if type(value) is str:
        return place if ADDRESS.match(value) else ""
    if type(value) is dict:
        inner = (
            (f"{place}.{name}", item) for name, item in value.items() if name not in TEXTS or type(item) is not str
        )
    elif type(value) is list:
        inner = ((f"{place}[{at}]", item) for at, item in enumerate(value))
    else:
        return ""
    return next((found for where, item in inner if (found := _address(where, item))), "")


def refused(place: str) -> Refused:
    """400 `media_address_refused`. `place` as of `fetched`."""
    return Refused(
        Kind.INVALID,
        "media_address_refused",
        f"'{place[:200]}' is an address, and engines fetch none: send the data itself, as a data: URL in base64.",
        param=place[:200],
    )


_BLIND = re.compile(r"(image|audio|video) input is not supported")
_DAMAGED = re.compile(
    r"Failed to load image or audio file|Invalid (?:uri-encoded )?base64|Invalid ur[il] |uri must be base64"
)


def told(status: int, error: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """An engine's error about a picture, sound or film, as what it is: the request's fault, and no reason to try again.
    llama.cpp answers 500 to most of them. Any other error stays as it is.

    1. `media_not_supported`   the model has no projector for it
    2. `media_unreadable`      no picture or sound, or no base64
    """
    message = error["message"]
    if blind := _BLIND.search(message):  # 1
        text = (
            f"The model takes no {blind[1]} input: it was served without a file that lets it see or hear. "
            "Send text, or use another model."
        )
        return 400, {**error, "message": text, "type": "invalid_request_error", "code": "media_not_supported"}
    if _DAMAGED.search(message):  # 2
        return 400, {**error, "type": "invalid_request_error", "code": "media_unreadable"}
    return status, error
