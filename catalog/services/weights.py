"""Looks at weights on this machine: is the file there, whole, and what it says of itself.

Opens regular files only, for reading, without waiting on pipes; reads the header, never the data. The rules are
`catalog.domain.gguf` and `catalog.domain.facts`; this is their hand.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from catalog.domain.facts import ModelFacts, model_facts, shard_names
from catalog.domain.foreign import parsed
from catalog.domain.gguf import BadGguf, Header, read_header
from catalog.domain.hf_config import config_facts
from llmgw_site.lib.errors import Kind, Refused

MAGIC = b"GGUF"
MAX_CONFIG = 4 << 20
"""Bytes of a config.json."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was found. `files` has all shards, `size` their bytes together."""

    path: str
    files: tuple[str, ...]
    size: int
    facts: ModelFacts


class OpenFile:
    """A `Source` over an open file; holds nothing but its number and size."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.size = os.fstat(handle).st_size

    def read(self, offset: int, count: int) -> bytes:
        pieces = []
        while count > 0:
            piece = os.pread(self._handle, count, offset)
            if not piece:
                break
            pieces.append(piece)
            offset += len(piece)
            count -= len(piece)
        return b"".join(pieces)


def look(path: str) -> Look:
    """Read the header of the model at `path` (the first shard, if it has several). Raises Refused."""
    header = read(path)
    folder, name = Path(path).parent, Path(path).name
    try:
        facts = model_facts(header, file_name=name)
    except BadGguf as error:
        raise _refused(path, error) from None
    if facts.kind != "model":
        raise Refused(
            Kind.INVALID,
            "weights_not_a_model",
            f"{path} is a GGUF file of kind {facts.kind}, which cannot answer by itself: name the model's own file.",
            param="weights_path",
        )
    if not facts.architecture:
        raise Refused(
            Kind.INVALID,
            "weights_not_a_model",
            f"{path} is a GGUF file that names no architecture, so that no engine can run it: convert the model anew.",
            param="weights_path",
        )
    if facts.split is None:
        return Look(path=path, files=(path,), size=header.file_size, facts=facts)
    if facts.split.number != 1:
        first = shard_names(name)[0]
        raise Refused(
            Kind.INVALID,
            "weights_not_first_shard",
            f"{path} is part {facts.split.number} of {facts.split.count}: name the first part ({first}).",
            param="weights_path",
        )
    files = tuple(str(folder / shard) for shard in shard_names(name))
    if len(files) != facts.split.count:
        raise Refused(
            Kind.INVALID,
            "weights_incomplete",
            f"{path} is one of {facts.split.count} parts but is not named like one (NAME-00001-of-{facts.split.count:05d}"
            ".gguf): give all parts their own names.",
            param="weights_path",
        )
    rest = [read(file) for file in files[1:]]
    return Look(path=path, files=files, size=header.file_size + sum(item.file_size for item in rest), facts=facts)


def look_folder(path: str) -> Look:
    """Read config.json of the model in the folder `path`, and count its weights. Raises Refused.

    1. `weights_incomplete`    no config.json that can be read, or no *.safetensors
    """
    config = None
    with contextlib.suppress(Refused, ValueError), opened(f"{path}/config.json") as handle:
        read = OpenFile(handle).read(0, MAX_CONFIG + 1)
        config = parsed(read) if len(read) <= MAX_CONFIG else None
    files = sorted(str(file) for file in Path(path).glob("*.safetensors"))
    if not isinstance(config, dict) or not files:
        what = "config.json that can be read" if not isinstance(config, dict) else "file *.safetensors"
        text = f"{path} is a folder without a {what}: name the folder of a whole model, or a .gguf file."
        raise Refused(Kind.INVALID, "weights_incomplete", text, param="weights_path")
    size = sum(Path(file).stat().st_size for file in files)
    return Look(path=path, files=tuple(files), size=size, facts=config_facts(config, size=size))


def is_here(path: str) -> bool:
    """Whether this machine has something at `path`."""
    return os.path.exists(path)  # noqa: PTH110 - a text that came from a caller, not a Path


def begin(path: str) -> None:
    """Refuse a file that does not begin as GGUF does: four bytes tell, before anything is done with the rest."""
    with opened(path) as handle:
        if os.pread(handle, len(MAGIC), 0) != MAGIC:
            raise _refused(path, BadGguf("gguf_not_gguf", "It does not begin with GGUF: it is no GGUF file."))


def read(path: str) -> Header:
    """The GGUF header of one file. Raises Refused."""
    with opened(path) as handle:
        try:
            return read_header(OpenFile(handle))
        except BadGguf as error:
            raise _refused(path, error) from None
        except OSError as error:
            raise Refused(
                Kind.INVALID, "weights_unreadable", f"{path} cannot be read ({error.strerror}).", param="weights_path"
            ) from None


@contextmanager
def opened(path: str) -> Iterator[int]:
    """A regular file, for reading; nothing waits for a pipe. Raises Refused."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        raise Refused(
            Kind.INVALID,
            "weights_missing" if missing else "weights_unreadable",
            f"There is no file {path} on this machine: name one that is there."
            if missing
            else f"{path} cannot be opened ({getattr(error, 'strerror', error)}).",
            param="weights_path",
        ) from None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Refused(
                Kind.INVALID,
                "weights_not_a_file",
                f"{path} is no regular file: name a .gguf file.",
                param="weights_path",
            )
        yield handle
    finally:
        os.close(handle)


def _refused(path: str, error: BadGguf) -> Refused:
    return Refused(Kind.INVALID, error.code, f"{path} was refused. {error.message}", param="weights_path")
