"""Weights that shall be kept here, whether or not a model serves them yet."""

from __future__ import annotations

from collections.abc import Sequence

from django.conf import settings

from catalog.domain import sources as words
from catalog.domain.manifests import ManifestFile
from catalog.domain.repository import Format
from catalog.domain.sources import FromAddresses, FromPath
from catalog.models import Version
from catalog.services import sources, versions
from llmgw_site.lib.errors import Kind, Refused


def add(
    *, actor: str, source: Sequence[str], checksums: Sequence[str] = (), quantization: str = "", file: str = "", format: str = "",
    projector: str = "auto",
) -> Version:  # fmt: skip
    """Have a data node fetch one model's files; the version that is there already where it is the same.

    Raises Refused: as the source is refused; `source_not_fetched` for a path; `several_models` where the words leave more than one.
    """
    where = words.source(source, checksums, registry=settings.CONFIG.registry)
    if isinstance(where, FromPath):
        text = f"{where.path} is a file of a machine, which is not fetched: name a repository or addresses"
        raise Refused(Kind.INVALID, "source_not_fetched", text, param="source")
    seen, found = sources.look(where, quantization=quantization, file=file, format=format)
    if len(found) > 1:
        names = ", ".join(dict.fromkeys(item.quantization or item.format.value for item in found[:20]))
        text = f"it has {len(found)} models ({names}): name one by its quantization or file"
        raise Refused(Kind.INVALID, "several_models", text, param="quantization")
    (chosen,) = found
    beside = sources.projector(seen, chosen, projector)
    named = beside.path if beside else "none"
    seen, ((files, facts),) = sources.shapes(where, file=chosen.first.path, format=chosen.format.value, projector=named)
    if not isinstance(where, FromAddresses):
        return versions.make(seen, files, facts, beside, actor=actor)
    urls = {item.name: item.url for item in where.files}
    every = [*files.files, *([beside] if beside else [])]
    return versions.keep(
        actor=actor,
        format=files.format,
        files=[ManifestFile(path=item.path, size=item.size, sha256=item.sha256, url=urls[item.path]) for item in every],
        first=files.first.path if files.format is Format.GGUF else "",
        facts=facts,
        quantization=facts.quantization or files.quantization,
        projector=beside.path if beside else "",
    )
