"""The words of a limit that stops a model: with all sums for who runs the cluster, with less for who asks for the model."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from cluster.domain.amounts import short, words
from cluster.domain.types import ScopeView

NAMED = 6
"""Models of a scope that a refusal names with what they hold; of the others their sum."""
_SUMS = re.compile(r"(, it holds [^()]*) \([^()]*\)(, and one more replica of )")
_ADVICE = re.compile(r": raise the limit with `llmgw quota set .*?`, or let another of its models rest")


def over_words(
    scope: ScopeView,
    key: str,
    *,
    limit: int,
    held: int,
    kept: int,
    models: Iterable[tuple[str, int]],
    name: str,
    more: int,
) -> str:
    """Why a scope may not have more of something (`key`; amounts as in `amounts`).

    `held`, of which `models` have so much by name, and `kept` for those that wait; `more` is what one more replica of the
    model `name` takes.
    """
    sums = sorted(((part, size) for part, size in models if size), key=lambda pair: (-pair[1], pair[0]))
    parts = [f"{part} {short(key, size)}" for part, size in sums[:NAMED]]
    rest = sum(size for _, size in sums[NAMED:])
    parts += [f"others {short(key, rest)}"] if rest else []
    parts += [f"kept for those that wait {short(key, kept)}"] if kept else []
    told = f" ({', '.join(parts)})" if parts else ""
    return (
        f"the {scope.kind} {scope.name} may have at most {words(key, limit)}, it holds {short(key, held + kept)}{told}, and "
        f"one more replica of {name} takes {short(key, more)}: raise the limit with "
        f"`llmgw quota set {shlex.quote(f'{scope.kind}:{scope.name}')}`, or let another of its models rest"
    )


def without_names(text: str) -> str:
    """Words of a limit, alone or within others, for who asks for a model: the sums stay, other models' names go. No name
    of a model has a bracket."""
    return _ADVICE.sub(": an administrator can raise the limit", _SUMS.sub(r"\1\2", text))
