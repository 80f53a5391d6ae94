"""What a registry tells of repositories: its JSON to values. Data from strangers: what is of another type is not known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from catalog.domain.foreign import plain
from catalog.domain.repository import MAX_FILES, RepoFile
from llmgw_site.lib.errors import Kind, Refused

REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}/[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256 = re.compile(r"[0-9a-f]{64}")
PATH = re.compile(r"(?!/)(?:(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f\\]+(?:/(?=.)|\Z))+")
MAX_PATH = 500


@dataclass(frozen=True, kw_only=True)
class RepoCard:
    """One repository. `gated`: "" | auto | manual. `files` of the commit; () in a list of search results."""

    id: str
    commit: str
    gated: str = ""
    private: bool = False
    license: str = ""
    tags: tuple[str, ...] = ()
    task: str = ""
    library: str = ""
    base_models: tuple[str, ...] = ()
    downloads: int | None = None
    likes: int | None = None
    changed: str = ""  # as the registry writes the time, ISO 8601
    files: tuple[RepoFile, ...] = ()

    @property
    def formats(self) -> tuple[str, ...]:
        return tuple(item for item in ("gguf", "safetensors") if item in self.tags)

    @property
    def adapter(self) -> bool:
        return any(tag.startswith("base_model:adapter:") for tag in self.tags)


def same_commit(one: str, other: str) -> bool:
    """Whether two commits are the same, one of them maybe shortened (to 7 digits or more)."""
    short, long = sorted((one.lower(), other.lower()), key=len)
    return len(short) >= 7 and long.startswith(short)


def repo_card(data: Any) -> RepoCard:
    """A repository as the registry describes it (`/api/models/ID`, or one item of a list).

    Raises Refused `registry_answer_bad`: no repository's name; a commit that is none; a file whose path leads elsewhere.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("id"), str) or not REPOSITORY.fullmatch(data["id"]):
        raise _bad("it describes no repository")
    commit = data.get("sha")
    if commit is not None and (not isinstance(commit, str) or not COMMIT.fullmatch(commit)):
        raise _bad(f"the commit of {data['id']} is none")
    card, gated = data.get("cardData"), data.get("gated")
    card = card if isinstance(card, Mapping) else {}
    files = data.get("siblings")
    if isinstance(files, list) and len(files) > MAX_FILES:
        raise _bad(f"{data['id']} has {len(files)} files, more than {MAX_FILES}")
    return RepoCard(
        id=data["id"],
        commit=commit or "",
        gated="manual" if gated is True else plain(gated, 20),
        private=data.get("private") is True,
        license=_license(card, tags := _texts(data.get("tags"))),
        tags=tags,
        task=_text(data.get("pipeline_tag")),
        library=_text(data.get("library_name")),
        base_models=_texts(card.get("base_model")),
        downloads=_count(data.get("downloads")),
        likes=_count(data.get("likes")),
        changed=_text(data.get("lastModified")),
        files=tuple(_file(item, data["id"]) for item in files) if isinstance(files, list) else (),
    )


def _file(data: Any, repo: str) -> RepoFile:
    path = data.get("rfilename") if isinstance(data, Mapping) else None
    if not isinstance(path, str) or len(path) > MAX_PATH or not PATH.fullmatch(path):
        shown = repr(path[:80]) if isinstance(path, str) else "without a name"
        raise _bad(f"{repo} names a file {shown}, which is no path in a repository")
    lfs = data.get("lfs")
    sha256 = _text(lfs.get("sha256")) if isinstance(lfs, Mapping) else ""
    if sha256 and not SHA256.fullmatch(sha256):
        raise _bad(f"the SHA-256 of {path[:80]} in {repo} is none")
    size, blob = _count(data.get("size")), _text(data.get("blobId"))
    return RepoFile(path=path, size=size or 0, sha256=sha256, blob=blob if COMMIT.fullmatch(blob) else "")


def _license(card: Mapping[str, Any], tags: tuple[str, ...]) -> str:
    stated = card.get("license")
    if isinstance(stated, list):
        stated = stated[0] if stated else ""
    tagged = next((tag.removeprefix("license:") for tag in tags if tag.startswith("license:")), "")
    return _text(stated) or tagged


def _text(value: Any) -> str:
    return plain(value, 200)


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        return (plain(value, 200),)
    return tuple(plain(item, 200) for item in value[:500] if isinstance(item, str)) if isinstance(value, list) else ()


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 60 else None


def _bad(why: str) -> Refused:
    return Refused(Kind.UPSTREAM, "registry_answer_bad", f"the registry's answer was refused: {why}")
