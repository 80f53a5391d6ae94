"""How many examples a property tries whose examples are dear: a fifth of what the profile says, so that `make prove` ends in time."""

from __future__ import annotations

from hypothesis import settings


def few() -> settings:
    """For properties of which one example takes tens of milliseconds. At least 20 examples."""
    return settings(max_examples=max(20, settings().max_examples // 5))
