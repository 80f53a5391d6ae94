"""The domain's outcomes as choices of table columns."""

from __future__ import annotations

from routing.domain.records import Outcome

OUTCOMES = [(item.value, item.value.replace("_", " ")) for item in Outcome]
