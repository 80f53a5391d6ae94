"""Where files on a node may have come from: what to ask a registry for, and whether a repository really has them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from catalog.domain.cards import REPOSITORY, RepoCard
from catalog.domain.facts import SHARD, shard_names
from catalog.domain.repository import QUANTIZATION
from llmgw_site.lib.errors import Kind, Refused

SHORT_COMMIT = re.compile(r"[0-9a-f]{7,40}")
CACHED = re.compile(r"models--(?P<owner>[^/]+?)--(?P<name>[^/]+)")
MOST = 20
"""Repositories that are looked at until tracing gives up."""
AGAIN, TROUBLED = 7 * 24 * 3600.0, 3600.0
"""Seconds until a model is traced again: where nothing was found, and where nobody could be asked or nothing could be proved."""
AWAY = frozenset({"registry_unreachable", "registry_failed", "registry_limited"})
"""Codes of a registry that answers nobody: no other model is traced either."""
SETTLED = frozenset({"origin_not_found", "origin_ambiguous"})
"""Codes of a search that came to its end."""


@dataclass(frozen=True, kw_only=True)
class Clues:
    """What a path tells: the commit that a folder is named after, the repository that one names, words to search for."""

    commit: str = ""
    repository: str = ""
    words: str = ""


def clues(path: str) -> Clues:
    """What the path of weights tells of their origin.

    1. a folder named as a commit, maybe shortened: the innermost counts
    2. `models--OWNER--NAME` as the Hub's own cache names it, or OWNER/NAME right above that commit
    3. words: the file's name without its quantisation and part, or the folder's where the name says nothing
    """
    steps = PurePosixPath(path).parts
    at = next((place for place in range(len(steps) - 1, -1, -1) if SHORT_COMMIT.fullmatch(steps[place])), None)  # 1
    commit, repository = (steps[at] if at is not None else ""), ""
    for step in steps:  # 2
        if (found := CACHED.fullmatch(step)) and REPOSITORY.fullmatch(f"{found['owner']}/{found['name']}"):
            repository = f"{found['owner']}/{found['name']}"
    if not repository and at is not None and at >= 2 and REPOSITORY.fullmatch("/".join(steps[at - 2 : at])):
        repository = "/".join(steps[at - 2 : at])
    return Clues(commit=commit, repository=repository, words=_words(steps))


def _words(steps: Sequence[str]) -> str:
    """Case 3 of `clues`."""
    for step in reversed(steps):
        if SHORT_COMMIT.fullmatch(step) or step in ("snapshots", "blobs", "/"):
            continue
        stem = step.removesuffix(".gguf").removesuffix(".safetensors")
        part = SHARD.fullmatch(step)
        stem = part["stem"] if part else stem
        stem = QUANTIZATION.sub("", stem).strip("-._ ")
        if len(stem) >= 3 and stem.lower() not in ("model", "ggml-model", "pytorch_model", "consolidated", "weights"):
            return stem
    return ""


def names(path: str) -> tuple[str, ...]:
    """The names of the files that a path stands for: all parts of a set; () of a folder, whose files its node knows."""
    name = PurePosixPath(path).name
    if SHARD.fullmatch(name):
        return shard_names(name)
    return (name,) if name.endswith((".gguf", ".safetensors")) else ()


def held(
    card: RepoCard, files: Mapping[str, int | None], digests: Mapping[str, str] | None = None
) -> tuple[str, ...] | None:
    """The paths in a repository of these files, by name with their sizes in bytes (None: not known); None: it is not their origin.

    Every file is there at the same size, all in one folder of the repository. Where no size is known nothing is proved. `digests`: SHA-256
    by name, as far as it is known here: where it is published as well, it must be the same.
    """
    digests = digests or {}
    if not files or all(size is None for size in files.values()):
        return None
    folders: dict[str, dict[str, str]] = {}
    for file in card.files:
        where = PurePosixPath(file.path)
        other = file.sha256 and digests.get(where.name, file.sha256) != file.sha256
        if where.name in files and files[where.name] in (None, file.size) and not other:
            folders.setdefault(str(where.parent), {})[where.name] = file.path
    for found in (folders[folder] for folder in sorted(folders)):
        if len(found) == len(files):
            return tuple(found[name] for name in sorted(files))
    return None


def checked(
    card: RepoCard, files: Mapping[str, int | None], digests: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """As `held`; raises Refused `origin_unproven`, `origin_differs`: which file is missing or has another size or checksum."""
    if not files or all(size is None for size in files.values()):
        text = (
            "the size of the files is not known yet, so no origin can be checked: wait until a node has reported them"
        )
        raise Refused(Kind.CONFLICT, "origin_unproven", text)
    found = held(card, files, digests)
    if found is not None:
        return found
    sizes: dict[str, list[int]] = {}
    for file in card.files:
        sizes.setdefault(file.name, []).append(file.size)
    wrong = []
    for name, size in sorted(files.items()):
        if name not in sizes:
            wrong.append(f"it has no file {name}")
        elif size is not None and size not in sizes[name]:
            wrong.append(f"{name} has {sizes[name][0]} bytes there and {size} here")
    if not wrong and held(card, files) is not None:
        wrong.append("a file of the same size has another SHA-256 there")
    why = "; ".join(wrong[:3]) or "the files lie in several folders of it"
    text = f"{card.id} at {card.commit[:12]} is not where these files come from: {why}"
    raise Refused(Kind.CONFLICT, "origin_differs", text, param="repository")


@dataclass(frozen=True, kw_only=True)
class Match:
    """A repository that has all files at their sizes. `named`: by the path, or by the commit that a folder is named after. `marks`:
    checksums of the files there, in the order of `paths`."""

    card: RepoCard
    paths: tuple[str, ...]
    named: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        by_path = {file.path: file.sha256 or file.blob for file in self.card.files}
        return tuple(by_path[path] for path in self.paths)


def origin_of(matches: Sequence[Match], name: str) -> Match | None:
    """Which of the repositories that have the files is their origin, the most downloaded first; None: there is none.

    1. the first that the path or its commit names
    2. the first, where all have the same files: the others copied them
    3. Refused `origin_ambiguous`: files of the same name and size that are others, as of models that were tuned from one
    """
    named = next((item for item in matches if item.named), None)
    if named is not None or not matches:  # 1
        return named
    if len({item.marks for item in matches}) == 1:  # 2
        return matches[0]
    where = ", ".join(item.card.id for item in matches[:5]) + (" and others" if len(matches) > 5 else "")
    text = f"several repositories have other files of that name and size ({where}): say which, `llmgw model origin {name} --repository OWNER/REPOSITORY`"
    raise Refused(Kind.CONFLICT, "origin_ambiguous", text, param="repository")  # 3


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A model, a version or an adapter whose origin nobody knows. `looked_at`: Unix seconds of the last search, 0: none; `code`: why it found nothing."""

    id: str
    looked_at: float = 0.0
    code: str = ""


def next_to_trace(models: Sequence[Missing], now: float) -> str | None:
    """The id of that whose turn it is; None: none.

    1. the registry answered nobody within TROUBLED: none
    2. never looked for: the first of these
    3. else the one that waits longest, after AGAIN where the search came to its end, after TROUBLED where it did not
    """
    if any(item.code in AWAY and now - item.looked_at < TROUBLED for item in models):  # 1
        return None
    due = [
        item
        for item in models
        if not item.looked_at or now - item.looked_at >= (AGAIN if item.code in SETTLED else TROUBLED)
    ]
    return min(due, key=lambda item: (item.looked_at, item.id)).id if due else None  # 2, 3
