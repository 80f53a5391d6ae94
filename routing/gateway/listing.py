"""/v1/models: what this key may use, in OpenAI's shape."""

from __future__ import annotations

import orjson

from llmgw_site.lib.errors import Refused
from routing.domain.choose import allowed, disabled
from routing.domain.openai import model_list, model_not_found, model_object
from routing.domain.snapshot import KeyEntry
from routing.gateway.errors import JSON, Headers
from routing.gateway.exchange import Exchange
from routing.gateway.table import View

PATH = "/v1/models"


def models(view: View, key: KeyEntry) -> bytes:
    """The enabled models of the catalogue that this key may use, by name; whether one is ready is another question."""
    entries = [route.model for name, route in sorted(view.routes.items()) if allowed(key, name)]
    return model_list(entry for entry in entries if entry.enabled)


def one_model(view: View, key: KeyEntry, name: str) -> bytes | Refused:
    """One model; refused as a chat with it would be when it is unknown, not allowed, or disabled."""
    route = view.routes.get(name)
    if route is None or not allowed(key, name):
        return model_not_found(name)
    return orjson.dumps(model_object(route.model)) if route.model.enabled else disabled(route.model)


async def answer(exchange: Exchange, view: View, key: KeyEntry) -> None:
    """GET /v1/models and GET /v1/models/{id}; an id may hold slashes."""
    name = exchange.scope["path"][len(PATH) + 1 :]
    body = one_model(view, key, name) if name else models(view, key)
    if isinstance(body, Refused):
        raise body
    headers: Headers = [JSON, (b"content-length", b"%d" % len(body))]
    exchange.outcome = exchange.outcome.OK
    await exchange.answer(200, headers, body)
