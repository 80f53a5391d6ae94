"""A client's request for an alias becomes one for the model that it stands for, once, before anything else is decided of it."""

from __future__ import annotations

from dataclasses import replace

from routing.domain.aliases import able, narrowed, open_to, pick
from routing.domain.fallbacks import renamed
from routing.domain.openai import Ask
from routing.gateway.exchange import Exchange
from routing.gateway.peers import Peers
from routing.gateway.table import View


def resolve(exchange: Exchange, view: View, peers: Peers, ask: Ask, body: bytes) -> tuple[Ask, bytes]:
    """The request for one of the alias's targets, body and key as that needs them; unchanged where no alias is asked for, or none
    that the key may use: then there is no such model.

    A conversation stays with one target where the strategy follows conversations; what belongs to none goes by its record's id.
    """
    alias, key = view.aliases.get(ask.model), exchange.key
    if alias is None or ask.model in view.routes or key is None:
        return ask, body
    targets = open_to(alias, key, view.routes)
    if not targets:
        return ask, body
    seed = peers.session(key.key_id, exchange.session, body) or exchange.record_id
    part = able(targets, view.routes, key, endpoint=exchange.endpoint, now=exchange.started_at)
    target = pick(alias.name, part, seed)
    exchange.asked, exchange.alias_target = alias.name, target
    exchange.key = replace(key, models=narrowed(key, alias.name))
    return renamed(ask, body, target)
