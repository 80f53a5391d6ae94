"""What the spool is told of a request: that it is under way, once and before anything can be lost of it, and how it ended."""

from __future__ import annotations

from routing.domain.costs import cost
from routing.domain.records import UsageRecord
from routing.gateway.exchange import Exchange
from routing.gateway.ledger import Ledger

LONGEST_NAME = 200
"""Characters of a model's name that a record keeps. The catalogue has no longer ones; of one that a client makes up, megabytes would
be a line that no controller takes, and that all behind it would wait for."""


def under_way(exchange: Exchange, ledger: Ledger) -> None:
    """It is about to be sent, or begins to wait: a gateway that dies from now on leaves its record. Of a request of a client,
    at the first of these; which model is asked later, and which node, the end says."""
    key, ask = exchange.key, exchange.ask
    if exchange.opened or not exchange.record_id or key is None or ask is None:
        return
    exchange.opened = True
    ledger.open(
        {
            "record_id": exchange.record_id,
            "request_id": exchange.request_id,
            "started_at": exchange.started_at,
            "endpoint": exchange.endpoint,
            "stream": ask.stream,
            "key_id": key.key_id,
            "project_id": key.project_id,
            "user": key.user,
            "model_asked": exchange.asked or ask.model,
            "model_served": exchange.model if exchange.node_id else "",
            "alias_target": exchange.alias_target,
            "replica_id": exchange.replica_id,
            "node_id": exchange.node_id,
        }
    )


def record_of(exchange: Exchange, total: float) -> UsageRecord:
    """Of a request that is over, `total` seconds after its head."""
    key, ask, counts = exchange.key, exchange.ask, exchange.counts
    began, first = exchange.began, exchange.first_token_at
    return UsageRecord(
        record_id=exchange.record_id,
        request_id=exchange.request_id,
        started_at=exchange.started_at,
        endpoint=exchange.endpoint,
        stream=ask is not None and ask.stream,
        key_id=key.key_id if key is not None else "",
        project_id=key.project_id if key is not None else "",
        model_asked=(exchange.asked or (ask.model if ask is not None else ""))[:LONGEST_NAME],
        model_served=exchange.model if exchange.forwarded_at is not None else "",
        replica_id=exchange.replica_id,
        node_id=exchange.node_id,
        outcome=exchange.outcome,
        status=exchange.status,
        code=exchange.code,
        queue_s=exchange.queue_s,
        schedule_s=exchange.schedule_s,
        first_token_s=None if first is None else round(first - began, 6),
        total_s=total,
        prompt_tokens=None if counts is None else counts.prompt,
        completion_tokens=None if counts is None else counts.completion,
        cached_tokens=None if counts is None else counts.cached,
        estimated=counts is not None and counts.estimated,
        reasoning_tokens=None if counts is None else counts.reasoning,
        audio_seconds=None if counts is None else counts.audio,
        user=key.user if key is not None else "",
        cost=cost(exchange.price, counts),
        finish_reason="" if counts is None else counts.finish,
        client_gone=exchange.gone,
        alias_target=exchange.alias_target,
    )
