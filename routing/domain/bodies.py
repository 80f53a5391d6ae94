"""What a body must hold at each endpoint: only the fields that llmgw acts on, or that engines fall over, are checked.

Every other field is the engine's to judge. Raises Refused(INVALID) `missing_field`, `invalid_type`, `invalid_value`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmgw_site.lib.errors import Kind, Refused
from routing.domain.endpoints import (
    CHAT,
    COMPLETIONS,
    COUNT_TOKENS,
    DETOKENIZE,
    EMBEDDINGS,
    IMAGES,
    MESSAGES,
    RERANK,
    RESPONSES,
    SPEECH,
    TOKENIZE,
)

_JSON_NAME: dict[type, str] = {
    str: "a string",
    int: "a number",
    float: "a number",
    bool: "a boolean",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def refused(code: str, message: str, param: str | None = None) -> Refused:
    return Refused(Kind.INVALID, code, message, param=param)


def wrong(name: str, found: Any, wanted: str) -> Refused:
    """The field `name` is not there, empty, or of another type."""
    if found is None:
        return refused("missing_field", f"'{name}' is required: {wanted}.", name)
    if found in ("", []) and "non-empty" in wanted:
        return refused("invalid_value", f"'{name}' must be {wanted}; it is empty.", name)
    return refused("invalid_type", f"'{name}' must be {wanted}, not {_JSON_NAME[type(found)]}.", name)


def _objects(name: str, value: Any, what: str) -> None:
    """A list of objects."""
    if type(value) is not list:
        raise wrong(name, value, f"a list of {what}s")
    for number, item in enumerate(value):
        if type(item) is not dict:
            raise wrong(f"{name}[{number}]", item, f"a {what}")


def _messages(value: dict[str, Any]) -> None:
    messages = value.get("messages")
    if type(messages) is not list or not messages:
        raise wrong("messages", messages, "a non-empty list of message objects")
    for number, message in enumerate(messages):
        if type(message) is not dict:
            raise wrong(f"messages[{number}]", message, "a message object")
        if type(message.get("role")) is not str:
            raise wrong(f"messages[{number}].role", message.get("role"), "a string such as 'user'")
    tools = value.get("tools")  # llama.cpp answers 500 to these, and OpenAI's clients try a 500 again
    if tools is not None:
        _objects("tools", tools, "tool object")


def _anthropic(value: dict[str, Any]) -> None:
    """As of a chat, and the contents: texts, or lists of blocks. llama.cpp answers to what is none of these as if it were."""
    _messages(value)
    for number, message in enumerate(value["messages"]):
        _blocks(f"messages[{number}].content", message.get("content"))
    if value.get("system") is not None:
        _blocks("system", value["system"])


def _blocks(name: str, content: Any) -> None:
    if type(content) is not str:
        if type(content) is not list:
            raise wrong(name, content, "a string or a list of content blocks")
        _objects(name, content, "content block")


def _responses(value: dict[str, Any]) -> None:
    given = value.get("input")
    if type(given) is not str:
        if type(given) is not list or not given:
            raise wrong("input", given, "a string or a non-empty list of items")
        _objects("input", given, "item")
    tools = value.get("tools")
    if tools is not None:
        _objects("tools", tools, "tool object")


def _text(name: str) -> Callable[[dict[str, Any]], None]:
    def check(value: dict[str, Any]) -> None:
        text = value.get(name)
        if type(text) is not str and not (type(text) is list and text):
            raise wrong(name, text, "a string or a non-empty list")

    return check


def _rerank(value: dict[str, Any]) -> None:
    query, documents = value.get("query"), value.get("documents")
    if type(query) not in (str, dict):  # an object: a picture, for models that rank them
        raise wrong("query", query, "a string")
    if type(documents) is not list or not documents:
        raise wrong("documents", documents, "a non-empty list of texts")


def _tokenize(value: dict[str, Any]) -> None:
    """`content` as llama.cpp names it or `prompt` as vLLM does; or `messages`, which vLLM alone knows."""
    if value.get("messages") is not None:
        _messages(value)
        return
    name = "content" if "content" in value else "prompt"
    if type(value.get(name)) is not str:
        raise wrong(name, value.get(name), "a string")


def _string(name: str) -> Callable[[dict[str, Any]], None]:
    def check(value: dict[str, Any]) -> None:
        if type(value.get(name)) is not str or not value[name]:
            raise wrong(name, value.get(name), "a non-empty string")

    return check


def _detokenize(value: dict[str, Any]) -> None:
    tokens = value.get("tokens")
    if type(tokens) is not list:
        raise wrong("tokens", tokens, "a list of whole numbers")
    if not all(type(token) is int for token in tokens):
        raise refused("invalid_type", "'tokens' must be a list of whole numbers, and nothing else in it.", "tokens")


CONTENT: dict[str, Callable[[dict[str, Any]], None]] = {
    CHAT: _messages,
    COMPLETIONS: _text("prompt"),
    EMBEDDINGS: _text("input"),
    MESSAGES: _anthropic,
    COUNT_TOKENS: _anthropic,
    RESPONSES: _responses,
    RERANK: _rerank,
    SPEECH: _string("input"),
    IMAGES: _string("prompt"),
    TOKENIZE: _tokenize,
    DETOKENIZE: _detokenize,
}
"""By endpoint."""
