"""What a serve job asks for that a model of that name, which is there already, has not. Pure.

Only what was asked for by name counts: what is left out is as the model has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.domain.offers import Way
from cluster.domain.serving import is_way
from llmgw_site.lib.errors import Kind, Refused


@dataclass(frozen=True, kw_only=True)
class Have:
    """The model as it is. `profiles`: their fields, the one with the highest priority first; `trained`: tokens of context
    that its weights were trained for, 0: not known."""

    name: str
    replicas: int
    max_replicas: int | None
    description: str
    profiles: Sequence[Mapping[str, Any]]
    trained: int = 0


def refuse(args: Mapping[str, Any], have: Have, *, planned: int = 0) -> None:
    """Raises Refused `model_differs` with all that differs and what to do. `planned`: ways that it would have anew, if known."""
    found = [f"{what} was asked for, and it has {has}" for what, has in differences(args, have, planned=planned)]
    if found:
        text = (
            f"the catalogue has a model {have.name} already, and nothing was changed: {'; '.join(found)}. Leave these out to "
            f"go on with it as it is, change it (`llmgw model scale {have.name}`, or its page in the console), remove it "
            f"(`llmgw model remove {have.name}`), or choose another name"
        )
        raise Refused(Kind.CONFLICT, "model_differs", text, param="name")


def differences(args: Mapping[str, Any], have: Have, *, planned: int = 0) -> Iterator[tuple[str, str]]:
    """What was asked for, and what there is instead.

    1. the description
    2. how many replicas, and whether from the first request on only
    3. of the profile that is used first: context (no more than was trained for), slots, cards, their class, the way
    4. further ways, where more are planned than it has
    5. fields of a profile, of weights that lie on the nodes
    """
    if args.get("description") and args["description"] != have.description:  # 1
        yield f"the description {args['description'][:80]!r}", f"{have.description[:80]!r}"
    rests = not have.replicas and bool(have.max_replicas)
    if args.get("on_demand") is not None and bool(args["on_demand"]) != rests:  # 2
        yield ("on demand" if args["on_demand"] else "always running"), _scale(have)
    elif args.get("replicas") and int(args["replicas"]) != (
        have.max_replicas if rests and args.get("on_demand") else have.replicas
    ):
        yield f"replicas {args['replicas']}", _scale(have)
    if args.get("fallbacks") and planned > len(have.profiles):  # 4
        yield f"fallbacks, {planned} ways together,", str(len(have.profiles))
    yield from _of_profile(args, have)  # 3, 5


def _scale(have: Have) -> str:
    if not have.replicas and have.max_replicas:
        return f"0 to {have.max_replicas}, on demand"
    return f"{have.replicas} to {have.max_replicas}" if have.max_replicas else str(have.replicas)


def _of_profile(args: Mapping[str, Any], have: Have) -> Iterator[tuple[str, str]]:
    """Cases 3 and 5. A model without a profile has nothing that could agree."""
    first: Mapping[str, Any] = have.profiles[0] if have.profiles else {}
    cards, classes = int(first.get("tp") or first.get("gpus_per_node") or 0), list(first.get("card_classes") or ())
    context = int(args.get("context") or 0)
    context = min(context, have.trained) if have.trained else context
    for name, asked in (("context", context), ("slots", int(args.get("slots") or 0))):
        if asked and asked != first.get(name):
            yield f"{name} {asked}", str(first.get(name, "no profile"))
    if args.get("tp") and int(args["tp"]) != cards:
        yield f"tp {args['tp']}", f"{cards} cards"
    if args.get("gpu_class") and [args["gpu_class"]] != classes:
        yield f"the class {args['gpu_class']}", f"the classes {', '.join(classes)}" if classes else "none"
    if args.get("way") and not _runs(args["way"], cards, classes):
        yield (
            f"the way {args['way'][:100]}",
            f"{cards} x {' or '.join(classes) or 'any card'}" if cards else "processor",
        )
    for name, value in (args.get("profile") or {}).items():
        if name != "name" and value != first.get(name) and str(value) != str(first.get(name)):
            yield f"{name} {str(value)[:80]}", str(first.get(name))[:80]


def _runs(way: str, cards: int, classes: Sequence[str]) -> bool:
    """Whether a profile with so many cards of these classes runs this way."""
    if not cards:
        return is_way(Way(engine=""), way)
    return any(is_way(Way(engine="", klass=klass, gpus_per_node=cards), way) for klass in classes or ("any card",))
