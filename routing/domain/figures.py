"""An engine's own figures, read from its /metrics, and what is known of them from one scrape to the next.

Sources: llama.cpp's server README (`llamacpp:`), vLLM's `vllm/v1/metrics/loggers.py` (`vllm:`). A figure that was renamed is
found by both of its names, one that the engine does not have is None, never zero. Pure, and bounded by the page's length.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

_LINE = re.compile(
    rb'^((?:llamacpp|vllm):[a-z0-9_]{1,64})(?:\{(?:[^"\n}]|"(?:[^"\\\n]|\\.)*+")*+\})? ([0-9a-zA-Z.+-]{1,32})(?: [0-9]+)?\r?$',
    re.MULTILINE,
)
MISSED = 3
"""Scrapes in a row without an answer after which what was known is no longer true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Of a histogram: seconds altogether, over so many observations."""

    seconds: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Over all ranks of one engine. Gauges of requests, counters since its start, shares 0..1."""

    running: int | None = None  # requests in the batch
    waiting: int | None = None  # requests in the engine's own queue
    kv_used: float | None = None  # of several ranks the fullest
    prompt_tokens: float | None = None
    generated_tokens: float | None = None
    steps: float | None = None  # forward passes: these move in a long prefill, too
    prefix_queries: float | None = None  # tokens looked up in the prefix cache
    prefix_hits: float | None = None
    preemptions: float | None = None
    first_token: Span | None = None
    token: Span | None = None  # from one token to the next
    queue: Span | None = None

    @property
    def requests(self) -> int | None:
        """What runs and waits in the engine; None: it does not say."""
        if self.running is None and self.waiting is None:
            return None
        return (self.running or 0) + (self.waiting or 0)

    @property
    def work(self) -> tuple[float | None, ...]:
        """What grows while it computes."""
        return self.prompt_tokens, self.generated_tokens, self.steps


Sum = Callable[[Iterable[float]], float]

_NAMES: dict[str, tuple[Sum, tuple[str, ...]]] = {
    "running": (sum, ("vllm:num_requests_running", "llamacpp:requests_processing")),
    "waiting": (sum, ("vllm:num_requests_waiting", "llamacpp:requests_deferred")),
    "kv_used": (max, ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "llamacpp:kv_cache_usage_ratio")),
    "prompt_tokens": (sum, ("vllm:prompt_tokens_total", "vllm:prompt_tokens", "llamacpp:prompt_tokens_total")),
    "generated_tokens": (
        sum, ("vllm:generation_tokens_total", "vllm:generation_tokens", "llamacpp:tokens_predicted_total"),
    ),
    "steps": (sum, ("vllm:iteration_tokens_total_count", "llamacpp:n_decode_total")),
    "prefix_queries": (
        sum,
        ("vllm:prefix_cache_queries_total", "vllm:prefix_cache_queries",
         "vllm:gpu_prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries"),
    ),
    "prefix_hits": (
        sum,
        ("vllm:prefix_cache_hits_total", "vllm:prefix_cache_hits",
         "vllm:gpu_prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits"),
    ),
    "preemptions": (sum, ("vllm:num_preemptions_total", "vllm:num_preemptions")),
}  # fmt: skip
"""Each figure with how the ranks' values become one, and its names, the present one first: an engine may show both."""
_SPANS: dict[str, tuple[str, ...]] = {
    "first_token": ("vllm:time_to_first_token_seconds",),
    "token": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "queue": ("vllm:request_queue_time_seconds",),
}
_KNOWN = frozenset(
    [name.encode() for _, names in _NAMES.values() for name in names]
    + [f"{name}{end}".encode() for names in _SPANS.values() for name in names for end in ("_sum", "_count")]
)
MOST = 1 << 53
"""What an engine counts beyond this is no count."""


def figures_in(page: bytes) -> Figures | None:
    """The figures of a page of /metrics; None: there is none of them on it. Ranks (label `engine`) are taken together."""
    found: dict[bytes, list[float]] = {}
    for name, text in _LINE.findall(page):
        if name in _KNOWN and (value := _number(text)) is not None:
            found.setdefault(name, []).append(value)
    if not found:
        return None
    read: dict[str, Any] = {figure: _value(found, names, over) for figure, (over, names) in _NAMES.items()}
    for name in ("running", "waiting"):
        read[name] = None if read[name] is None else int(read[name])
    read |= {figure: _span(found, names) for figure, names in _SPANS.items()}
    return Figures(**read)


def _number(text: bytes) -> float | None:
    """None for what is no figure: NaN and infinity are what an engine says where it has nothing to say."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and 0 <= value < MOST else None


def _value(found: dict[bytes, list[float]], names: Iterable[str], over: Sum) -> float | None:
    return next((over(found[name.encode()]) for name in names if name.encode() in found), None)


def _span(found: dict[bytes, list[float]], names: Iterable[str]) -> Span | None:
    for name in names:
        seconds, count = found.get(f"{name}_sum".encode()), found.get(f"{name}_count".encode())
        if seconds is not None and count is not None:
            return Span(seconds=sum(seconds), count=int(sum(count)))
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped:
    """What is known of an engine. `figures` None: nothing, or nothing that is still true. Times are the caller's clock."""

    figures: Figures | None = None
    missed: int = 0  # scrapes in a row without an answer
    work: tuple[float | None, ...] = ()  # what it had computed when it was last heard; none: it never was
    moved_at: float | None = None  # when it was last seen to have computed; None: it was never heard, or counts nothing

    def still(self, now: float) -> float | None:
        """Seconds that it has computed nothing, as far as it was heard; None: it does not tell."""
        return None if self.moved_at is None else max(0.0, now - self.moved_at)


def heard(before: Scraped, found: Figures | None, now: float) -> Scraped:
    """After one more scrape.

    1. no answer: what was known counts on, and after MISSED in a row no longer
    2. an engine that counts no work: nobody knows whether it is still
    3. its counts are others than before, also lower ones (it began anew), or the first: it has computed until now
    4. else it has not
    """
    if found is None:  # 1
        missed = before.missed + 1
        return replace(before, missed=missed, figures=None if missed >= MISSED else before.figures)
    if all(count is None for count in found.work):  # 2
        moved_at = None
    else:
        moved_at = now if found.work != before.work else before.moved_at  # 3, 4
    return Scraped(figures=found, work=found.work, moved_at=moved_at)
