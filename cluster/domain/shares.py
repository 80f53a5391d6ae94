"""Which cards of a node a replica gets, and how much of each."""

from __future__ import annotations

from collections.abc import Sequence

from cluster.domain.feasible import cards_left, layers_of
from cluster.domain.room import Room
from cluster.domain.types import ProfileView, Share


def share_of(room: Room, profile: ProfileView, *, pack: bool = False) -> Share:
    """What a replica of this profile takes of a node where `why_not` found nothing."""
    cards = choose_cards(room, profile, pack=pack)
    return Share(node_id=room.node.id, memory=profile.memory, cores=profile.threads, cards=cards)


def choose_cards(room: Room, profile: ProfileView, *, pack: bool) -> tuple[tuple[str, int], ...]:
    """Cards and bytes of each. Even shares go to the fullest cards that still hold them (pack) or to the emptiest; layers
    go where most is free, so that they fit in any case."""
    if not profile.cards:
        return ()
    left = sorted(cards_left(room, profile), key=lambda item: (-item[1], item[0].uuid))
    if profile.even or profile.cards == 1:
        share = -(-profile.card_memory // profile.cards)
        fit = [item for item in left if item[1] >= share]
        chosen = fit[-profile.cards :] if pack else fit[: profile.cards]
        return tuple((card.uuid, share) for card, _ in chosen)
    chosen = left[: profile.cards]
    return tuple(zip((card.uuid for card, _ in chosen), by_layers(profile, [free for _, free in chosen]), strict=True))


def by_layers(profile: ProfileView, left: Sequence[int]) -> list[int]:
    """Bytes for each card, where `holds` says yes: what every card needs, and whole layers in proportion to what is left of
    each; none beyond it, and none without a layer."""
    piece, base, cards = max(profile.layer, 1), profile.card_base, range(len(left))
    most, wanted = [(free - base) // piece for free in left], layers_of(profile)
    counts = [max(1, wanted * bound // sum(most)) for bound in most]
    short = wanted - sum(counts)
    for _ in range(short):
        counts[max(cards, key=lambda place: (most[place] - counts[place], -place))] += 1
    for _ in range(-short):
        counts[max(cards, key=lambda place: (counts[place], place))] -= 1
    return [base + count * piece for count in counts]
