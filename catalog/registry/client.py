"""Asks a registry: search, one repository, whether its files may be read, and parts of files.

API: Hugging Face Hub (`hf_api.py`, `file_download.py` of huggingface_hub). The token goes to the registry's own host and to no
other; every request, redirects included, passes the guard. Answers are bounded in bytes and in time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from catalog.domain.cards import REPOSITORY, RepoCard, repo_card
from catalog.domain.foreign import TooMany, parsed
from catalog.registry.answers import refused
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.outgoing import Guard, GuardedTransport
from llmgw_site.lib.units import MIB, format_bytes

ENDPOINT = "https://huggingface.co"
MAX_ANSWER = 5 * MIB
"""What a repository of 15,000 files takes, and some. What is made of an answer takes many times as much."""
DEADLINE = 60.0
"""Seconds for one question, its answer read."""
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
PAUSE = 5.0
MAX_REDIRECTS = 5
SORTS = ("downloads", "likes", "lastModified", "trendingScore")
PAGE = 30
MOST = 100
FORMATS = ("gguf", "safetensors")
USER_AGENT = "llmgw"


@dataclass(frozen=True, kw_only=True)
class Page:
    """A part of a list; `after`: what gets the next part, "" where there is none."""

    repositories: tuple[RepoCard, ...]
    after: str = ""


class Registry:
    """One registry. Close it, or use it in a `with`."""

    def __init__(self, *, guard: Guard, endpoint: str = "", token: str = "") -> None:
        self.endpoint = (endpoint or ENDPOINT).rstrip("/")
        self._token = token
        self._http = httpx.Client(
            transport=GuardedTransport(guard),
            timeout=TIMEOUT,
            trust_env=False,  # the guard minds the proxies, and no .netrc sends passwords about
            headers={"User-Agent": USER_AGENT, "Accept-Encoding": "identity"},
        )

    def __enter__(self) -> Registry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._http.close()

    def search(
        self,
        *,
        text: str = "",
        format: str = "",
        adapters_of: str = "",
        sort: str = "downloads",
        limit: int = PAGE,
        after: str = "",
    ) -> Page:
        """Repositories with these words in their names, best first. `after`: from the page before."""
        if after:
            url = self._next(after)
        else:
            filters = [item for item in (format, f"base_model:adapter:{adapters_of}" if adapters_of else "") if item]
            asked: list[tuple[str, str | int]] = [("search", text)] if text else []
            asked += [("filter", item) for item in filters]
            asked += [("sort", sort), ("direction", -1), ("limit", max(1, min(limit, MOST)))]
            url = str(httpx.URL(f"{self.endpoint}/api/models", params=asked))
        answer, links = self._json(url, repository="the list of models")
        if not isinstance(answer, list):
            raise _bad(url, "a list was expected")
        found = tuple(repo_card(item) for item in answer if isinstance(item, Mapping) and _named(item))
        return Page(repositories=found, after=self._cursor(links))

    def card(self, repository: str, revision: str = "main") -> RepoCard:
        """One repository at a revision, its commit pinned and its files with sizes and hashes."""
        _checked(repository)
        url = f"{self.endpoint}/api/models/{repository}/revision/{quote(revision, safe='')}?blobs=true"
        answer, _ = self._json(url, repository=repository, what=revision)
        card = repo_card(answer)
        if not card.commit:
            raise _bad(url, "it names no commit")
        return card

    def check_access(self, repository: str, commit: str, path: str) -> None:
        """Whether the files may be read, asked before anything large is queued: gated repositories still answer `card`."""
        with self._asked("HEAD", self.file_url(repository, commit, path)) as response:
            if response.status_code >= 400:
                raise self._refused(response, repository=repository, what=path)

    def file_url(self, repository: str, commit: str, path: str) -> str:
        return f"{self.endpoint}/{repository}/resolve/{commit}/{quote(path)}"

    def headers(self, url: str) -> dict[str, str]:
        """What a request for `url` carries: the token where it is the registry's own host."""
        own = _origin(url) == _origin(self.endpoint)
        return {"Authorization": f"Bearer {self._token}"} if own and self._token else {}

    @contextmanager
    def opened(
        self, repository: str, commit: str, path: str, *, start: int, end: int | None = None
    ) -> Iterator[httpx.Response]:
        """A file's bytes from `start` to before `end`, redirects followed: 200 where the server ignores ranges, 206, 416.

        The whole file (`start` 0, no `end`) is asked for without a range.
        """
        whole = start == 0 and end is None
        asked = {} if whole else {"Range": f"bytes={start}-{'' if end is None else end - 1}"}
        with self._asked("GET", self.file_url(repository, commit, path), headers=asked) as response:
            if response.status_code >= 400 and response.status_code != 416:
                raise self._refused(response, repository=repository, what=path)
            yield response

    def _json(self, url: str, *, repository: str, what: str = "") -> tuple[Any, Mapping[Any, Any]]:
        deadline = time.monotonic() + DEADLINE
        with self._asked("GET", url) as response:
            if response.status_code != 200:
                raise self._refused(response, repository=repository, what=what)
            answer = bytearray()
            try:
                for piece in response.iter_raw():
                    answer += piece
                    if len(answer) > MAX_ANSWER:
                        raise _bad(url, f"it is longer than {format_bytes(MAX_ANSWER)}")
                    if time.monotonic() > deadline:
                        raise _unreachable(url, f"no whole answer within {DEADLINE:.0f} s")
            except httpx.HTTPError as error:
                raise _unreachable(url, str(error)) from None
        try:
            return parsed(answer), response.links
        except TooMany as error:
            raise _bad(url, str(error)) from None
        except ValueError as error:
            why = f"{error} (a sign-in page of the network, or an address that is no registry's)"
            raise _bad(url, why) from None

    @contextmanager
    def _asked(self, method: str, url: str, *, headers: Mapping[str, str] | None = None) -> Iterator[httpx.Response]:
        """The last answer after redirects. Each step gets the token only if it is the registry's own host."""
        for _ in range(MAX_REDIRECTS + 1):
            request = self._http.build_request(method, url, headers={**(headers or {}), **self.headers(url)})
            try:
                response = self._http.send(request, stream=True)
            except httpx.HTTPError as error:
                if "location header" in str(error):  # httpx reads it, though nobody follows it
                    raise _bad(url, "it leads to an address that is none") from None
                raise _unreachable(url, str(error) or type(error).__name__) from None
            try:
                if not response.has_redirect_location:
                    yield response
                    return
            finally:
                response.close()
            url = _led_to(response)
        raise _bad(url, f"it leads on more than {MAX_REDIRECTS} times")

    def _refused(self, response: httpx.Response, *, repository: str, what: str) -> Refused:
        page = f"{self.endpoint}/{repository}"
        return refused(response, repository=repository, page=page, token=bool(self._token), what=what)

    def _cursor(self, links: Mapping[Any, Any]) -> str:
        """The query of the next page; an address on another host is no next page."""
        try:
            found = urlsplit(str(links.get("next", {}).get("url", "")))
        except ValueError:  # brackets that are no address's
            return ""
        return found.query if found.path.endswith("/api/models") else ""

    def _next(self, after: str) -> str:
        if not after.isascii() or not after.isprintable():
            raise Refused(Kind.INVALID, "invalid_value", "after: give it as the page before had it.", param="after")
        return f"{self.endpoint}/api/models?{after}"


def _checked(repository: str) -> None:
    if not REPOSITORY.fullmatch(repository):
        text = (
            f"{repository[:200]!r} is no repository: write OWNER/REPOSITORY, as in HuggingFaceTB/SmolLM2-135M-Instruct"
        )
        raise Refused(Kind.INVALID, "repository_name_bad", text, param="repository")


def _named(item: Mapping[str, Any]) -> bool:
    """Whether a list's item has a name that can be asked for: a few very old models have no owner."""
    return isinstance(item.get("id"), str) and REPOSITORY.fullmatch(item["id"]) is not None


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _led_to(response: httpx.Response) -> str:
    """Where a redirect leads. Raises Refused `registry_answer_bad`."""
    try:
        url = str(response.url.join(response.headers["location"]))
        _origin(url)
    except (httpx.InvalidURL, ValueError):  # a port that is none
        raise _bad(str(response.url), "it leads to an address that is none") from None
    return url


def _host(url: str) -> str:
    """For people, in 100 characters at most: an answer may name what it likes."""
    return (urlsplit(url).netloc or url)[:100]


def _bad(url: str, why: str) -> Refused:
    text = f"the answer of {_host(url)} was refused: {why}; check HF_ENDPOINT"
    return Refused(Kind.UPSTREAM, "registry_answer_bad", text)


def _unreachable(url: str, why: str) -> Refused:
    text = f"{_host(url)} cannot be reached ({why[:200]}): check this machine's network, HF_ENDPOINT and its proxy"
    return Refused(Kind.UPSTREAM, "registry_unreachable", text, retry_after=PAUSE)
