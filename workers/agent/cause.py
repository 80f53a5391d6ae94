"""Why an engine ended, in its own words: the line of its log that tells most. Pure."""

from __future__ import annotations

import re

LONGEST = 300
"""Characters of a line that are kept."""
_LEVEL = re.compile(r"^(?:[\d.]+\s+)?E\s+(?=\S)")
"""A line that llama.cpp itself calls an error."""
_RAISED = re.compile(r"(?:^|\s)(?:[A-Za-z_][\w.]*(?:Error|Exception|Exit)): (?=\S)")
_PLAIN = re.compile(
    r"\berror\b|\bfail(?:ed|ure)\b|\bcannot\b|\bunable\b|out of memory|no such file|not supported", re.IGNORECASE
)
_PLACE = re.compile(r"^(?:\[[^\]]*\]\s*|[a-z_][\w:]*(?:\(\))?:\s+|(?:srv|cmn|main|common)\s+\S+:\s+)+")
"""Where in an engine's code a line of llama.cpp was written."""


def cause_of(log: str) -> str:
    """The first line of the end of a log that says what went wrong, without its time, level and place in the code; empty
    where none does. What comes first is the cause, what follows are its consequences."""
    lines = [line for line in (text.strip() for text in log.splitlines()) if line]
    for sign in (_LEVEL, _RAISED, _PLAIN):
        for line in lines:
            found = sign.search(line)
            if found is None:
                continue
            told = line[found.end() :] if sign is _LEVEL else line[found.start() :] if sign is _RAISED else line
            told = _PLACE.sub("", told.strip()).strip(" :.")
            if told:
                return told if len(told) <= LONGEST else told[: LONGEST - 1].rstrip() + "…"
    return ""
