"""A registry that answers anything: status, headers and bodies of strangers, given to the real client of registries."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import httpx

from catalog.domain.spans import Span
from catalog.mirror.fetch import RangesIgnored, Wanted, _checked
from catalog.registry.client import Registry
from catalog.registry.ranges import RemoteFile
from llmgw_site.lib.outgoing import Guard
from tests.catalog.domain.hostile_seeds import CARD, damaged, odd

HOST = "https://hub.test"
STATUS = (200, 200, 200, 200, 206, 206, 204, 301, 302, 307, 400, 401, 403, 404, 416, 429, 500, 503)
_FIGURE = (b"5", b"0", b"-1", b"1e9", b"9" * 25, b"9" * 5000, b"", b"x", b"\xb2")
HEADERS = {
    b"location": (b"/elsewhere", HOST.encode() + b"/api", b"http://[", b"//", b"https://other.test:99999/", b"ftp://x/", b"\xff", b"",
                  b"https://" + b"a" * 5000),
    b"link": (b"<%s/api/models?cursor=2>; rel=\"next\"" % HOST.encode(), b"<http://[>; rel=\"next\"", b"<>; rel=next", b"rel=next",
              b"<\xff>; rel=\"next\"", b"," * 30_000),
    b"x-error-code": (b"GatedRepo", b"RevisionNotFound", b"EntryNotFound", b"RepoNotFound", b"?"),
    b"x-error-message": (b"Invalid credentials in Authorization header", b"Access to this resource is disabled.", b"\xe9\x85",
                         b"m" * 5000, b"a\tb"),
    b"ratelimit": (b'"api";r=0;t=55', b'"api";t=' + b"9" * 5000, b"t=1", b";" * 30_000, b"\"" * 30_000),
    b"retry-after": _FIGURE,
    b"content-range": (b"bytes 0-99/100", b"bytes 0-99/*", b"bytes 0-" + b"9" * 5000 + b"/1", b"bytes 9-3/100", b"x"),
    b"content-length": _FIGURE,
    b"content-encoding": (b"gzip", b"identity"),
}  # fmt: skip


class Answers:
    """One registry, whose every answer is the next throw of the dice."""

    def __init__(self) -> None:
        self.registry = Registry(guard=Guard(private=False), endpoint=HOST, token="t")
        self.registry._http = httpx.Client(transport=httpx.MockTransport(self._answer), trust_env=False)
        self._dice = random.Random(0)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        dice = self._dice
        headers = [
            (name, dice.choice(values))
            for name, values in HEADERS.items()
            if dice.random() < (0.5 if name == b"content-range" else 0.2)
        ]
        body: Any = CARD if "/revision/" in request.url.path else [CARD, {"id": "old"}, CARD]
        text = json.dumps(body).encode() if dice.random() < 0.3 else odd(dice, body)
        text = damaged(dice, text) if dice.random() < 0.1 else text
        return httpx.Response(dice.choice(STATUS), headers=headers, stream=httpx.ByteStream(text))

    def ask(self, dice: random.Random) -> None:
        self._dice = dice
        kind = dice.randrange(5)
        if kind == 0:
            found = self.registry.search(text="x")
            if found.after:
                self.registry.search(after=found.after)
        elif kind == 1:
            self.registry.card("org/name")
        elif kind == 2:
            self.registry.check_access("org/name", "b" * 40, "m.gguf")
        elif kind == 3:
            RemoteFile(self.registry, "org/name", "b" * 40, "m.gguf", size=100).read(0, 50)
        else:
            span = dice.choice((None, Span(0, 100)))
            end = span and span.end
            with (
                self.registry.opened("org/name", "b" * 40, "m.gguf", start=0, end=end) as answer,
                suppress(RangesIgnored, httpx.HTTPError),
            ):
                list(_checked(answer, Wanted(path="m.gguf", size=100), span))
