"""Several answers to one request (`n`, or a list of prompts), where the engine counts each by itself.

OpenAI's usage, and vLLM's, is of all of them together. llama.cpp, which is known by the `timings` beside its usage, tells in a
stream the usage of each answer, and in a document that of the first one only.
"""

from __future__ import annotations

import re

from routing.domain.meter import Counts, find_counts

_ENDED = re.compile(rb'"finish_reason"\s*:\s*"([a-z_]{1,40})"')
_WORD = re.compile(rb"\w ")
_SEAM = 128
"""Bytes that are kept of a piece: what is looked for may lie across its end."""


class Told:
    """The usage of each answer of a stream, added up."""

    def __init__(self, answers: int, prompts: int) -> None:
        self._answers, self._copies = answers, answers // prompts
        self._told = self._prompt = self._cached = self._completion = 0

    def take(self, data: bytes, counts: Counts) -> bool:
        """Whether this event has one answer's own usage; then the sum is in `counts`.

        A prompt counts once however many answers it has. Until the last answer it is known to be so long at the least: that many of
        those that were told may be of the same one.
        """
        if b'"usage"' not in data or b'"timings"' not in data:
            return False
        one = Counts()
        find_counts(data, one)
        if not one.by_usage:
            return False
        self._told += 1
        self._prompt += one.prompt or 0
        self._cached += one.cached or 0
        self._completion += one.completion or 0
        same = min(self._told, self._copies)
        counts.prompt, counts.cached = self._prompt // same, self._cached // same
        counts.completion, counts.estimated, counts.by_usage = self._completion, False, True
        return True

    def cut(self, events: int, counts: Counts) -> None:
        """The stream broke off: of answers that had not ended what passed is counted. An answer has up to two events without
        a token, its first and its last."""
        if 0 < self._told < self._answers:
            counts.completion, counts.estimated = max(self._completion, events - 2 * self._answers), True


class Tally:
    """What can be known of the answers in a document that has the usage of the first one only: a lower bound."""

    def __init__(self, prompts: int) -> None:
        self._prompts = prompts
        self._lengths = self._ends = self._words = 0
        self._alone = False
        self._held = b""

    def feed(self, piece: bytes) -> None:
        data, old = self._held + piece, len(self._held)
        self._alone = self._alone or b'"timings"' in data
        for found in _ENDED.finditer(data):
            if found.end() > old:
                self._ends += 1
                self._lengths += found[1] == b"length"
        self._words += len(_WORD.findall(data, max(0, old - 1)))
        self._held = data[-_SEAM:]

    def apply(self, counts: Counts) -> None:
        """Correct the counts of the first answer, and mark them as estimated, where there are more. The greatest of:

        1. a token for each of the others
        2. as many for each that was cut at its greatest length, where the first was
        3. a token for each word of all
        Of several prompts the first one's tokens alone say nothing.
        """
        first = counts.completion
        if not self._alone or self._ends < 2 or not counts.by_usage or first is None:
            return
        least = max(first + self._ends - 1, self._words)  # 1, 3
        if counts.finish == "length":  # 2
            least = max(least, self._lengths * first + self._ends - self._lengths)
        counts.completion, counts.estimated = least, True
        if self._prompts > 1:
            counts.prompt = counts.cached = None
