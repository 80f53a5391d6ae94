"""How often somebody may try to sign in to the console with a password. Pure.

There is no limit for an account alone: whoever knows a name could shut its owner out from everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WINDOW = 900.0
"""Seconds after which a try counts no more."""
OF_ACCOUNT = 5
"""Tries of one account from one address within WINDOW, without success."""
OF_ADDRESS = 50
"""Tries from one address within WINDOW, whatever the account: many people may share it."""


@dataclass(frozen=True, kw_only=True)
class Try:
    """`at`: Unix time; `account`: names whose password was tried."""

    at: float
    account: str


def pause(
    tries: Sequence[Try], account: str, now: float, *, allowed_at: float = 0.0, signed_in_at: float = 0.0
) -> float:
    """Seconds until the next try of this account from this address; 0: now. `tries`: those from this address, in any order.

    `allowed_at`: when an administrator allowed the account to try again: what was before that counts no more.
    `signed_in_at`: when it signed in from here last: its own tries before that count no more.

    1. too many of the account
    2. too many from the address, of all accounts
    """
    since = max(now - WINDOW, allowed_at)
    every = [item.at for item in tries if item.at > since]
    own = [item.at for item in tries if item.at > max(since, signed_in_at) and item.account == account]
    return max(_until(own, OF_ACCOUNT, now), _until(every, OF_ADDRESS, now))  # 1, 2


def _until(times: Sequence[float], most: int, now: float) -> float:
    """Seconds until fewer than `most` of these count."""
    if len(times) < most:
        return 0.0
    return max(0.0, sorted(times)[-most] + WINDOW - now)
