"""Looks at adapters before they are taken: on this machine, or in a repository. The rules are `catalog.domain.adapters`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from catalog.domain import safetensors
from catalog.domain.adapters import CONFIG, WEIGHTS, AdapterFacts, gguf_adapter, peft_adapter
from catalog.domain.facts import model_facts
from catalog.domain.foreign import parsed
from catalog.domain.gguf import BadGguf, read_header
from catalog.domain.repository import FileSet, Format, RepoFile
from catalog.registry.client import Registry
from catalog.registry.ranges import RemoteFile
from catalog.services import registry, weights
from catalog.services.registry import MAX_CONFIG, Seen
from llmgw_site.lib.errors import Kind, Refused

SHOWN = 12
"""Files that a refusal names."""


def look(path: str) -> tuple[AdapterFacts, int]:
    """What the adapter at `path` on this machine says of itself, and its bytes. Raises Refused."""
    if Path(path).is_dir():
        return _look_folder(Path(path))
    header = weights.read(path)
    try:
        facts = model_facts(header)
    except BadGguf as error:
        raise Refused(Kind.INVALID, error.code, f"{path} was refused. {error.message}", param="path") from None
    return gguf_adapter(header, facts, what=path), header.file_size


def _look_folder(folder: Path) -> tuple[AdapterFacts, int]:
    config, name = None, CONFIG
    try:
        with weights.opened(str(folder / name)) as handle:
            config = _json(weights.OpenFile(handle).read(0, MAX_CONFIG))
        name = WEIGHTS
        with weights.opened(str(folder / name)) as handle:
            source = weights.OpenFile(handle)
            header = safetensors.read_header(source)
            size = source.size
    except (OSError, Refused):
        text = f"{folder} has no {name} that can be read: name the folder of a PEFT adapter"
        raise Refused(Kind.INVALID, "adapter_not_an_adapter", text, param="path") from None
    except safetensors.BadSafetensors as error:
        text = f"{folder / WEIGHTS} was refused. {error.message}"
        raise Refused(Kind.INVALID, error.code, text, param="path") from None
    return peft_adapter(config, header, what=str(folder)), size


def no_comma(path: str, param: str) -> None:
    """Raises Refused `invalid_value` of a path that llama.cpp would take for two."""
    if "," in path:
        text = f"{param}: {path} has a comma, which llama.cpp takes for the beginning of another file: rename it"
        raise Refused(Kind.INVALID, "invalid_value", text, param=param)


def find(
    repository: str, revision: str = "", *, file: str = "", formats: Sequence[Format]
) -> tuple[Seen, FileSet, AdapterFacts]:
    """The adapter of a repository in one of these formats. Raises Refused.

    1. `repository_has_no_adapter`   no file that could be one, in no format; or several, and the smallest of them is none
    2. `file_not_in_repository`      none of that name
    3. `adapter_wrong_format`        there are some, in another format only
    4. `adapter_file_needed`         several: one must be named
    5. `invalid_value`               its name has a comma
    """
    with registry.opened() as opened:
        card = opened.card(repository, revision or "main")
        candidates = _candidates(card.files)
        if not candidates:  # 1
            text = f"{card.id} has no .gguf file and no {CONFIG} with {WEIGHTS}: choose a repository of an adapter"
            raise Refused(Kind.INVALID, "repository_has_no_adapter", text, param="repository")
        if file:
            found = [item for item in candidates if file in (item.first.path, item.first.name)]
            if not found:  # 2
                text = f"{card.id} has no adapter {file}: it has {_listed(candidates)}"
                raise Refused(Kind.INVALID, "file_not_in_repository", text, param="file")
            candidates = found
        fitting = [item for item in candidates if item.format in formats]
        if not fitting:  # 3
            wants = "GGUF" if Format.GGUF in formats else f"{CONFIG} with {WEIGHTS}"
            text = f"{card.id} has {_listed(candidates)}, and the model's engine takes {wants}: choose a repository that has it"
            raise Refused(Kind.INVALID, "adapter_wrong_format", text, param="repository")
        if len(fitting) > 1:  # 4
            _refuse_models(opened, card.id, card.commit, fitting)
            text = f"{card.id} has several adapters, {_listed(fitting)}: name one (--file)"
            raise Refused(Kind.INVALID, "adapter_file_needed", text, param="file")
        chosen = fitting[0]
        no_comma(chosen.first.path, "file")
        opened.check_access(card.id, card.commit, chosen.first.path)
        what = f"{chosen.first.path} of {card.id}"
        facts = _facts(opened, card.id, card.commit, chosen, what)
    return Seen(card=card, sets=(), projectors=()), chosen, facts


def _refuse_models(opened: Registry, repository: str, commit: str, found: Sequence[FileSet]) -> None:
    """Where even the smallest of several files is no adapter these are a model's: an adapter is a small part of one."""
    smallest = min(found, key=lambda item: item.first.size or 0)
    opened.check_access(repository, commit, smallest.first.path)
    try:
        _facts(opened, repository, commit, smallest, smallest.first.path)
    except Refused as refused:
        if refused.code != "adapter_not_an_adapter":
            return  # an adapter that cannot be taken: which one is meant is for people to say
        text = f"{repository} is no repository of an adapter: {refused.message}. If one of its other files is meant, name it (--file)"
        raise Refused(Kind.INVALID, "repository_has_no_adapter", text, param="repository") from None


def _candidates(files: Sequence[RepoFile]) -> list[FileSet]:
    found = [
        FileSet(format=Format.GGUF, quantization="", weights=(file,))
        for file in sorted(files, key=lambda item: item.path)
        if file.path.endswith(".gguf")
    ]
    by_path = {file.path: file for file in files}
    if CONFIG in by_path and WEIGHTS in by_path:
        peft = FileSet(
            format=Format.SAFETENSORS, quantization="", weights=(by_path[WEIGHTS],), beside=(by_path[CONFIG],)
        )
        found.append(peft)
    return found


def _facts(opened: Registry, repository: str, commit: str, chosen: FileSet, what: str) -> AdapterFacts:
    remote = RemoteFile(opened, repository, commit, chosen.first.path, size=chosen.first.size)
    try:
        if chosen.format is Format.GGUF:
            header = read_header(remote)
            return gguf_adapter(header, model_facts(header), what=what)
        file = chosen.beside[0]
        data = RemoteFile(opened, repository, commit, file.path, size=min(file.size, MAX_CONFIG)).read(0, MAX_CONFIG)
        return peft_adapter(_json(data), safetensors.read_header(remote), what=what)
    except (BadGguf, safetensors.BadSafetensors) as error:
        raise Refused(Kind.INVALID, error.code, f"{what} was refused. {error.message}", param="file") from None


def _json(data: bytes) -> Any:
    try:
        return parsed(data)
    except ValueError:
        return None


def _listed(sets: Sequence[FileSet]) -> str:
    more = f" and {len(sets) - SHOWN} more" if len(sets) > SHOWN else ""
    return ", ".join(item.first.path for item in sets[:SHOWN]) + more
