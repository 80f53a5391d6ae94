"""A version in a node's store, as a fetch would have left it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from catalog.domain.manifests import Manifest, ManifestFile
from catalog.domain.repository import Format
from llmgw_site.lib.files import write_json

VERSION = "ver_0000000001"


def manifest_of(content: Mapping[str, bytes], *, version: str = VERSION, first: str = "") -> Manifest:
    """A list of these files, with their checksums."""
    files = tuple(
        ManifestFile(path=path, size=len(data), sha256=hashlib.sha256(data).hexdigest())
        for path, data in content.items()
    )
    return Manifest(id=version, format=Format.GGUF, first=first or next(iter(content)), files=files)


def put(root: Path, content: Mapping[str, bytes], *, version: str = VERSION, whole: bool = True) -> Manifest:
    """Write a version below `root`; the first file is what an engine gets."""
    manifest = manifest_of(content, version=version)
    folder = root / version
    for path, data in content.items():
        (folder / "files" / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / "files" / path).write_bytes(data)
    write_json(folder / "manifest.json", manifest.as_dict())
    if whole:
        (folder / "whole").touch()
    return manifest


def put_hollow(root: Path, size: int, *, version: str = VERSION) -> Manifest:
    """One file of so many zero bytes that takes no room; its checksum is invented."""
    put(root, {"m.gguf": b""}, version=version)
    folder = root / version
    with (folder / "files" / "m.gguf").open("r+b") as file:
        file.truncate(size)
    files = (ManifestFile(path="m.gguf", size=size, sha256="0" * 64),)
    manifest = Manifest(id=version, format=Format.GGUF, first="m.gguf", files=files)
    write_json(folder / "manifest.json", manifest.as_dict())
    return manifest
