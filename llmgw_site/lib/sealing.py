"""Secrets at rest and on their way to one reader: AES-256-GCM under a key that HKDF-SHA256 derives from a secret.

Used for the controllers' own keys and for providers' keys in the database (the secret is LLMGW_SECRET_KEY), and for
what one node alone may read (the secret is the pairwise key of that node and the controllers, cluster/domain/signing.py).
Sources: RFC 5869 (HKDF), NIST SP 800-38D (GCM, 96-bit random nonces).
"""

from __future__ import annotations

import secrets
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_NONCE = 12


class WrongSecret(ValueError):
    """Sealed under another secret, for another thing, or damaged."""


def seal(text: str, *, secret: str | bytes, about: str = "") -> str:
    """`text`, sealed: hex of nonce and ciphertext. `about` names what it belongs to: it unseals with the same only."""
    nonce = secrets.token_bytes(_NONCE)
    return (nonce + AESGCM(_key(secret)).encrypt(nonce, text.encode(), about.encode())).hex()


@lru_cache(maxsize=256)
def unseal(sealed: str, *, secret: str | bytes, about: str = "") -> str:
    """What `seal` sealed. Raises WrongSecret."""
    try:
        raw = bytes.fromhex(sealed)
        return AESGCM(_key(secret)).decrypt(raw[:_NONCE], raw[_NONCE:], about.encode()).decode()
    except (InvalidTag, ValueError):
        raise WrongSecret("it was sealed under another secret, or is damaged") from None


@lru_cache(maxsize=1024)
def _key(secret: str | bytes) -> bytes:
    material = secret.encode() if isinstance(secret, str) else secret
    return HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=b"llmgw seal v1").derive(material)
