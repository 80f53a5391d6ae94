"""/v1/models: what this key may use, in OpenAI's shape with what engines say of it, or in Anthropic's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from llmgw_site.lib.errors import Refused
from routing.domain import model_pages
from routing.domain.aliases import entry_of, open_to
from routing.domain.choose import Route, allowed, disabled
from routing.domain.endpoints import MODELS_PATH, Shape
from routing.domain.openai import model_list, model_not_found, model_object
from routing.domain.snapshot import ModelEntry
from routing.domain.tenancy import Holder
from routing.gateway.errors import JSON, Headers
from routing.gateway.exchange import Exchange
from routing.gateway.peers import Peers
from routing.gateway.table import View

PATH = MODELS_PATH


def models(view: View, key: Holder, peers: Peers) -> bytes:
    """The models that this key may use and that some live node serves or shall serve, by name; then the aliases that lead to one."""
    listed = peers.listed()
    found = [(view.routes[name].model, said) for name, said in listed.items() if allowed(key, name)]
    return model_list([*found, *_aliases(view, key, listed)])


def _aliases(view: View, key: Holder, listed: Mapping[str, object]) -> Iterator[tuple[ModelEntry, Mapping[str, Any]]]:
    for name in sorted(view.aliases.keys() - view.routes.keys()):
        routes = [route for route in _targets(view, key, name) if route.model.name in listed]
        if routes:
            yield entry_of(view.aliases[name], [route.model for route in routes]), {}


def _targets(view: View, key: Holder, name: str) -> list[Route]:
    """What an alias of this name stands for, of what this key may use by it; nothing where there is no such alias."""
    alias = view.aliases.get(name)
    targets = open_to(alias, key, view.routes) if alias is not None and name not in view.routes else ()
    return [view.routes[item.model] for item in targets]


def page(view: View, key: Holder, peers: Peers, query: bytes) -> bytes:
    """The same for Anthropic's clients."""
    listed = peers.listed()
    found = [view.routes[name].model for name in listed if allowed(key, name)]
    return model_pages.page([*found, *(entry for entry, _ in _aliases(view, key, listed))], query)


def one_model(view: View, key: Holder, name: str, peers: Peers, shape: Shape) -> bytes | Refused:
    """One model or alias; refused as a chat with it would be when it is unknown, not allowed, disabled, or every node is down."""
    if targets := _targets(view, key, name):
        offered = [route for route in targets if route.model.enabled and peers.listed_one(route) is not None]
        if offered:
            return _object(entry_of(view.aliases[name], [route.model for route in offered]), {}, shape)
        first = next((route for route in targets if route.model.enabled), targets[0])
        return peers.refusal(first) if first.model.enabled else disabled(first.model)
    route = view.routes.get(name)
    if route is None or not allowed(key, name):
        return model_not_found(name)
    if not route.model.enabled:
        return disabled(route.model)
    said = peers.listed_one(route)
    return peers.refusal(route) if said is None else _object(route.model, said, shape)


def _object(entry: ModelEntry, said: Mapping[str, Any], shape: Shape) -> bytes:
    return orjson.dumps(model_pages.described(entry) if shape is Shape.ANTHROPIC else model_object(entry, said))


async def answer(exchange: Exchange, view: View, key: Holder, peers: Peers) -> None:
    """GET /v1/models and GET /v1/models/{id}; an id may hold slashes."""
    name = exchange.scope["path"][len(PATH) + 1 :]
    if name:
        body = one_model(view, key, name, peers, exchange.shape)
    elif exchange.shape is Shape.ANTHROPIC:
        body = page(view, key, peers, exchange.scope["query_string"])
    else:
        body = models(view, key, peers)
    if isinstance(body, Refused):
        raise body
    headers: Headers = [JSON, (b"content-length", b"%d" % len(body))]
    exchange.outcome = exchange.outcome.OK
    await exchange.answer(200, headers, body)
