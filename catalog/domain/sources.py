"""What a person names as the source of a model: a repository, plain addresses, a file of this machine. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from catalog.domain.cards import PATH, REPOSITORY, SHA256
from catalog.domain.facts import SHARD, shard_names
from llmgw_site.lib.addresses import bare
from llmgw_site.lib.errors import Kind, Refused

REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,199}")
MAX_ADDRESSES = 200
PAGES = frozenset({"huggingface.co", "www.huggingface.co", "hf.co"})


NEWEST = ("", "main")
"""Revisions that stand for what a repository has newest."""


@dataclass(frozen=True, kw_only=True)
class FromRepository:
    """A repository of the registry. `revision` "": the newest."""

    repository: str
    revision: str = ""


@dataclass(frozen=True, kw_only=True)
class Address:
    """A plain address of one file."""

    url: str
    name: str
    sha256: str


@dataclass(frozen=True, kw_only=True)
class FromAddresses:
    """Files that make one model, in order."""

    files: tuple[Address, ...]


@dataclass(frozen=True, kw_only=True)
class FromPath:
    """A file or folder that lies on the nodes already."""

    path: str


Source = FromRepository | FromAddresses | FromPath


def source(words: Sequence[str], checksums: Sequence[str] = (), *, registry: str = "") -> Source:
    """What these words name. `registry`: the address of the registry that is asked. Raises Refused:

    1. `source_missing`      nothing, or a mixture of kinds
    2. `source_is_a_page`    a repository's page: what to write instead
    3. `source_refused`      no repository, path or address of a file
    4. `checksum_missing`, `checksum_refused`  each plain address needs the SHA-256 of its file
    5. `weights_incomplete`  addresses that are some parts of a set
    """
    given = [word.strip() for word in words if word.strip()]
    addresses = [word for word in given if "://" in word]
    if not given or (addresses and len(addresses) != len(given)) or (not addresses and len(given) > 1):  # 1
        text = "name one repository (OWNER/REPOSITORY), one path of a file here, or one or more addresses of files"
        raise Refused(Kind.INVALID, "source_missing", text, param="source")
    if addresses:
        return _addresses(addresses, checksums, registry)
    if checksums and not given[0].startswith("/"):
        text = "a SHA-256 belongs to a path or an address: the files of a repository have theirs from the registry"
        raise Refused(Kind.INVALID, "checksum_refused", text, param="sha256")
    if given[0].startswith("/"):
        return FromPath(path=given[0])
    name, _, revision = given[0].partition("@")
    if not REPOSITORY.fullmatch(name) or (revision and (not REVISION.fullmatch(revision) or ".." in revision)):  # 3
        text = f"{given[0][:200]!r} is no repository: write OWNER/REPOSITORY or OWNER/REPOSITORY@REVISION; a file of this machine begins with /"
        raise Refused(Kind.INVALID, "source_refused", text, param="source")
    return FromRepository(repository=name, revision=revision)


def _addresses(urls: Sequence[str], checksums: Sequence[str], registry: str) -> FromAddresses:
    if len(urls) > MAX_ADDRESSES:
        raise Refused(
            Kind.INVALID, "source_refused", f"{len(urls)} addresses, more than {MAX_ADDRESSES}", param="source"
        )
    here = urlsplit(registry).netloc.lower()
    names = [_name(url, here) for url in urls]
    if len(set(names)) != len(names):
        text = f"two addresses end in one name ({next(name for name in names if names.count(name) > 1)}): the files lie in one folder"
        raise Refused(Kind.INVALID, "source_refused", text, param="source")
    if len(checksums) != len(urls):  # 4
        counted = "1 address" if len(urls) == 1 else f"{len(urls)} addresses"
        text = f"{counted} and {len(checksums) or 'no'} checksums: give the SHA-256 of each file, in the same order"
        raise Refused(Kind.INVALID, "checksum_missing", text, param="sha256")
    for value in checksums:
        if not SHA256.fullmatch(value.lower()):
            raise Refused(
                Kind.INVALID, "checksum_refused", f"{value[:80]!r} is no SHA-256: 64 hex digits", param="sha256"
            )
    _whole(names)
    files = [
        Address(url=url, name=name, sha256=value.lower())
        for url, name, value in zip(urls, names, checksums, strict=True)
    ]
    return FromAddresses(files=tuple(sorted(files, key=lambda file: file.name)))


def _name(url: str, registry: str) -> str:
    """The name of the file that an address leads to. `registry`: host and port of the registry; another port of that host may
    have plain files."""
    try:
        parts = urlsplit(url)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username or parts.password:
        text = f"{bare(url)[:120]} is no http or https address without a user: give one like https://host/file.gguf"
        raise Refused(Kind.INVALID, "source_refused", text, param="source")
    steps = [unquote(step) for step in parts.path.split("/") if step]
    if (parts.hostname in PAGES or parts.netloc.lower() == registry) and "resolve" not in steps:  # 2
        raise _page(url, steps)
    name = steps[-1] if steps else ""
    if not PATH.fullmatch(name) or not name.endswith((".gguf", ".safetensors", ".json", ".model", ".txt", ".jinja")):
        text = f"{bare(url)[:120]} does not end in a file's name like model.gguf: give the address of the file itself"
        raise Refused(Kind.INVALID, "source_refused", text, param="source")
    return name


def _page(url: str, steps: Sequence[str]) -> Refused:
    """A repository's page, or a file's page in it: what to write instead."""
    repository = "/".join(steps[:2])
    instead = f"write {repository}" if REPOSITORY.fullmatch(repository) else "write OWNER/REPOSITORY"
    if len(steps) > 3 and steps[2] in ("tree", "blob") and REVISION.fullmatch(steps[3]):
        instead += f"@{steps[3]}" if steps[3] != "main" else ""
        if steps[2] == "blob" and len(steps) > 4:
            instead += f" and --file {PurePosixPath(*steps[4:])}"
    text = f"{bare(url)[:120]} is a page for people, not a file: {instead}"
    return Refused(Kind.INVALID, "source_is_a_page", text, param="source")


def _whole(names: Sequence[str]) -> None:
    """That of a set of parts all are named."""
    for name in names:
        if SHARD.fullmatch(name) and (missing := [part for part in shard_names(name) if part not in names]):  # 5
            text = f"{name} is one of several parts: the addresses of {', '.join(missing[:5])} are missing"
            raise Refused(Kind.INVALID, "weights_incomplete", text, param="source")
