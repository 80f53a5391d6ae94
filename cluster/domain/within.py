"""A place for a replica that its owner's quotas allow."""

from __future__ import annotations

from dataclasses import replace

from cluster.domain.place import Failed, NoPlace, Placement, Placer, ranks
from cluster.domain.quotas import Ledger
from cluster.domain.types import ModelView, ProfileView, Share

OVER_LIMIT = "over_limit"
"""Code of a model that a limit of its owner stops."""


def place_within(placer: Placer, ledger: Ledger, model: ModelView, *, failed: Failed = ()) -> Placement | NoPlace:
    """The best place for one more replica, within the limits of the model's owner and of the scopes above.

    1. ways to run it that its owner may never have (a class of cards of which it may have none, more cores or memory for
       one replica than all that it may have) are unfit, as if the hardware were not there; unless nothing else is left
    2. nowhere, or within the limits: as `Placer.place` says
    3. the limit of a class of cards is in the way, and the profile may use cards of others: its best place on those
    4. they are in use: it waits for them. Else `over_limit`, with the sums of the first place
    5. that only where no other way of equal rank has a place within the limits, or could have one that is in use
    """
    ways = tuple(way for item in model.profiles if (way := allowed(ledger, model, item)) is not None)  # 1
    if ways and ways != model.profiles:
        found = _place(placer, ledger, replace(model, profiles=ways), failed)
        if isinstance(found, Placement):
            return replace(found, profile=model.profile(found.profile.id) or found.profile)
        if found.busy:
            return found
    return _place(placer, ledger, model, failed)


def allowed(ledger: Ledger, model: ModelView, profile: ProfileView) -> ProfileView | None:
    """A profile on the classes of cards that its owner may have at all; None where it may never have what it takes."""
    plain = Share(node_id="", memory=profile.memory, cores=profile.threads)
    if ledger.never(model, (plain,) * profile.span):
        return None
    barred = ledger.barred(model) if profile.cards else frozenset[str]()
    if not barred:
        return profile
    may = frozenset(profile.card_classes) or ledger.classes
    if may.isdisjoint(barred):
        return profile
    return replace(profile, card_classes=tuple(sorted(may - barred))) if may - barred else None


def _place(placer: Placer, ledger: Ledger, model: ModelView, failed: Failed) -> Placement | NoPlace:
    """Cases 2 to 5."""
    left, refused = model, None
    while True:
        best = placer.place(left, failed=failed)
        if isinstance(best, NoPlace):
            return best if best.busy or refused is None else refused
        found = _on_classes(placer, ledger, left, best, failed)
        if isinstance(found, Placement) or found.code != OVER_LIMIT:
            return found
        refused = refused or found
        equals = next(group for group in ranks(left.profiles) if best.profile in group)
        others = tuple(item for item in equals if item != best.profile)  # 5
        if not others:
            return refused
        left = replace(left, profiles=others)


def _on_classes(
    placer: Placer, ledger: Ledger, model: ModelView, found: Placement, failed: Failed
) -> Placement | NoPlace:
    """What was found, or on cards of other classes what limits allow of it."""
    if not (over := ledger.over_limit(model, found.shares)):
        return found  # 2
    refused = NoPlace(code=OVER_LIMIT, message=over)
    profile, left = found.profile, set(found.profile.card_classes) or set(ledger.classes)
    while barred := ledger.classes_over(model, found.shares):
        left -= barred
        if not left:
            return refused
        narrow = replace(profile, card_classes=tuple(sorted(left)))
        other = placer.on_best(model, narrow, failed)
        if other is None:
            busy = placer.ranked(model, narrow, failed).refusal()
            return busy if busy.busy else refused  # 4
        if not ledger.over_limit(model, other.shares):
            return replace(other, profile=profile)  # 3
        found = other
    return refused
