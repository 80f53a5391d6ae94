"""/v1/models: what this key may use, in OpenAI's shape, with what engines say of it."""

from __future__ import annotations

import orjson

from llmgw_site.lib.errors import Refused
from routing.domain.choose import allowed, disabled
from routing.domain.openai import model_list, model_not_found, model_object
from routing.domain.tenancy import Holder
from routing.gateway.errors import JSON, Headers
from routing.gateway.exchange import Exchange
from routing.gateway.peers import Peers
from routing.gateway.table import View

PATH = "/v1/models"


def models(view: View, key: Holder, peers: Peers) -> bytes:
    """The models that this key may use and that some live node serves or shall serve, by name."""
    listed = peers.listed()
    return model_list((view.routes[name].model, said) for name, said in listed.items() if allowed(key, name))


def one_model(view: View, key: Holder, name: str, peers: Peers) -> bytes | Refused:
    """One model; refused as a chat with it would be when it is unknown, not allowed, disabled, or every node is down."""
    route = view.routes.get(name)
    if route is None or not allowed(key, name):
        return model_not_found(name)
    if not route.model.enabled:
        return disabled(route.model)
    said = peers.listed_one(route)
    return peers.refusal(route) if said is None else orjson.dumps(model_object(route.model, said))


async def answer(exchange: Exchange, view: View, key: Holder, peers: Peers) -> None:
    """GET /v1/models and GET /v1/models/{id}; an id may hold slashes."""
    name = exchange.scope["path"][len(PATH) + 1 :]
    body = one_model(view, key, name, peers) if name else models(view, key, peers)
    if isinstance(body, Refused):
        raise body
    headers: Headers = [JSON, (b"content-length", b"%d" % len(body))]
    exchange.outcome = exchange.outcome.OK
    await exchange.answer(200, headers, body)
