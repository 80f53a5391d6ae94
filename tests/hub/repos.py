"""Repositories of the test hub: commits with files, as git and LFS would keep them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

LFS_FROM = 10_000
"""Bytes from which a file is kept as LFS, with a SHA-256; the hub itself decides by name and by 10 MB."""


@dataclass(frozen=True)
class File:
    """One file: its bytes, or the file on disk that has them."""

    content: bytes | Path

    @cached_property
    def size(self) -> int:
        return self.content.stat().st_size if isinstance(self.content, Path) else len(self.content)

    @property
    def lfs(self) -> bool:
        return self.size >= LFS_FROM

    @cached_property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        if isinstance(self.content, bytes):
            digest.update(self.content)
        else:
            with self.content.open("rb") as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
        return digest.hexdigest()

    @cached_property
    def pointer(self) -> bytes:
        """What git keeps of an LFS file (git-lfs specification, pointer files)."""
        return f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {self.size}\n".encode()

    @cached_property
    def blob(self) -> str:
        """The git blob id of what git keeps: SHA-1 over "blob", the size, a zero byte and the content."""
        kept = self.pointer if self.lfs or isinstance(self.content, Path) else self.content
        return hashlib.sha1(b"blob %d\0" % len(kept) + kept).hexdigest()

    def read(self, start: int, count: int) -> bytes:
        if isinstance(self.content, bytes):
            return self.content[start : start + count]
        with self.content.open("rb") as file:
            file.seek(start)
            return file.read(count)


@dataclass
class Repo:
    """A model repository. `commits` from the oldest to the newest; `main` is the newest."""

    id: str
    commits: dict[str, dict[str, File]] = field(default_factory=dict)
    gated: bool | str = False
    private: bool = False
    disabled: bool = False
    granted: frozenset[str] = frozenset()
    """Tokens whose accounts may read a gated or private repository."""
    tags: tuple[str, ...] = ()
    pipeline_tag: str = "text-generation"
    library_name: str = ""
    license: str = "apache-2.0"
    base_model: str = ""
    relation: str = ""
    """To the base model: quantized, adapter, finetune."""
    downloads: int = 0
    likes: int = 0
    last_modified: str = "2026-01-02T03:04:05.000Z"
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, files: Mapping[str, bytes | Path]) -> str:
        """A new commit with these files and no others. Gives its id."""
        made = {path: File(content) for path, content in files.items()}
        listing = "\n".join(f"{file.blob} {path}" for path, file in sorted(made.items()))
        name = hashlib.sha1(f"{self.id} {len(self.commits)}\n{listing}".encode()).hexdigest()
        self.commits[name] = made
        return name

    @property
    def head(self) -> str:
        return next(reversed(self.commits))

    def resolve(self, revision: str) -> str | None:
        """The commit that a branch, a full id or the beginning of one names."""
        if revision == "main":
            return self.head
        if revision in self.branches:
            return self.branches[revision]
        found = [name for name in self.commits if len(revision) >= 7 and name.startswith(revision)]
        return found[0] if len(found) == 1 else None

    @property
    def all_tags(self) -> list[str]:
        files = self.commits[self.head]
        tags = [*self.tags]
        tags += ["gguf"] if any(path.endswith(".gguf") for path in files) else []
        tags += ["safetensors"] if any(path.endswith(".safetensors") for path in files) else []
        if self.base_model:
            tags += [f"base_model:{self.base_model}"]
            tags += [f"base_model:{self.relation}:{self.base_model}"] if self.relation else []
        return [*tags, f"license:{self.license}"]
