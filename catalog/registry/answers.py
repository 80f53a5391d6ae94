"""A registry's refusals told apart, as its own client does it: the header X-Error-Code decides, not the status alone.

Source: huggingface_hub, `utils/_http.py` (hf_raise_for_status, rate limits); IETF draft "RateLimit header fields".
"""

from __future__ import annotations

import re

import httpx

from catalog.domain.foreign import plain
from llmgw_site.lib.errors import Kind, Refused

RATE_LIMIT = re.compile(r'"?(?P<policy>[^";]*)"?\s*;[^,]*?\bt=(?P<seconds>[0-9]{1,9})')
MAX_HEADER = 500
"""Characters of a header that are looked at: the search takes the square of that time."""
MAX_WAIT = 3600.0
BUSY = frozenset({408, 500, 502, 503, 504})
PAUSE = 5.0
"""Seconds after which a registry that failed is asked again, where it does not say."""
NO_CREDENTIALS = "Invalid credentials in Authorization header"
DISABLED = "Access to this resource is disabled."


def refused(response: httpx.Response, *, repository: str, page: str, token: bool, what: str = "") -> Refused:
    """Why the registry did not give what was asked for. `page`: where a person asks for access; `what`: file or revision.

    1. `registry_limited`       429: with the seconds that it asks to wait
    2. `registry_failed`        it is out of order for the moment
    3. `repository_gated`       its owner wants to be asked first
    4. `repository_disabled`    the registry took it down
    5. `registry_token_refused` the token itself is not good
    6. `revision_unknown`, `file_unknown`
    7. `repository_unknown`     missing, private or without a token: a registry tells these apart for nobody
    8. `registry_refused`       anything else, with its own words
    """
    code, words = response.headers.get("x-error-code", ""), plain(response.headers.get("x-error-message", ""), 300)
    status = response.status_code
    if status == 429:  # 1
        wait = seconds_to_wait(response)
        text = f"the registry answers no more requests for {wait:.0f} s: it is asked again then"
        return Refused(Kind.LIMITED, "registry_limited", text, retry_after=wait)
    if status in BUSY:  # 2
        text = f"the registry failed (HTTP {status}): it is asked again, or try later"
        return Refused(Kind.UPSTREAM, "registry_failed", text, retry_after=seconds_to_wait(response))
    if code == "GatedRepo":  # 3
        how = (
            "the account of the token that is set (HF_TOKEN) has no access yet"
            if token
            else "no token is set (HF_TOKEN)"
        )
        text = f"{repository} is gated and {how}: ask for access at {page}, then set a token of that account"
        return Refused(Kind.FORBIDDEN, "repository_gated", text, extra={"page": page})
    if words == DISABLED:  # 4
        return Refused(
            Kind.FORBIDDEN, "repository_disabled", f"the registry has taken {repository} down: choose another"
        )
    if words == NO_CREDENTIALS:  # 5
        text = "the registry refuses the token that is set (HF_TOKEN): set one that is good, or none for public models"
        return Refused(Kind.FORBIDDEN, "registry_token_refused", text)
    if code == "RevisionNotFound":  # 6
        text = (
            f"{repository} has no branch, tag or commit {what}: leave it out for the newest, or name one that is there"
        )
        return Refused(Kind.NOT_FOUND, "revision_unknown", text, param="revision")
    if code == "EntryNotFound":
        return Refused(Kind.NOT_FOUND, "file_unknown", f"{repository} has no file {what}", param="file")
    if code == "RepoNotFound" or status in (401, 404):  # 7
        how = (
            "for the account of the token that is set"
            if token
            else "without a token (HF_TOKEN), which private ones need"
        )
        text = f"there is no repository {repository} {how}: check its name (OWNER/REPOSITORY)"
        return Refused(Kind.NOT_FOUND, "repository_unknown", text, param="repository")
    told = f": {words}" if words else ""
    return Refused(
        Kind.UPSTREAM, "registry_refused", f"the registry answered HTTP {status} for {repository}{told}"
    )  # 8


def seconds_to_wait(response: httpx.Response) -> float:
    """What a 429 or 503 asks for: `RateLimit: "api";r=0;t=55`, or `Retry-After` in seconds. One more than told, so that the
    window has truly passed."""
    found = RATE_LIMIT.search(response.headers.get("ratelimit", "")[:MAX_HEADER])
    told = found["seconds"] if found else response.headers.get("retry-after", "")
    return min(float(told) + 1.0, MAX_WAIT) if told.isascii() and told.isdigit() else PAUSE
