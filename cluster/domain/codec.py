"""Frozen messages to and from plain dicts. Sizes and names are `cluster.wire`'s matter."""

from __future__ import annotations

import functools
import types
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

VERSION = 1

T = TypeVar("T")


class WireError(ValueError):
    """A message that cannot be read; the text names the field and what was expected."""


def to_dict(message: Any) -> dict[str, Any]:
    """A message as plain dicts, lists and scalars, with its version."""
    return {"v": VERSION, **_plain(message)}


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def from_dict(kind: type[T], data: Any, where: str = "") -> T:
    """Read a message of this kind. Raises WireError on a wrong type or a missing field that has no default."""
    try:
        return typing.cast(T, _reader(kind)(data))  # type: ignore[arg-type]
    except (_Mismatch, TypeError):
        return _from_dict(kind, data, where)  # once more, slowly: it finds the words, or accepts what is unusual


class _Mismatch(Exception):
    """A value is not of the plain type that was expected."""


Reader = Callable[[Any], Any]


@functools.cache
def _reader(hint: Any) -> Reader:
    """What reads a value of this type, put together once: a controller reads a thousand heartbeats every half minute."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return lambda value: value
    if hint is float:
        return _float
    if origin in (types.UnionType, typing.Union) and type(None) in args:
        some = _reader(next(arg for arg in args if arg is not type(None)))
        return lambda value: None if value is None else some(value)
    if origin is tuple:
        item = _reader(args[0])
        return lambda value: tuple([item(each) for each in _exactly(list, value)])
    if origin is dict:
        entry = _reader(args[1])
        return lambda value: {_exactly(str, key): entry(each) for key, each in _exactly(dict, value).items()}
    if is_dataclass(hint):
        return _message_reader(typing.cast(type, hint))
    return functools.partial(_exactly, hint)


def _message_reader(kind: type[Any]) -> Reader:
    named = [(name, _reader(hint)) for name, hint in _hints(kind)]  # type: ignore[arg-type]

    def read(data: Any) -> Any:
        _exactly(dict, data)
        return kind(**{name: reader(data[name]) for name, reader in named if name in data})

    return read


def _exactly(kind: Any, value: Any) -> Any:
    if type(value) is not kind:
        raise _Mismatch
    return value


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    return float(_exactly(int, value))


def _from_dict(kind: type[T], data: Any, where: str) -> T:
    if not isinstance(data, dict):
        raise WireError(f"{where or kind.__name__}: an object was expected, not {type(data).__name__}")
    values = {}
    for name, hint in _hints(kind):  # type: ignore[arg-type]
        if name in data:
            values[name] = _read(hint, data[name], f"{where or kind.__name__}.{name}")
    try:
        return kind(**values)
    except TypeError as error:
        raise WireError(f"{where or kind.__name__}: {error}") from None


@functools.cache
def _hints(kind: type[Any]) -> tuple[tuple[str, Any], ...]:
    """Names and types of a message's fields. Remembered: a snapshot holds the same few kinds thousands of times."""
    hints = typing.get_type_hints(kind)
    return tuple((item.name, hints[item.name]) for item in fields(kind))


def _read(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in args:
            return None
        return _read(next(arg for arg in args if arg is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise WireError(f"{where}: a list was expected, not {type(value).__name__}")
        return tuple(_read(args[0], item, f"{where}[{n}]") for n, item in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict):
            raise WireError(f"{where}: an object was expected, not {type(value).__name__}")
        return {str(key): _read(args[1], item, f"{where}.{key}") for key, item in value.items()}
    if is_dataclass(hint):
        return _from_dict(typing.cast(type, hint), value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is Any or (isinstance(value, hint) and not (hint is int and isinstance(value, bool))):
        return value
    raise WireError(f"{where}: {hint.__name__} was expected, not {type(value).__name__}")
