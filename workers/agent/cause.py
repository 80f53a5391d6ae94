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


def death(status: int | None, log: str, *, ready: bool) -> tuple[str, str]:
    """Code and message for a process that ended by itself. `log`: the end of its log, which goes when the replica goes."""
    how = (
        "ended"
        if status is None
        else f"was ended by signal {-status}"
        if status < 0
        else f"ended with exit code {status}"
    )
    told = cause_of(log)
    says = f" Its log says: {told}." if told else ""
    if ready:
        return "engine_died", f"The engine {how} while it served; it is being started again.{says}"
    return "engine_start_failed", f"The engine {how} before it was ready.{says or ' Its log says nothing of why.'}"
