"""What a serve job decides: which file of a repository, which way, which profiles; and when waiting is no use. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from catalog.domain.repository import Format
from catalog.domain.sources import FromAddresses, FromRepository
from cluster.domain.feasible import BUSY
from cluster.domain.offers import Offer, Plan, Variant, Way
from cluster.domain.waits import WAITING_FOR_TURN
from cluster.domain.within import OVER_LIMIT
from llmgw_site.lib.errors import Kind, Refused

PREFERRED = ("Q4_K_M", "MXFP4", "MXFP4_MOE", "Q4_K_S", "UD-Q4_K_XL", "Q5_K_M", "IQ4_XS", "IQ4_NL", "Q4_1", "Q4_0", "Q5_K_S",
             "Q5_1", "Q5_0", "Q6_K", "Q8_0")  # fmt: skip
"""Quantisations in the order in which one is taken where a person names none: small, and hardly worse than the original."""
MOST_FALLBACKS = 3
"""Further ways that `fallbacks` adds."""
IN_USE = BUSY | {"no_room_now", "gave_way", WAITING_FOR_TURN, OVER_LIMIT}
"""Codes of a model that waits for others to end, or for its owner's limit: nobody knows for how long."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """The file, and how it shall run: the first offer, then the further ways, the best first."""

    variant: Variant
    offers: tuple[Offer, ...]


def default_name(source: FromRepository | FromAddresses) -> str:
    """A name for the catalogue: the repository's without its format, or the first file's without what numbers its parts."""
    if isinstance(source, FromRepository):
        return re.sub(r"[-._]?gguf$", "", source.repository.partition("/")[2], flags=re.IGNORECASE) or "model"
    name = source.files[0].name.removesuffix(".gguf").removesuffix(".safetensors")
    plain_name = re.sub(r"[^A-Za-z0-9._:@-]", "-", re.sub(r"-\d{5}-of-\d{5}$", "", name)).lstrip("._:@-")
    return plain_name[:128] or "model"


def way_name(way: Way) -> str:
    """How people name a way: `processor`, `2 x NVIDIA L4`, `8 x NVIDIA H100 on each of 2 nodes`."""
    if not way.klass:
        return "processor"
    return f"{way.cards} x {way.klass}" + (f" on each of {way.nodes} nodes" if way.nodes > 1 else "")


def choose(plans: Sequence[Plan], *, way: str = "", fallbacks: bool = False) -> Chosen:
    """Which of these shall run, and how. `way`: as `way_name` names it, or `cards`. Raises Refused.

    1. `way_unknown`            nothing can run this way: the ways that there are
    2. the refusal of the smallest file where nothing fits the hardware
    3. of what is left: cards before the processor, then the quantisation by PREFERRED, then as plans rank ways
    """
    found = [(plan.variant, offer) for plan in plans for offer in plan.offers]
    if not found:  # 2
        raise _nowhere(plans)
    if way:
        named = [item for item in found if is_way(item[1].way, way)]
        if not named:  # 1
            names = ", ".join(dict.fromkeys(way_name(offer.way) for _, offer in found))
            text = f"it cannot run this way: {way[:100]}; the ways that this cluster has for it: {names}"
            raise Refused(Kind.INVALID, "way_unknown", text, param="way")
        found = named
    places = {id(offer): at for plan in plans for at, offer in enumerate(plan.offers)}
    variant, first = min(found, key=lambda item: _rank(item[0], item[1], places[id(item[1])]))  # 3
    others = [offer for plan in plans if plan.variant is variant for offer in plan.offers if offer is not first]
    further = others[:MOST_FALLBACKS] if fallbacks else []
    return Chosen(variant=variant, offers=(first, *further))


def is_way(way: Way, wanted: str) -> bool:
    """Whether these words name this way; letters' case and blanks are of no account."""
    plain = re.sub(r"\s+", "", wanted).casefold().replace("×", "x")
    if plain in ("processor", "cpu"):
        return not way.klass
    if plain in ("cards", "gpu", "gpus"):
        return bool(way.klass)
    return plain == re.sub(r"\s+", "", way_name(way)).casefold()


def _rank(variant: Variant, offer: Offer, place: int) -> tuple[object, ...]:
    label = variant.quantization
    liked = PREFERRED.index(label) if label in PREFERRED else len(PREFERRED)
    return (not offer.way.cards, variant.format is not Format.GGUF, liked, place, variant.size, variant.name)


def _nowhere(plans: Sequence[Plan]) -> Refused:
    if not plans:
        return Refused(Kind.INVALID, "repository_has_no_model", "there is no model to run in it", param="source")
    least = min(plans, key=lambda plan: plan.variant.size)
    said = least.refusal
    code, why = (said.code, said.message) if said else ("no_suitable_node", "no node has what it needs")
    return Refused(Kind.UNAVAILABLE, code, f"{least.variant.name} fits nowhere: {why}")


def profiles(chosen: Chosen) -> tuple[dict[str, Any], ...]:
    """A profile for each way: the fields that `catalog.services.profiles.add` takes, the best with the highest priority."""
    made = []
    for at, offer in enumerate(chosen.offers):
        way = offer.way
        cards = {"tp": way.tp} if way.tp else {"gpus_per_node": way.gpus_per_node}
        cards |= {"pp": way.nodes} if way.nodes > 1 else {}
        classes = {"card_classes": [way.klass], **cards} if way.cards else {}
        name = "default" if not at else way_name(way)[:100]
        made.append({"name": name, "engine": way.engine, "priority": 10 * (len(chosen.offers) - 1 - at), "context": way.context,
                     "slots": way.slots, **classes})  # fmt: skip
    return tuple(made)


@dataclass(frozen=True, kw_only=True)
class Build:
    """An engine of a node. `architectures`: that it can load, () where it does not tell."""

    node: str
    version: str
    architectures: Collection[str] = ()


def plain(architecture: str) -> str:
    """An architecture without the signs in which its spellings differ (`command-r`, `command_r`)."""
    return re.sub(r"[^a-z0-9]", "", architecture.casefold())


def unknown_to_all(builds: Iterable[Build], architecture: str) -> str:
    """Why no engine of these can load this architecture, in words; "" where one can, or does not tell.

    No builds at all: "", for placement says itself that no node has the engine.
    """
    told = list(builds)
    if not told or not architecture:
        return ""
    if any(not item.architectures or plain(architecture) in map(plain, item.architectures) for item in told):
        return ""
    counts = sorted(Counter(item.version or "a build without a version" for item in told).items())
    parts = [f"{version} on {count} node{'s' if count > 1 else ''}" for version, count in counts]
    versions = ", ".join(parts[:6]) + (f" and {len(parts) - 6} more" if len(parts) > 6 else "")
    return (
        f"no engine here knows the architecture {architecture}: {versions}; use a newer build of it, or another model"
    )


@dataclass(frozen=True)
class WaitOn:
    """Look again. `since`: when the present code began to stand."""

    since: Mapping[str, float]


@dataclass(frozen=True)
class Hopeless:
    """No waiting helps: the model's own code and words."""


@dataclass(frozen=True)
class InUse:
    """It starts by itself once others have ended; the job need not wait for that."""


Patience = WaitOn | Hopeless | InUse


def patience(
    code: str, *, never: Collection[str], coming: bool, since: Mapping[str, float], now: float, give_up: float, enough: float,
    unsaid: bool = False,
) -> Patience:  # fmt: skip
    """Whether a job goes on waiting for a replica. `coming`: one is placed, or room is being made for it; `since`: what the
    look before gave; `give_up`, `enough`: seconds that a reason must stand, for nodes may just be reporting in. `unsaid`: nodes
    have not said yet whether they have its weights (`ModelView.unsaid`): one that no nudge reaches says it with its next heartbeat.

    1. parked: hopeless at once, nothing is tried any more
    2. what no waiting mends, for `give_up` since nodes have said what they have: hopeless
    3. in use by others, for `enough` since then, and no replica is coming: it is in use
    4. else go on; a code that changes begins to count anew
    """
    if code == "model_parked":  # 1
        return Hopeless()
    kind = "never" if code in never else "busy" if code in IN_USE and not coming else ""
    kind = "" if unsaid else kind
    began = since.get(kind, now) if kind else now
    if kind == "never" and now - began > give_up:  # 2
        return Hopeless()
    if kind == "busy" and now - began > enough:  # 3
        return InUse()
    return WaitOn({kind: began} if kind else {})  # 4
