"""API keys and admin tokens: their form and their hash. Pure; entropy comes in.

`sk-llmgw-` + 43 characters (256 random bits, URL-safe base64) for a key of the OpenAI endpoint,
`at-llmgw-` + the same for a user's token of the admin API. Only the SHA-256 is kept: 256 random bits need no slow hash.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass

KEY_PREFIX, TOKEN_PREFIX = "sk-llmgw-", "at-llmgw-"
SHOWN = 15
"""Characters of a key that may be shown and logged: its kind and 6 more."""


@dataclass(frozen=True, kw_only=True)
class NewSecret:
    """`text` is shown once and never kept."""

    text: str
    sha256: str
    prefix: str

    def __repr__(self) -> str:
        return f"NewSecret({self.prefix}…)"


def make(kind: str, *, entropy: bytes) -> NewSecret:
    """A new secret of this kind (KEY_PREFIX or TOKEN_PREFIX) from 32 bytes of entropy."""
    if len(entropy) < 32:
        raise ValueError("a key needs 32 bytes of entropy")
    text = kind + base64.urlsafe_b64encode(entropy[:32]).decode().rstrip("=")
    return NewSecret(text=text, sha256=digest(text), prefix=text[:SHOWN])


def digest(text: str) -> str:
    """What is kept of a key: hex SHA-256 of its UTF-8 text."""
    return hashlib.sha256(text.encode()).hexdigest()
