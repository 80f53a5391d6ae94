"""Which models may answer a request, in which order, and after which refusals the next one is asked.

Only while nobody has accepted the request: what an engine, a node or a provider has begun to work at is never sent a second time.
"""

from __future__ import annotations

from collections.abc import Mapping

import orjson

from routing.domain import jsonbytes
from routing.domain.budgets import forbids
from routing.domain.choose import Route, allowed
from routing.domain.endpoints import ENDPOINTS
from routing.domain.openai import Ask
from routing.domain.tenancy import Holder

NOT_ACCEPTED = frozenset(
    {
        "model_not_ready", "model_parked", "model_disabled", "activation_unavailable", "activation_timeout",
        "queue_full", "queue_timeout", "no_chat_upstream", "module_stopped", "no_cloud_node",
        "engine_unreachable", "upstream_unreachable", "provider_unreachable", "already_forwarded",
    }
)  # fmt: skip
"""Codes of refusals that say that nobody runs the request."""
TRIED = frozenset(("engine_unreachable", "upstream_unreachable", "provider_unreachable"))
"""Those of them that say that it was sent on its way, and did not arrive."""


def order(
    routes: Mapping[str, Route], key: Holder, ask: Ask, *, endpoint: str, prompt: int, now: float
) -> tuple[str, ...]:
    """The models to ask, the first choice first; just the one that was asked for where it has no fallbacks. `prompt`: tokens;
    `now`: Unix time.

    1. a fallback that is not there, not enabled, not allowed to the key, of another kind, or that costs what a budget of the
       key has no more of, is left out
    2. one for which the prompt is too long is left out, and so is the model itself if another is left
    """
    route = routes.get(ask.model)
    if route is None or not route.model.fallbacks or not allowed(key, ask.model):
        return (ask.model,)
    wanted = ENDPOINTS[endpoint].embeddings
    found = [
        name
        for name in route.model.fallbacks
        if name != ask.model
        and (other := routes.get(name)) is not None
        and other.model.enabled
        and allowed(key, name)
        and (wanted is None or other.model.embeddings == wanted)
        and not any(forbids(purse, other.model.price, now) for purse in key.purses or ())
        and _fits(other, prompt)
    ]  # 1, 2
    return tuple(found) if found and not _fits(route, prompt) else (ask.model, *found)  # 2


def _fits(route: Route, prompt: int) -> bool:
    return route.model.context is None or prompt <= route.model.context


def renamed(ask: Ask, body: bytes, name: str) -> tuple[Ask, bytes]:
    """The same request for another model; of a form, its beginning."""
    if name == ask.model:
        return ask, body
    if ask.model_at is not None:
        start, end = ask.model_at
        new = name.encode()
        return ask._replace(model=name, model_at=(start, start + len(new))), body[:start] + new + body[end:]
    return ask._replace(model=name), jsonbytes.replace(body, "model", orjson.dumps(name))
