"""How many tokens a prompt has at the least, where an answer ended before its engine said it: a token for each word.

The tokenizers of language models cut a text at its spaces before they look for tokens (GPT-2's and its heirs' by a pattern,
SentencePiece by `split_by_whitespace`), so no token has two words, and most words have more than one. But for one case: by
the patterns of o200k (gpt-oss) and tekken (Mistral) signs at the end of a line and slashes that begin the next one may be one token,
so a word that begins a line with a slash is not counted. What the limits reserve
(limits.py, `reckon`) is what a prompt may have, often more than it has: that cannot stand in a record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from routing.domain.endpoints import CHAT, COMPLETIONS, MESSAGES, RESPONSES

PIECE = 1 << 16
"""Characters that are looked at together."""
_SAID = ("function_call", "custom_tool_call", "reasoning", "item_reference")
"""Items of the model's own. No set: a client may write anything for a type."""


def fewest(endpoint: str, body: bytes, *, context: int | None) -> int | None:
    """Tokens that the prompt of a checked request has at the least; None: it is of an endpoint without a prompt.

    1. a text completion                 words of its texts; of those that are cut into tokens already, these
    2. a chat, a message, a response     words of its texts: not those of answers before this one, of which a model's template
                                         may take parts out, and no pictures
    At least 1, and no more than the model's `context`, to which some engines cut a prompt.
    """
    if endpoint not in (CHAT, COMPLETIONS, MESSAGES, RESPONSES):
        return None
    try:
        value: Any = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    texts: Iterator[str | int]
    if endpoint == COMPLETIONS:
        texts = _of_prompt(value.get("prompt"))  # 1
    else:
        texts = _texts(value, value.get("input" if endpoint == RESPONSES else "messages"))  # 2
    most, found = math.inf if context is None else context, 0
    for text in texts:
        found += 1 if isinstance(text, int) else _words(text, most - found)
        if found >= most:  # no need to hold up the event loop with the rest
            break
    return max(1, int(min(found, most)))


def _words(text: str, most: float) -> int:
    """By pieces: megabytes of text would be a million objects at once. One that lies across an edge may count as none. Stops at
    `most`."""
    found = -(max(0, len(text) - 1) // PIECE + text.count("\n/") + text.count("\r/"))
    for at in range(0, len(text), PIECE):
        if found >= most:
            break
        found += len(text[at : at + PIECE].split())
    return max(0, found)


def _of_prompt(prompt: Any) -> Iterator[str | int]:
    if type(prompt) is str:
        yield prompt
    for item in prompt if type(prompt) is list else ():
        if type(item) is int:
            yield item
        else:
            yield from _of_prompt(item)


def _texts(value: Mapping[str, Any], given: Any) -> Iterator[str]:
    yield from _of_content(value.get("system"))
    yield from _of_content(value.get("instructions"))
    if type(given) is str:
        yield given
    for item in given if type(given) is list else ():
        if type(item) is dict and item.get("role") != "assistant" and item.get("type") not in _SAID:
            yield from _of_content(item.get("content"))
            yield from _of_content(item.get("output"))


def _of_content(content: Any) -> Iterator[str]:
    """A string, or parts that have a text; a tool's result among them has a content of its own."""
    if type(content) is str:
        yield content
    for part in content if type(content) is list else ():
        if type(part) is dict:
            if type(text := part.get("text")) is str:
                yield text
            yield from _of_content(part.get("content"))
