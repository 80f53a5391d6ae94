"""Which cards of a node a replica gets, and how much of each."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.domain.feasible import bounds, cards_left
from cluster.domain.room import Room
from cluster.domain.types import ProfileView, Share


def share_of(room: Room, profile: ProfileView, *, pack: bool = False) -> Share:
    """What a replica of this profile takes of a node where `why_not` found nothing."""
    cards = choose_cards(room, profile, pack=pack)
    return Share(node_id=room.node.id, memory=profile.memory, cores=profile.threads, cards=cards)


def choose_cards(room: Room, profile: ProfileView, *, pack: bool) -> tuple[tuple[str, int], ...]:
    """Cards and bytes of each, as an engine sees them. Even shares go to the fullest cards that still hold them (pack) or to
    the emptiest; layers go where most is free, so that they fit in any case, and the card with the output layer comes last,
    for there llama.cpp puts it."""
    if not profile.cards:
        return ()
    left = sorted(cards_left(room, profile), key=lambda item: (-item[1], item[0].uuid))
    if profile.even or profile.cards == 1:
        share = -(-profile.card_memory // profile.cards)
        fit = [item for item in left if item[1] >= share]
        chosen = fit[-profile.cards :] if pack else fit[: profile.cards]
        return tuple((card.uuid, share) for card, _ in chosen)
    chosen = left[: profile.cards]
    free = [free for _, free in chosen]
    held = [(card.uuid, size) for (card, _), size in zip(chosen, by_layers(profile, free), strict=True)]
    held.append(held.pop(bounds(profile, free)[1]))
    return tuple(held)


def by_layers(profile: ProfileView, left: Sequence[int]) -> list[int]:
    """Bytes for each card (left of each, the most first), where `holds` says yes: what every card needs, and whole layers in
    proportion to what is left of each; none beyond it, and none without a layer."""
    (wanted, size, extra), cards = profile.pieces, range(len(left))
    most, host = bounds(profile, left)
    counts = [max(1, wanted * bound // sum(most)) for bound in most]
    short = wanted - sum(counts)
    for _ in range(short):
        counts[max(cards, key=lambda place: (most[place] - counts[place], -place))] += 1
    for _ in range(-short):
        counts[max(cards, key=lambda place: (counts[place], place))] -= 1
    return [profile.card_base + counts[place] * size + (extra if place == host else 0) for place in cards]


def layers_on(profile: ProfileView, share: Share) -> tuple[int, ...]:
    """How many layers, with the output layer, each card of a share gets; none where that is not known."""
    if profile.even or len(share.cards) < 2 or not profile.layers:
        return ()
    found = profile.pieces
    last = len(share.cards) - 1
    counts = tuple(
        (size - profile.card_base - (found.extra if place == last else 0)) // found.size
        for place, (_, size) in enumerate(share.cards)
    )
    # a share of another moment may have been planned with other figures
    return counts if sum(counts) == found.number and min(counts) > 0 else ()
