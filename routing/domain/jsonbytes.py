"""JSON as bytes: its depth before it is parsed, and one value replaced while every other byte stays.

A body is forwarded as the client wrote it (`1.0` stays `1.0`, a 30-digit number keeps its digits), so a change is a
splice, never parse and dump. Grammar: RFC 8259.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

_STRING = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+'
# An unfinished string runs to the end: without that branch each quote in it would be tried anew, in quadratic time.
_STRINGS = re.compile(_STRING + rb'(?:"|\\?\Z)', re.DOTALL)
_TOKENS = re.compile(_STRING + rb'"|[\[\]{},:]', re.DOTALL)
_SHALLOW = re.compile(
    rb"\{(?:[^{}\[\]\"]++|" + _STRING + rb'"|\{(?:[^{}\[\]"]++|' + _STRING + rb'")*+\})*+\}', re.DOTALL
)
"""An object with no more than objects of scalars in it, as engines' counts are: found in one go."""
_ROUND = bytes.maketrans(b"[]{}", b"()()")
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_SPACE = b" \t\r\n"
MOST_STRINGS, MOST_CONTAINERS = 500_000, 250_000
"""Bounds on what one body may make the event loop do and hold: each is about 0.1 s and 50 MB at its worst."""


def skeleton(body: bytes) -> bytes | None:
    """`body` without its strings: brackets, commas, colons, numbers and words; None where there are too many parts.

    Linear for any input; escaped quotes are not counted as strings.
    """
    if body.count(b'"') - body.count(b'\\"') > 2 * MOST_STRINGS:
        return None
    bones = _STRINGS.sub(b"", body)
    return None if bones.count(b"{") + bones.count(b"[") > MOST_CONTAINERS else bones


def is_flat(body: bytes, limit: int) -> bool:
    """Whether `body` has so few brackets and strings that it can be neither too deep nor too complex."""
    few = len(body) <= 2 * MOST_STRINGS or body.count(b'"') <= 2 * MOST_STRINGS
    return few and body.count(b"{") + body.count(b"[") <= limit


def too_deep(bones: bytes, limit: int) -> bool:
    """Whether a skeleton nests deeper than `limit`. What is no JSON at all is left to the parser."""
    if bones.count(b"{") + bones.count(b"[") <= limit:
        return False
    rounds = bones.translate(_ROUND, _NO_BRACKETS)
    for _ in range(limit):  # each turn takes the innermost level away
        inner = rounds.replace(b"()", b"")
        if len(inner) == len(rounds):
            break
        rounds = inner
    return bool(rounds)


def has_duplicates(bones: bytes, value: Any) -> bool:
    """Whether an object in the document, parsed to `value`, names a field twice.

    Each member has one colon outside of strings and a parsed object keeps one of two equal names, so the counts differ.
    """
    return bones.count(b":") != _members(value)


def names_once(body: bytes, value: Any) -> bool:
    """Whether counting alone proves that no object in `body`, parsed to `value`, names a field twice; False: not proven.

    1. each member has a colon: if there are as many as parsed members, no member is missing and no text has one
    2. the same of `":`, where no space stands before any colon
    """
    members = _members(value)
    if body.count(b":") == members:  # 1
        return True
    if b" :" in body or b"\n:" in body or b"\r:" in body or b"\t:" in body:
        return False
    return body.count(b'":') == members  # 2


def _members(value: Any) -> int:
    """Members of all objects in `value`. No recursion, and scalars are not visited by a call."""
    count = 0
    stack = [value] if type(value) is dict or type(value) is list else []
    while stack:
        item = stack.pop()
        inners: Any = item
        if type(item) is dict:
            count += len(item)
            inners = item.values()
        for inner in inners:
            if type(inner) is dict or type(inner) is list:
                stack.append(inner)
    return count


def find(body: bytes, name: str, start: int = 0) -> tuple[int, int] | None:
    """Where the value of member `name` begins and ends, in the valid object whose `{` is the first after `start`."""
    depth = 0
    key: bytes | None = None
    begin = -1
    at_key = False
    for token in _TOKENS.finditer(body, start):
        text = token.group()
        first = text[:1]
        if first == b'"':
            if depth == 1 and at_key:
                key, at_key = text, False
        elif first == b":":
            if depth == 1 and begin < 0 and key is not None and _same(key, name):
                begin = token.end()
        elif first in (b"{", b"["):
            depth += 1
            at_key = depth == 1
        else:  # `,` or a closing bracket
            if depth == 1:
                if begin >= 0:
                    return _trim(body, begin, token.start())
                at_key = True
            if first != b",":
                depth -= 1
                if depth == 0:
                    return None
    return None


def _same(key: bytes, name: str) -> bool:
    return bool(orjson.loads(key) == name) if b"\\" in key else key[1:-1] == name.encode()


def _trim(body: bytes, begin: int, end: int) -> tuple[int, int]:
    while body[begin] in _SPACE:
        begin += 1
    while body[end - 1] in _SPACE:
        end -= 1
    return begin, end


def value_end(data: bytes, start: int) -> int:
    """Where the object or list that begins at `start` ends; -1 if it does not end within `data`."""
    if shallow := _SHALLOW.match(data, start):
        return shallow.end()
    depth = 0
    for token in _TOKENS.finditer(data, start):
        first = data[token.start()]
        if first in b"{[":
            depth += 1
        elif first in b"}]":
            depth -= 1
            if depth == 0:
                return token.end()
    return -1


def replace(body: bytes, name: str, value: bytes) -> bytes:
    """The object `body` with member `name` set to the JSON text `value`: in its place, or as the first member."""
    place = find(body, name)
    if place is not None:
        return body[: place[0]] + value + body[place[1] :]
    return insert(body, name, value)


def insert(body: bytes, name: str, value: bytes) -> bytes:
    """The object `body` with a new first member; `name` must not be in it yet."""
    at = body.index(b"{") + 1
    comma = b"" if body[at:].lstrip(_SPACE)[:1] == b"}" else b","
    return body[:at] + orjson.dumps(name) + b":" + value + comma + body[at:]
