"""Template filters of the console: units, spans, and the look of a state."""

from __future__ import annotations

import re
from datetime import datetime

from django import template
from django.conf import settings
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from llmgw_site.lib.units import format_bytes, format_seconds

register = template.Library()

LOOKS = {
    "online": "ok", "ready": "ok", "done": "ok", "enabled": "ok", "external": "ok",
    "stale": "warn", "backoff": "warn", "partly ready": "warn", "not ready": "warn",
    "cordoned": "warn", "drained": "warn",
    "offline": "bad", "lost": "bad", "failed": "bad", "parked": "bad",
    "starting": "busy", "fetching": "busy", "pending": "busy", "running": "busy", "draining": "busy",
    "queued": "off", "stopped": "off", "cancelled": "off", "disabled": "off", "not wanted": "off",
    "at rest": "off",
    "waiting": "off", "skipped": "off",
}  # fmt: skip
"""How each state looks; the word always stands beside the mark."""

OPENERS = frozenset(
    re.findall(
        "[a-z]+",
        """
    a adapter added admin all an another answers any are as asked at because before begun both budget bytes cancelled
    card cards certificate change choose chooses clock cluster controller controllers cores currently database decided
    disabled disk does drain drained each earlier either enabled engine engines every everything failed fetch fetched
    fetches fewer file files finishes for forwards free from give grown has have held here how idle if in is it its
    job jobs join keeps kept key last leave limit limits loaded loads looked many measured memory model models more
    most moved name names nearly neither never new no nobody node nodes none not nothing of old on one only
    organisation origin other others out over owner parked partly placement profile project provider put quota ready
    refused removed replaced replica replicas reported request requests restart role room runs say serve session
    several shall sized smoke snapshot somebody something space still stopped store taken team that the then there
    these they this those time to token too traced tried two under until up used user waiting waits wanted was weights
    what when where while who with without write you your
        """,
    )
)
"""Words that begin our sentences. Any other word may be somebody's name for a model, an adapter or a node, and stays as it is."""


@register.simple_tag
def single_sign_on() -> str:
    """What the provider of single sign-on is called; empty where there is none."""
    return settings.CONFIG.oidc_name if settings.CONFIG.oidc_issuer else ""


@register.filter
def look(state: str) -> str:
    """The CSS class of a state; `off` for one that is not known."""
    return LOOKS.get(str(state), "off")


MARKS = {
    "replica_ready": "ok", "model_added": "ok", "model_enabled": "ok", "replica_failed": "bad", "replica_preempted": "warn",
    "model_waits": "warn", "replica_placed": "busy", "replica_renewed": "busy", "model_retry": "busy", "model_restart": "busy",
    "room_kept": "warn",
}  # fmt: skip
"""How a line of the decision log is marked, by its kind; its words say the same."""


@register.filter
def mark(kind: str) -> str:
    """The CSS class of a line of the decision log; `off` for what is only to be known."""
    return MARKS.get(str(kind), "off")


@register.filter
def state(value: str) -> SafeString:
    """A state as mark and word."""
    return format_html('<span class="lg-state {}">{}</span>', look(value), str(value))


@register.filter
def size(value: int | None) -> str:
    """Bytes with a unit; empty where not known."""
    return "" if value is None else format_bytes(value)


@register.filter
def ago(moment: datetime | None, suffix: str = " ago") -> SafeString | str:
    """The time since then, counted on by the page itself; empty where not known. `suffix` follows the span."""
    if moment is None:
        return ""
    spent = max(0.0, (timezone.now() - moment).total_seconds())
    shown = f"{spent:.0f} s" if spent < 60 else format_seconds(spent)
    return format_html(
        '<time datetime="{}" data-ago="{}" title="{}">{}{}</time>',
        moment.isoformat(),
        suffix,
        f"{moment:%Y-%m-%d %H:%M:%S} UTC",
        shown,
        suffix,
    )


@register.filter
def until(start: datetime | None, end: datetime | None) -> str:
    """The span between two moments; empty where either is not known."""
    return "" if start is None or end is None else format_seconds(max(0.0, (end - start).total_seconds()))


@register.filter
def share(value: float | None) -> str:
    """A share of 1 as percent."""
    return "" if value is None else f"{100 * value:.0f} %"


@register.filter
def pressure(value: float | None) -> str:
    """The look of a bar that is so many percent full."""
    return "" if value is None or value < 85 else "warn" if value < 95 else "bad"


@register.filter
def thousands(count: int | None) -> str:
    """A count with separators; empty where not known."""
    return "" if count is None else f"{count:,}"


@register.filter
def sentence(text: str) -> str:
    """A message with a capital at its start, unless it may start with a name or an id."""
    return text[0].upper() + text[1:] if text.split(" ", 1)[0].rstrip(",") in OPENERS else text
