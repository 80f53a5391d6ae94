"""The files of a repository, and which of them make a model together.

A repository holds many forms of one model (quantisations, parts of them) and files beside it (projectors, importance
matrices, draft heads). Names decide here what is fetched; what a file really is its header says afterwards.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from pathlib import PurePosixPath

from catalog.domain.facts import SHARD
from llmgw_site.lib.errors import Kind, Refused

QUANTIZATION = re.compile(
    r"(?:^|[-._/])(?P<label>(?:UD-)?(?:I?Q[1-8](?:_[0-9KSMLX]+|_XXS|_XS|_NL)*|BF16|F(?:P)?(?:16|32)|MXFP4(?:_MOE)?|NVFP4|TQ[12]_0))"
    r"(?=$|[-._/])",
    re.IGNORECASE,
)
"""A quantisation in a file's or folder's name, as llama.cpp's own tools and the usual publishers write it."""
BESIDE = re.compile(r"(?:^|[-._])(?:mmproj|imatrix|mtp|vocab)(?:[-._]|$)|^ggml-vocab", re.IGNORECASE)
"""GGUF files that are no model: projectors, importance matrices, draft heads, vocabularies."""
PROJECTOR = re.compile(r"(?:^|[-._])mmproj(?:[-._]|$)", re.IGNORECASE)
SAFETENSORS_PART = re.compile(r"(?P<stem>.+)-(?P<number>[0-9]{5})-of-(?P<count>[0-9]{5})\.safetensors")
INDEX = ".safetensors.index.json"
NEEDED = ("config.json",)
WITH_WEIGHTS = re.compile(
    r"(?:config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|preprocessor_config|"
    r"processor_config|video_preprocessor_config|chat_template|tekken|params)\.json|chat_template\.jinja|merges\.txt|"
    r"vocab\.txt|(?:tokenizer|spiece|sentencepiece\.bpe)\.model|[^/]+\.tiktoken"
)
"""Small files that an engine reads beside safetensors."""
MAX_FILES = 15_000
MAX_MISSING = 1000
"""Parts that are missing and told of, of all sets together: names alone can promise a thousand with each file."""


class Format(StrEnum):
    GGUF = "gguf"
    SAFETENSORS = "safetensors"


@dataclass(frozen=True, kw_only=True)
class RepoFile:
    """One file of a commit. `size` in bytes; `sha256` "" where the registry publishes none (small files have `blob`)."""

    path: str
    size: int
    sha256: str = ""
    blob: str = ""

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


@dataclass(frozen=True, kw_only=True)
class FileSet:
    """Files that make one model together: all parts, in order, and what is read beside them.

    `missing`: parts that the names promise and the repository lacks, not all of them where they are very many. `size`: bytes of all files.
    """

    format: Format
    quantization: str
    weights: tuple[RepoFile, ...]
    beside: tuple[RepoFile, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def first(self) -> RepoFile:
        return self.weights[0]

    @property
    def files(self) -> tuple[RepoFile, ...]:
        return (*self.weights, *self.beside)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def quantization(path: str) -> str:
    """The quantisation that a path names, in upper case: the file's own name counts before its folder's. "": none."""
    for part in reversed(PurePosixPath(path).parts):
        stem = part.removesuffix(".gguf")
        if found := list(QUANTIZATION.finditer(stem)):
            return found[-1]["label"].upper()
    return ""


def file_sets(files: Sequence[RepoFile]) -> tuple[FileSet, ...]:
    """The models that these files make: GGUF ones by name, then the safetensors set."""
    by_path = {file.path: file for file in sorted(files, key=lambda file: file.path)}
    return (*_gguf(by_path), *_safetensors(by_path))


def projectors(files: Iterable[RepoFile]) -> tuple[RepoFile, ...]:
    """Files that let a model see or hear, the most exact first (F16 before F32: it is what engines are tuned for)."""
    found = [
        file for file in files if file.path.endswith(".gguf") and PROJECTOR.search(file.name.removesuffix(".gguf"))
    ]
    order = {"F16": 0, "BF16": 1, "Q8_0": 2, "F32": 3}
    return tuple(sorted(found, key=lambda file: (order.get(quantization(file.name), 4), file.path)))


def choose_projector(there: Sequence[RepoFile], chosen: FileSet, wanted: str) -> RepoFile | None:
    """The file that lets the chosen model see or hear: `auto` is the best that there is, `none` none. Raises Refused
    `projector_not_in_repository`, with those that there are."""
    gguf = chosen.format is Format.GGUF
    if wanted == "none" or (wanted in ("", "auto") and not (gguf and there)):
        return None
    if wanted in ("", "auto"):
        return there[0]
    found = next((item for item in there if wanted in (item.path, item.name)), None)
    if found is None or not gguf:
        names = _listed([item.path for item in there]) or "none"
        only = "" if gguf else "; safetensors hold theirs themselves"
        text = f"there is no projector {wanted[:200]} for it: there are {names}{only}"
        raise Refused(Kind.INVALID, "projector_not_in_repository", text, param="projector")
    return found


@dataclass(slots=True)
class _Parts:
    """A set of which a repository has some parts: by their numbers. `before`, `after`: of a part's number in its path."""

    before: str
    after: str
    count: int
    there: dict[int, RepoFile] = field(default_factory=dict)

    def missing(self, most: int) -> list[str]:
        """Names of parts that are not there: so many, and one at least where any is."""
        numbers = (number for number in range(1, self.count + 1) if number not in self.there)
        return [f"{self.before}{number:05d}{self.after}" for number in islice(numbers, max(1, most))]


def _sets(files: Iterable[RepoFile], pattern: re.Pattern[str]) -> list[_Parts]:
    """The sets of which these are parts; one that is beyond its own set's end is no part of it."""
    found: dict[tuple[str, str], _Parts] = {}
    for file in files:
        if (part := pattern.fullmatch(file.path)) is None:
            continue
        number, count = int(part["number"]), int(part["count"])
        around = file.path[: part.start("number")], file.path[part.end("number") :]
        if 1 <= number <= count:
            found.setdefault(around, _Parts(*around, count)).there[number] = file
    return list(found.values())


def _gguf(by_path: Mapping[str, RepoFile]) -> Iterator[FileSet]:
    """By the path of the first part that is there."""
    files = [
        file
        for file in by_path.values()
        if file.path.endswith(".gguf") and not BESIDE.search(file.name.removesuffix(".gguf"))
    ]
    firsts = {next(iter(parts.there.values())).path: parts for parts in _sets(files, SHARD)}
    left = MAX_MISSING
    for file in files:
        if SHARD.fullmatch(file.name) is None:
            yield FileSet(format=Format.GGUF, quantization=quantization(file.path), weights=(file,))
        elif parts := firsts.get(file.path):
            missing = parts.missing(left)
            left -= len(missing)
            label = quantization(SHARD.sub(r"\g<stem>", file.path))
            weights = tuple(parts.there.values())
            yield FileSet(format=Format.GGUF, quantization=label, weights=weights, missing=tuple(missing))


def _safetensors(by_path: Mapping[str, RepoFile]) -> Iterable[FileSet]:
    """The set in the top folder. Mistral's `consolidated*` repeats what `model*` holds."""
    top = [file for path, file in by_path.items() if "/" not in path]
    weights = [file for file in top if file.path.endswith(".safetensors") and not file.path.startswith("adapter_")]
    if any(file.path.startswith("model") for file in weights):
        weights = [file for file in weights if file.path.startswith("model")]
    if not weights:
        return
    missing: list[str] = []
    for parts in _sets(weights, SAFETENSORS_PART):
        missing += parts.missing(MAX_MISSING - len(missing))
    missing += [path for path in NEEDED if path not in by_path]
    indexes = {file.path.partition("-")[0].removesuffix(".safetensors") + INDEX for file in weights}
    beside = [file for file in top if WITH_WEIGHTS.fullmatch(file.path) or file.path in indexes]
    yield FileSet(
        format=Format.SAFETENSORS, quantization="", weights=tuple(weights), beside=tuple(beside), missing=tuple(missing)
    )


def choose(sets: Sequence[FileSet], *, wanted: str = "", file: str = "", format: str = "") -> tuple[FileSet, ...]:
    """The sets that a person's words leave. `wanted`: a quantisation; `file`: a path or name of any part. Raises Refused.

    1. `repository_has_no_model`   nothing in it is a model that an engine here runs
    2. `file_not_in_repository`, `quantization_not_in_repository`, `format_not_in_repository`: with what there is
    3. `weights_incomplete`        the only one that is left lacks parts
    """
    if not sets:  # 1
        text = "there is no .gguf model and no .safetensors model in it: choose a repository with one of these"
        raise Refused(Kind.INVALID, "repository_has_no_model", text, param="repository")
    left = list(sets)
    if format:
        left = [item for item in left if item.format == format] or _none(
            "format", format, {item.format.value for item in sets}
        )
    if file:
        names = {part.path for item in left for part in item.weights}
        left = [item for item in left if any(file in (part.path, part.name) for part in item.weights)] or _none(
            "file", file, names
        )
    if wanted:
        labels = {item.quantization for item in left if item.quantization}
        left = [item for item in left if item.quantization == wanted.upper()] or _none("quantization", wanted, labels)
    whole = [item for item in left if not item.missing]
    if not whole:  # 3
        lacks = left[0].missing
        text = f"{left[0].first.path} is not whole: {_listed(lacks)} {'is' if len(lacks) == 1 else 'are'} missing in the repository"
        raise Refused(Kind.INVALID, "weights_incomplete", text, param="repository")
    return tuple(whole)


def _none(what: str, given: str, there: Iterable[str]) -> list[FileSet]:
    names = sorted(item for item in there if item)
    has = f"it has {_listed(names)}" if names else "it names none"
    text = f"there is no {what} {given} in this repository: {has}"
    raise Refused(Kind.INVALID, f"{what}_not_in_repository", text, param=what, extra={"there": names[:200]})


def _listed(names: Sequence[str], most: int = 12) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
