"""A place for a replica that its owner's quotas allow."""

from __future__ import annotations

from dataclasses import replace

from cluster.domain.place import Failed, NoPlace, Placement, Placer
from cluster.domain.quotas import Ledger
from cluster.domain.types import ModelView


def place_within(placer: Placer, ledger: Ledger, model: ModelView, *, failed: Failed = ()) -> Placement | NoPlace:
    """The best place for one more replica, within the limits of the model's owner and of the scopes above.

    1. nowhere, or within the limits: as `Placer.place` says
    2. the limit of a class of cards is in the way, and the profile may use cards of others: its best place on those
    3. they are in use: it waits for them. Else `over_limit`, with the sums of the first place
    """
    found = placer.place(model, failed=failed)
    if isinstance(found, NoPlace) or not (over := ledger.over_limit(model, found.shares)):
        return found  # 1
    refused = NoPlace(code="over_limit", message=over)
    profile, left = found.profile, set(found.profile.card_classes) or set(ledger.classes)
    while barred := ledger.classes_over(model, found.shares):
        left -= barred
        if not left:
            return refused
        narrow = replace(profile, card_classes=tuple(sorted(left)))
        other = placer.on_best(model, narrow, failed)
        if other is None:
            busy = placer.ranked(model, narrow, failed).refusal()
            return busy if busy.busy else refused  # 3
        if not ledger.over_limit(model, other.shares):
            return replace(other, profile=profile)  # 2
        found = other
    return refused
