"""Limits of a key and of the scopes above it: what counts, when there is room again, and what a client is told.

A minute slides. What was taken is kept by whole seconds, and a second leaves as a whole, a minute after its end: so no
minute holds more than the limit, wherever one begins, and at most a second more than a minute passes until there is room.
Times are seconds on one steady clock; amounts are whole numbers.

Several edges count together by leases (leases.py). An edge that no controller counts for works on its share (`share`).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cluster.domain.leasing import MINUTE, PARALLEL, REQUESTS, TOKENS
from llmgw_site.lib.errors import Kind, Refused
from routing.domain.endpoints import (
    CHAT,
    COMPLETIONS,
    COUNT_TOKENS,
    DETOKENIZE,
    ENDPOINTS,
    MESSAGES,
    RESPONSES,
    TOKENIZE,
)
from routing.domain.tenancy import KEY, Bound

SPAN = MINUTE

OUTPUT = 1024
"""Tokens that an answer is reckoned to have whose request names no bound; what it has more counts when it is over."""
BYTES_PER_TOKEN = 4
"""Of a request's body: a little less than texts have, which JSON makes up for. The true count replaces it in the end."""
PICTURE = 1000
"""Tokens that a picture or a sound in the body is reckoned to have, whatever its bytes."""
ENCODED = 4096
"""Bytes of a string without a space beyond which it is taken for one."""
_GENERATES = frozenset({CHAT, COMPLETIONS, MESSAGES, RESPONSES})
_FREE = frozenset({TOKENIZE, DETOKENIZE, COUNT_TOKENS})
"""No model computes for them, and their records have no tokens."""
_LONGEST = ("max_completion_tokens", "max_tokens", "max_output_tokens", "n_predict")
_COPIES = ("n", "n_cmpl")
"""Names that engines take for the same; `n_predict` and `n_cmpl` are llama.cpp's, which count there before the others."""
LATER = 1.0
"""Seconds after which another try makes sense where nobody knows when there is room: somebody's request has to end."""

Slots = tuple[tuple[float, int], ...]
"""What is taken, as pairs of when it leaves (seconds from now) and how much, the first to leave first."""


class Window:
    """What was taken in the last minute."""

    __slots__ = ("_slots", "_total")

    def __init__(self) -> None:
        self._slots: deque[list[int]] = deque()  # pairs of second and amount
        self._total = 0

    def total(self, now: float) -> int:
        """Taken in the minute before now."""
        slots = self._slots
        while slots and slots[0][0] + 1 + SPAN <= now:
            self._total -= slots.popleft()[1]
        return self._total

    def take(self, now: float, amount: int) -> None:
        second = int(now)
        if self._slots and self._slots[-1][0] >= second:
            self._slots[-1][1] += amount
        else:
            self._slots.append([second, amount])
        self._total += amount

    def give_back(self, at: float, amount: int) -> None:
        """Of what was taken then; what has left is no matter any more."""
        second = int(at)
        for slot in reversed(self._slots):
            if slot[0] <= second:
                if slot[0] == second:
                    given = min(amount, slot[1])
                    slot[1] -= given
                    self._total -= given
                return

    def reset(self, now: float) -> float:
        """Seconds until all of it has left."""
        for second, amount in reversed(self._slots):
            if amount:
                return max(0.0, second + 1 + SPAN - now)
        return 0.0

    def slots(self, now: float) -> Slots:
        self.total(now)
        return tuple((second + 1 + SPAN - now, amount) for second, amount in self._slots if amount)


def room_in(slots: Slots, free: int, amount: int) -> float | None:
    """Seconds until `amount` passes if nothing else is taken, `free` being free now; None: it never will."""
    if free >= amount:
        return 0.0
    for leaves, taken in slots:
        free += taken
        if free >= amount:
            return leaves
    return None


# --- several edges


def share(limit: int, edges: int) -> int:
    """What one of so many edges lets in by itself. Never nothing: a limit that is less than the edges are would be none."""
    return max(1, limit // max(1, edges)) if limit else 0


def fits_alone(limit: int, edges: int, taken: int, amount: int) -> bool:
    """Whether one of so many edges, which by itself let in `taken` within the last minute, has room for `amount` more.

    1. of what is no larger than its share: within the share
    2. of what is larger, which could never pass: within the limit; then it owes the others what is theirs (`owed`)
    """
    most = share(limit, edges)
    return taken + amount <= (most if amount <= most else limit)


def owed(limit: int, edges: int, taken: int, amount: int) -> float:
    """Seconds for which an edge lets in nothing more by itself, once it has let in `amount`, larger than its share: until its
    shares have come to what it took. 0: it is no larger."""
    most = share(limit, edges)
    return SPAN * (taken + amount) / most if amount > most else 0.0


def overshoot(limit: int, edges: int, largest: int = 0) -> int:
    """The most that a minute, or a moment for what is parallel, can have over the limit where controllers stop or begin to
    count in it: before, one edge may have had all of it, then each has its share. None with a single edge; and none where
    they count all the time, or none of the time unless there are more edges than the limit is high.

    `largest`: the most that one request may take. If that is more than a share, each edge may have its share and one such
    request, within the limit; where controllers count none of the time, less the limit that nobody has had before."""
    most = share(limit, edges)
    each = min(limit, most + largest) if largest > most else most
    return each * edges if edges > 1 else 0


# --- what a request will take


def reckon(endpoint: str, body: bytes, *, longest: int | None, answers: int, context: int | None) -> int:
    """Tokens to reserve for a request.

    `longest`: tokens of one answer of it, as the request bounds it; `context`: of the model, which bounds the text, and each
    answer. Of a form, whose `body` is its beginning only, the file counts as one picture or sound.
    """
    if endpoint in _FREE:
        return 0
    if ENDPOINTS[endpoint].form:
        return PICTURE if context is None else min(PICTURE, context)
    size, pictures = len(body), 0
    if size > ENCODED:
        for text in body.split(b'"'):
            if len(text) > ENCODED and b" " not in text and text.isascii():
                size -= len(text)
                pictures += 1
    prompt = size // BYTES_PER_TOKEN + PICTURE * pictures + 1
    if context is not None:
        prompt = min(prompt, context)
    if endpoint not in _GENERATES:
        return prompt
    each = OUTPUT if longest is None else longest
    return prompt + answers * (each if context is None else min(each, context))


def lengths(endpoint: str, value: Mapping[str, Any]) -> tuple[int | None, int]:
    """Of a request that was read: tokens that one answer of it may have (None: it names no bound), and how many there are."""
    longest = None
    for name in _LONGEST:
        if name in value:
            count = value[name]
            if type(count) is int and count >= 0 and (longest is None or count > longest):
                longest = count
    answers = copies(value)
    prompts = value.get("prompt") if endpoint == COMPLETIONS else None
    if type(prompts) is list and type(prompts[0]) is not int:  # several texts; a list of numbers is one, cut already
        answers *= len(prompts)
    return longest, answers


def copies(value: Mapping[str, Any]) -> int:
    """How many answers there are to each prompt."""
    most = 1
    for name in _COPIES:
        if name in value:
            count = value[name]
            if type(count) is int and count > most:
                most = count
    return most


# --- what a client is told

_WHAT = {REQUESTS: "requests a minute", TOKENS: "tokens a minute", PARALLEL: "requests at a time"}
_CODES = {REQUESTS: "requests_limit_reached", TOKENS: "tokens_limit_reached", PARALLEL: "parallel_limit_reached"}


def where(bound: Bound) -> str:
    """`the project 'search'`, `this key`."""
    return f"this key ('{bound.name}')" if bound.kind == KEY else f"the {bound.kind} '{bound.name}'"


def _extra(bound: Bound, kind: str, limit: int) -> dict[str, object]:
    return {"limit": {"name": kind, "value": limit, "set_at": bound.kind, "id": bound.scope_id, "of": bound.name}}


def reached(bound: Bound, kind: str, limit: int, *, amount: int, room: int, wait: float | None) -> Refused:
    """429: names the limit, where it is set, and when the request would pass; `wait` None: when another one is over."""
    if kind == PARALLEL:
        text = f"The limit of {limit} {_WHAT[kind]} of {where(bound)} is reached: try again when one is over."
        return Refused(Kind.LIMITED, _CODES[kind], text, retry_after=LATER, extra=_extra(bound, kind, limit))
    wait = LATER if wait is None else max(wait, 0.001)
    needs = f"; this request needs {amount} and {max(0, room)} are left" if kind == TOKENS else ""
    text = f"The limit of {limit} {_WHAT[kind]} of {where(bound)} is reached{needs}: try again in {math.ceil(wait)} s."
    return Refused(Kind.LIMITED, _CODES[kind], text, retry_after=wait, extra=_extra(bound, kind, limit))


def too_much(bound: Bound, kind: str, limit: int, amount: int) -> Refused:
    """429 that waiting does not help: one request may use more than a minute has, or the limit lets nothing in."""
    if not limit:
        text = f"The limit of 0 {_WHAT[kind]} of {where(bound)} lets nothing in: have it raised."
        return Refused(Kind.LIMITED, "request_over_limit", text, extra=_extra(bound, kind, limit))
    text = (
        f"This request may use {amount} tokens, its prompt and the answer that it allows for, and {where(bound)} has a limit "
        f"of {limit} a minute: send less, or ask for a shorter answer (max_tokens)."
    )
    return Refused(Kind.LIMITED, "request_over_limit", text, param="max_tokens", extra=_extra(bound, kind, limit))


class Standing(NamedTuple):
    """How a limit stands: for the headers."""

    limit: int
    left: int
    reset: float  # seconds until all of it is free again


def tightest(standings: Iterable[Standing]) -> Standing | None:
    """The one that a client meets first: with the least left; of those, the lowest."""
    return min(standings, key=lambda item: (item.left, item.limit), default=None)


def headers(requests: Standing | None, tokens: Standing | None) -> list[tuple[bytes, bytes]]:
    """`x-ratelimit-*` as OpenAI has them: of requests, of tokens, each where there is such a limit."""
    found: list[tuple[bytes, bytes]] = []
    for name, standing in ((b"requests", requests), (b"tokens", tokens)):
        if standing is not None:
            found += [
                (b"x-ratelimit-limit-" + name, b"%d" % standing.limit),
                (b"x-ratelimit-remaining-" + name, b"%d" % max(0, standing.left)),
                (b"x-ratelimit-reset-" + name, span_text(standing.reset).encode()),
            ]
    return found


def span_text(seconds: float) -> str:
    """As OpenAI writes spans: `0s`, `20ms`, `1.5s`, `6m0s`."""
    whole = math.ceil(max(0.0, seconds) * 1000)
    if whole < 1000:
        return f"{whole}ms" if whole else "0s"
    minutes, rest = divmod(whole, 60_000)
    left = f"{rest / 1000:g}s"
    return f"{minutes}m{left}" if minutes else left
