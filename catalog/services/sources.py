"""Where a model comes from, looked at before anything is fetched: a repository, or plain addresses of files. Nothing is
written; what is found is the same for both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from django.conf import settings

from catalog.domain.cards import RepoCard
from catalog.domain.facts import ModelFacts
from catalog.domain.repository import FileSet, RepoFile, choose, choose_projector
from catalog.domain.sources import FromAddresses, FromRepository
from catalog.mirror.fetch import RANGE
from catalog.mirror.origins import FromAddresses as Addresses
from catalog.services import registry
from catalog.services.registry import Seen
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.outgoing import Guard

PAUSE = 5.0
NAMED = "these addresses"


def look(
    source: FromRepository | FromAddresses, *, quantization: str = "", file: str = "", format: str = ""
) -> tuple[Seen, tuple[FileSet, ...]]:
    """What there is, and the models of it that these words leave. Raises Refused: as `choose`, the registry or the addresses
    refuse; `repository_gated` also where only the files may not be read."""
    if isinstance(source, FromAddresses):
        with _opened(source) as origin:
            seen = origin.seen()
        return seen, choose(seen.sets, wanted=quantization, file=file, format=format)
    with registry.opened() as hub:
        seen = registry.seen(hub.card(source.repository, source.revision or "main"))
        found = choose(seen.sets, wanted=quantization, file=file, format=format)
        hub.check_access(seen.card.id, seen.card.commit, found[0].first.path)
    return seen, found


def shapes(
    source: FromRepository | FromAddresses,
    *,
    quantization: str = "",
    file: str = "",
    format: str = "",
    projector: str = "",
) -> tuple[Seen, tuple[tuple[FileSet, ModelFacts], ...]]:
    """As `look`, each model with its shape; `projector` as of `choose_projector`. Raises Refused."""
    if isinstance(source, FromRepository):
        return registry.shapes(
            source.repository, source.revision, quantization=quantization, file=file, format=format, projector=projector
        )
    with _opened(source) as origin:
        seen = origin.seen()
        chosen = choose(seen.sets, wanted=quantization, file=file, format=format)
        return seen, registry.read(origin, seen.card, chosen, registry.beside(seen, chosen, projector))


def projector(seen: Seen, chosen: FileSet, wanted: str) -> RepoFile | None:
    """As `choose_projector`, of what was seen. Raises Refused."""
    return choose_projector(seen.projectors, chosen, wanted)


class _Origin:
    """Plain addresses as the readers of headers want them."""

    def __init__(self, source: FromAddresses, addresses: Addresses) -> None:
        self._source, self._addresses = source, addresses

    def seen(self) -> Seen:
        files = tuple(
            RepoFile(path=item.name, size=self._size(item.name), sha256=item.sha256) for item in self._source.files
        )
        return registry.seen(RepoCard(id=NAMED, commit="", files=files))

    def _size(self, name: str) -> int:
        """Bytes of a file, by an answer to a request for its first. Raises Refused `address_failed`."""
        with self.opened(NAMED, "", name, start=0, end=1) as response:
            told = RANGE.fullmatch(response.headers.get("content-range", ""))
            text = told["total"] if response.status_code == 206 and told else response.headers.get("content-length", "")
        if not text.isascii() or not text.isdigit() or (response.status_code == 206 and not told):
            why = f"the server of {name} does not say how large it is: give an address whose server does"
            raise Refused(Kind.UPSTREAM, "address_failed", why)
        return int(text)

    @contextmanager
    def opened(
        self, repository: str, commit: str, path: str, *, start: int, end: int | None = None
    ) -> Iterator[httpx.Response]:
        reached = False
        try:
            with self._addresses.opened(path, start=start, end=end) as response:
                reached = True
                yield response
        except httpx.HTTPError as error:
            if reached:
                raise
            text = f"the server of {path} cannot be reached ({str(error)[:200] or type(error).__name__}): check the address"
            raise Refused(Kind.UPSTREAM, "address_failed", text, retry_after=PAUSE) from None


@contextmanager
def _opened(source: FromAddresses) -> Iterator[_Origin]:
    guard = Guard(private=settings.CONFIG.private_addresses)
    with Addresses(guard, {item.name: item.url for item in source.files}) as addresses:
        yield _Origin(source, addresses)
