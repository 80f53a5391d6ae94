"""Where the files of a version come from: a registry, or plain addresses. Other nodes are the agent's own business."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import httpx

from catalog.domain.manifests import Manifest
from catalog.registry.client import MAX_REDIRECTS, TIMEOUT, USER_AGENT, Registry
from llmgw_site.lib.addresses import bare
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.outgoing import Guard, GuardedTransport, shown

BUSY = frozenset({408, 429, 500, 502, 503, 504})
PAUSE = 2.0


class FromRegistry:
    """The files of one commit. Each request asks the registry anew, so a signed address that expired is of no account."""

    def __init__(self, registry: Registry, manifest: Manifest) -> None:
        self._registry, self._manifest = registry, manifest

    def opened(self, path: str, *, start: int, end: int | None) -> AbstractContextManager[httpx.Response]:
        return self._registry.opened(self._manifest.repository, self._manifest.commit, path, start=start, end=end)


class FromAddresses:
    """Files that lie at plain addresses. Nobody's token is sent. Close it, or use it in a `with`."""

    def __init__(self, guard: Guard, addresses: Mapping[str, str]) -> None:
        self._addresses = addresses
        self._http = httpx.Client(
            transport=GuardedTransport(guard), timeout=TIMEOUT, trust_env=False, follow_redirects=True,
            max_redirects=MAX_REDIRECTS, headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        )  # fmt: skip

    def __enter__(self) -> FromAddresses:
        return self

    def __exit__(self, *exception: object) -> None:
        self._http.close()

    @contextmanager
    def opened(self, path: str, *, start: int, end: int | None) -> Iterator[httpx.Response]:
        """Raises Refused: `address_refused` and its kin, `file_unknown`, `address_failed`; httpx.HTTPError where it breaks."""
        url = self._addresses.get(path, "")
        if not url:
            raise Refused(Kind.NOT_FOUND, "file_unknown", f"no address of {path} is known")
        asked = {"Range": f"bytes={start}-{'' if end is None else end - 1}"} if start or end is not None else {}
        try:
            with self._http.stream("GET", url, headers=asked) as response:
                if response.status_code >= 400 and response.status_code != 416:
                    raise _refused(response)
                yield response
        except (httpx.TooManyRedirects, httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
            text = f"{bare(url)[:300]} leads nowhere ({error}): give the address of the file itself"
            raise Refused(Kind.UPSTREAM, "address_failed", text) from None


def _refused(response: httpx.Response) -> Refused:
    """An answer that is no file: one that time may cure, or one that no waiting helps."""
    where, status = shown(response.url), response.status_code
    if status in BUSY:
        text = f"{where} failed for the moment (HTTP {status}): it is asked again"
        return Refused(Kind.UPSTREAM, "address_failed", text, retry_after=PAUSE)
    if status in (401, 403):
        text = f"{where} asks who is there (HTTP {status}), and llmgw sends nobody's token to plain addresses: name the repository instead"
        return Refused(Kind.FORBIDDEN, "address_failed", text)
    return Refused(Kind.NOT_FOUND, "address_failed", f"there is no file at {where} (HTTP {status}): check the address")
