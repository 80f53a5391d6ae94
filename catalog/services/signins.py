"""Tries to sign in to the console, as events: how many there were tells whether there may be one more."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model

from catalog.domain.signins import OF_ADDRESS, WINDOW, Try, pause
from catalog.models import Event
from catalog.services import events
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.units import format_seconds

TRIED, SIGNED_IN, ALLOWED = "sign_in_tried", "signed_in", "sign_in_allowed"


def begin(*, name: str, address: str, now: datetime) -> None:
    """Note a try, before the password is looked at: of many at once, none comes past the limit. Raises Refused
    `sign_in_paused`; then nothing is noted, so that whoever goes on trying fills no table."""
    account = _account(name)
    _refuse(_pause(account, address, now, but=""), name, address)
    who = name[:150] if not account.startswith("unknown") else "a name that nobody has"
    noted = events.append(
        actor=_place(address), kind=TRIED, subject_kind="user", subject_id=account,
        message=f"somebody tried to sign in as {who}",
    )  # fmt: skip
    _refuse(_pause(account, address, now, but=noted.pk), name, address)


def succeeded(*, user: Any, address: str) -> None:
    """The try was one with the right password."""
    events.append(
        actor=_place(address), kind=SIGNED_IN, subject_kind="user", subject_id=str(user.pk),
        message=f"user {user.get_username()} signed in",
    )  # fmt: skip


def allow(*, actor: str, user: Any) -> None:
    """Let somebody try again at once, from wherever."""
    events.append(
        actor=actor, kind=ALLOWED, subject_kind="user", subject_id=str(user.pk),
        message=f"user {user.get_username()} may try to sign in again",
    )  # fmt: skip


def _pause(account: str, address: str, now: datetime, *, but: str) -> float:
    """`but`: id of the caller's own try, which does not count against itself."""
    since = now - timedelta(seconds=WINDOW)
    rows = Event.objects.filter(kind=TRIED, actor=_place(address), at__gt=since).exclude(pk=but).order_by("-at", "-id")
    mine = Event.objects.filter(subject_kind="user", subject_id=account, at__gt=since).order_by("-at")
    allowed = mine.filter(kind=ALLOWED).values_list("at", flat=True).first()
    signed_in = mine.filter(kind=SIGNED_IN, actor=_place(address)).values_list("at", flat=True).first()
    tries = [
        Try(at=at.timestamp(), account=whose) for at, whose in rows.values_list("at", "subject_id")[: 2 * OF_ADDRESS]
    ]
    return pause(
        tries, account, now.timestamp(),
        allowed_at=allowed.timestamp() if allowed else 0.0, signed_in_at=signed_in.timestamp() if signed_in else 0.0,
    )  # fmt: skip


def _refuse(seconds: float, name: str, address: str) -> None:
    if seconds:
        text = (
            f"Too many tries to sign in as {name[:150]} from {address}: try again in {format_seconds(seconds)}. "
            "An administrator can allow it at once: Users, the action Allow to sign in again."
        )
        raise Refused(Kind.LIMITED, "sign_in_paused", text, retry_after=max(1, round(seconds)))


def _account(name: str) -> str:
    """The user's id. A name that nobody has is kept as a digest: people type passwords there."""
    user = get_user_model().objects.filter(username=name).only("pk").first()
    return str(user.pk) if user else f"unknown:{hashlib.sha256(name.encode()).hexdigest()[:40]}"


def _place(address: str) -> str:
    return f"address:{address}"
