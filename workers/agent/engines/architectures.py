"""Which architectures an engine's build can load, read from its own files: no engine is started for it.

llama.cpp: each architecture has a class of its own, whose symbol the library exports, and a name, which lies among the others
between `llama` and `(unknown)` (llama-arch.cpp). Linkers merge equal texts, so a name may lie elsewhere: both are taken.
vLLM: the keys of its registry of models (vllm/model_executor/models/registry.py).
"""

from __future__ import annotations

import contextlib
import mmap
import re
from pathlib import Path

_CLASS = re.compile(rb"_ZTV\d{2}llama_model_([a-z0-9_]{2,60})\0")
_NAMES = re.compile(rb"\0llama\0((?:[a-z0-9][a-z0-9._-]{0,40}\0){20,600}?)\(unknown\)\0")
_NO_MODEL = frozenset({"base"})
_KEY = re.compile(r'^    "([A-Za-z0-9_]{3,80})":', re.M)
MAX_REGISTRY = 4 << 20


def of_library(path: Path) -> tuple[str, ...]:
    """Of a shared library or program that has llama.cpp in it; () where it does not tell, as where its symbols are stripped."""
    found: set[str] = set()
    with (
        contextlib.suppress(OSError, ValueError),
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        found |= {item.group(1).decode() for item in _CLASS.finditer(data)}
        if found and (names := _NAMES.search(data)):
            found |= {"llama", *names.group(1).decode().rstrip("\0").split("\0")}
    once = {
        re.sub(r"[^a-z0-9]", "", name): name for name in sorted(found - _NO_MODEL, reverse=True)
    }  # rather `-` than `_`
    return tuple(sorted(once.values()))


def of_vllm(binary: Path) -> tuple[str, ...]:
    """Of the vLLM beside this program, in the same environment; () where it lies elsewhere."""
    top = binary.resolve().parent.parent
    for path in sorted(top.glob("lib/python3*/site-packages/vllm/model_executor/models/registry.py")):
        with contextlib.suppress(OSError, UnicodeDecodeError):
            if path.stat().st_size <= MAX_REGISTRY:
                return tuple(sorted(set(_KEY.findall(path.read_text(encoding="utf-8")))))
    return ()
