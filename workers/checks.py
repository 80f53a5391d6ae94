"""System checks of settings that contradict each other. `manage.py check` and every start of Django run them."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, register

from cluster.domain.health import gap_of


@register
def rhythm(app_configs: Any, **kwargs: Any) -> list[CheckMessage]:
    """The rhythms of ticks and heartbeats fit the times after which a node counts as stale.

    workers.E001   ticks so rare that nobody could say that heartbeats were processed in between
    workers.E002   heartbeats so rare that a healthy node would count as stale
    """
    found: list[CheckMessage] = []
    config = settings.CONFIG
    gap = gap_of(config.stale_after)
    if config.reconcile > gap / 2:
        text = f"LLMGW_RECONCILE={config.reconcile:g} is too rare: no node would ever be found offline."
        found.append(Error(text, hint=f"Write at most {gap / 2:g} seconds.", id="workers.E001"))
    if config.heartbeat > config.stale_after / 3:
        text = f"LLMGW_HEARTBEAT={config.heartbeat:g} is too rare: nodes would count as stale between two heartbeats."
        hint = f"Write at most {config.stale_after / 3:g} seconds (a third of LLMGW_STALE_AFTER)."
        found.append(Error(text, hint=hint, id="workers.E002"))
    return found
