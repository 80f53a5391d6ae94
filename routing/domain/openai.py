"""What we read of a request to a POST endpoint, and the shapes of what llmgw itself answers.

Only the fields that llmgw acts on are checked; every other field is the engine's to judge and reaches it untouched.
Source: OpenAI's API reference (chat completions, completions, embeddings, models, errors).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import orjson

from llmgw_site.lib.errors import Kind, Refused
from routing.domain import jsonbytes
from routing.domain.bodies import CONTENT, refused, wrong
from routing.domain.endpoints import ENDPOINTS, TOKENIZE, Shape
from routing.domain.limits import copies, lengths
from routing.domain.media import fetched
from routing.domain.snapshot import ModelEntry

MOST_CHOICES = 128
"""Largest `n`, as at OpenAI; engines allow thousands, each a sequence of its own in memory."""
SHOWN_NAME = 200
"""Characters of a client's model name that an error message repeats."""


class Ask(NamedTuple):
    """What a body asks for."""

    model: str
    stream: bool = False
    include_usage: bool = False  # the client wants the usage chunk of a stream
    has_stream_options: bool = False  # the member exists, whatever its value
    has_lora: bool = False  # likewise
    fetched: str = ""  # place of an address that an engine would fetch
    twin: str = ""  # the name that engines of the other kind have for a text to cut into tokens
    model_at: tuple[int, int] | None = None  # of a form: where the name stands in its beginning
    templated: bool = False  # messages are to be cut into tokens, by the model's template
    longest: int | None = None  # tokens that one answer may have; None: it names no bound
    answers: int = 1  # how many it asks for
    prompts: int = 1  # for how many prompts


def parse(endpoint: str, body: bytes, *, max_depth: int) -> Ask:
    """Read a body for `endpoint`. Raises Refused(INVALID), checked in this order:

    1. `json_too_complex` more strings, objects or lists than reading them in the event loop allows
    2. `json_too_deep`    nested deeper than `max_depth`; both are seen before anything is parsed
    3. `invalid_json`     no JSON (RFC 8259), which includes bytes that are not UTF-8
    4. `not_an_object`    JSON, but no object
    5. `duplicate_field`  an object names a field twice: readers disagree on which one counts
    6. `missing_field`, `invalid_type`, `invalid_value`   about the field in `param`
    """
    bones: bytes | None = b""  # found only where counting bytes does not settle it
    if not jsonbytes.is_flat(body, max_depth):
        bones = jsonbytes.skeleton(body)
    if bones is None:  # 1
        raise refused("json_too_complex", "The JSON body has too many strings, objects or lists: send a smaller one.")
    if bones and jsonbytes.too_deep(bones, max_depth):  # 2
        raise refused("json_too_deep", f"The JSON body is nested deeper than {max_depth} levels: send a flatter one.")
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:  # 3
        raise refused("invalid_json", f"The body is not valid JSON ({_reason(error)}): send one JSON object.") from None
    if type(value) is not dict:  # 4
        raise refused("not_an_object", "The body must be a JSON object with at least a 'model' field.")
    if not jsonbytes.names_once(body, value) and jsonbytes.has_duplicates(
        bones or jsonbytes.skeleton(body) or b"", value
    ):  # 5
        raise refused("duplicate_field", "The body names a field twice in one object: send each field once.")
    return _ask(endpoint, value)  # 6


def _reason(error: orjson.JSONDecodeError) -> str:
    return f"{error.msg}, at character {error.pos}" if "char" not in error.msg else error.msg


def _ask(endpoint: str, value: dict[str, Any]) -> Ask:
    get = value.get
    model = get("model")
    if type(model) is not str or not model:
        raise wrong("model", model, "the name of a model, a non-empty string")
    CONTENT[endpoint](value)
    stream = get("stream")
    if stream is not None and type(stream) is not bool:
        raise wrong("stream", stream, "true or false")
    if stream and not ENDPOINTS[endpoint].streams:
        raise refused("invalid_value", f"An answer of {endpoint} cannot be streamed: leave 'stream' out.", "stream")
    options = get("stream_options")
    wants: Any = False
    if options is not None:
        if type(options) is not dict:
            raise wrong("stream_options", options, "an object")
        wants = options.get("include_usage")
        if wants is not None and type(wants) is not bool:
            raise wrong("stream_options.include_usage", wants, "true or false")
    for name in ("max_tokens", "max_completion_tokens", "n"):
        count = get(name)
        if count is not None and type(count) is not int:
            raise wrong(name, count, "a whole number")
    n = get("n")
    if n is not None and not 1 <= n <= MOST_CHOICES:
        raise refused("invalid_value", f"'n' must be from 1 to {MOST_CHOICES}, not {n}.", "n")
    longest, answers = lengths(endpoint, value)
    if answers > 1 and ENDPOINTS[endpoint].shape is not Shape.OPENAI:  # llama.cpp would make them and count one
        raise refused("invalid_value", f"A request to {endpoint} has one answer: leave 'n' and 'n_cmpl' out.", "n")
    return Ask(
        model=model,
        longest=longest,
        answers=answers,
        prompts=answers // copies(value) if answers > 1 else 1,
        stream=bool(stream) and not ENDPOINTS[endpoint].opaque,
        include_usage=bool(wants) or ENDPOINTS[endpoint].shape is not Shape.OPENAI,  # those always have it
        has_stream_options="stream_options" in value,
        has_lora="lora" in value,
        fetched=fetched(endpoint, value),
        **_tokenized(value) if endpoint == TOKENIZE else {},
    )


def _tokenized(value: dict[str, Any]) -> dict[str, Any]:
    if value.get("messages") is not None:
        return {"templated": True}
    names = [name for name in ("content", "prompt") if name not in value]
    return {"twin": names[0] if names else ""}


NO_LORA = b'[{"id":0,"scale":0.0}]'
"""No adapter applies: llama.cpp takes those that are not listed for switched off, and an empty list for its own default."""


def upstream_body(body: bytes, ask: Ask, *, served_name: str, lora: bytes = b"") -> bytes:
    """The bytes that go to the engine: `body` itself unless the model's name, its adapter or the wish for usage must change.

    The usage chunk of a stream is always asked for: it is where the counts of the usage record come from.
    `lora`: of an engine that has adapters. Which one applies follows from the name that was asked for, which is what keys are
    allowed, so what a client says of it never counts; an engine by itself applies none.
    """
    if ask.model_at is not None:
        renamed = served_name and served_name != ask.model
        return body[: ask.model_at[0]] + served_name.encode() + body[ask.model_at[1] :] if renamed else body
    if served_name and served_name != ask.model:
        body = jsonbytes.replace(body, "model", orjson.dumps(served_name))
    if lora and ask.has_lora:
        body = jsonbytes.replace(body, "lora", lora)
    elif lora and lora != NO_LORA:
        body = jsonbytes.insert(body, "lora", lora)
    if not ask.stream or ask.include_usage:
        return body
    if not ask.has_stream_options:
        return jsonbytes.insert(body, "stream_options", b'{"include_usage":true}')
    place = jsonbytes.find(body, "stream_options")
    assert place is not None
    options = body[place[0] : place[1]]
    changed = jsonbytes.replace(options, "include_usage", b"true") if options[:1] == b"{" else b'{"include_usage":true}'
    return body[: place[0]] + changed + body[place[1] :]


def model_not_found(name: str) -> Refused:
    """The one answer for a model that does not exist and for one that this key may not use: they look the same."""
    return Refused(
        Kind.NOT_FOUND,
        "model_not_found",
        f"The model '{name[:SHOWN_NAME]}' does not exist or this key has no access to it: GET /v1/models lists what it may use.",
        param="model",
    )


def model_object(entry: ModelEntry, said: Mapping[str, Any]) -> dict[str, Any]:
    """A model in the list; `said` is what engines say of it, which never changes what the catalogue says."""
    known = {"context_length": entry.context} if entry.context else {}
    own: dict[str, Any] = {"id": entry.name, "object": "model", "created": entry.created, "owned_by": entry.owned_by}
    if entry.parent:
        own["parent"] = entry.parent
    return {**own, **known, **said, **own}


def model_list(entries: Iterable[tuple[ModelEntry, Mapping[str, Any]]]) -> bytes:
    return orjson.dumps({"object": "list", "data": [model_object(entry, said) for entry, said in entries]})


_ENGINE_CODES = {
    "exceed_context_size_error": "context_length_exceeded",
    "not_supported_error": "not_supported",
    "unavailable_error": "engine_unavailable",
}
_NO_SUCH_PATH = frozenset({"File Not Found", "Not Found", "Method Not Allowed"})
"""How llama.cpp, and FastAPI (vLLM and many others), say it."""
ERROR_TEXT = 2000
"""Characters of an engine's error message that reach the client."""


def engine_error(status: int, body: bytes, *, secret: str, who: str = "engine") -> dict[str, Any]:
    """An engine's error answer as the inside of an OpenAI error object; `secret` (the engine's key) is taken out.

    `who` answered: `engine` or `provider`.

    1. `{"error": {...}}`      llama.cpp (numeric `code`), vLLM, OpenAI
    2. `{"error": "text"}`     several small servers
    3. `{"object": "error", ...}`, `{"message": ...}`, `{"detail": ...}`   older vLLM, FastAPI
    4. anything else           its status only: a page of HTML helps nobody
    """
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        value = None
    inner: Any = value.get("error", value) if isinstance(value, dict) else None
    if isinstance(inner, str):  # 2
        inner = {"message": inner}
    if not isinstance(inner, dict):  # 4
        inner = {}
    message = inner.get("message") or inner.get("detail")  # 1, 3
    if not isinstance(message, str):
        message = f"The {who} answered with status {status}." if message is None else orjson.dumps(message).decode()
    kind = inner.get("type")
    if not isinstance(kind, str) or not kind:
        kind = "invalid_request_error" if status < 500 else "server_error"
    code = inner.get("code")
    if not isinstance(code, str) or not code or code.isdecimal():
        code = _ENGINE_CODES.get(kind, f"{who}_error")
    param = inner.get("param")
    if secret:
        message = message.replace(secret, f"[{who} key]")
    return {
        "message": message[:ERROR_TEXT],
        "type": kind[:100],
        "code": code[:100],
        "param": param[:200] if isinstance(param, str) else None,
    }


def lacking(status: int, error: dict[str, Any], path: str, *, who: str = "engine") -> tuple[int, dict[str, Any]]:
    """An error from `engine_error` where whom we asked does not know the path: a 404 about an address that the client cannot
    see would look like one about its own. Any other error, one about a model too, stays as it is."""
    if status not in (404, 405) or error["message"] not in _NO_SUCH_PATH:
        return status, error
    text = f"The {who} of this model has no {path}: use another model."
    return 400, {"message": text, "type": "invalid_request_error", "code": "not_supported", "param": "model"}
