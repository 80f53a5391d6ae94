"""The usage record: one per request, whatever fails. Also the lines of the spool.

The gateway that authenticated the client writes an `open` line before it forwards and a `close` line after;
a close line holds the whole record. An open line without a close, found by the next gateway, is closed as failed.

    {"op": "open",  "record": {...what is known so far...}}
    {"op": "close", "record": {...all of it...}}
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    OK = "ok"
    CLIENT_GONE = "client_gone"  # the client left before the end
    REFUSED = "refused"  # answered by llmgw itself, nothing was forwarded
    FAILED = "failed"  # accepted, then an engine, a node or llmgw broke


@dataclass(kw_only=True, slots=True)
class UsageRecord:
    """Times are Unix seconds, spans seconds, counts tokens. None: not known, never zero.

    Nobody changes one; it is not frozen because that takes three times as long to make, and one is made for each request.
    """

    record_id: str
    request_id: str
    started_at: float
    endpoint: str  # a name of routing/domain/endpoints.py
    stream: bool = False
    key_id: str = ""
    project_id: str = ""
    model_asked: str = ""
    model_served: str = ""
    replica_id: str = ""
    node_id: str = ""
    outcome: str = Outcome.FAILED
    status: int = 0  # HTTP status the client was given; 499: the client left first
    code: str = ""  # error code, if it ended with one
    queue_s: float | None = None  # before it was sent to whoever answered
    schedule_s: float | None = None  # of these, in which its place was looked for, a model that had to come up included
    first_token_s: float | None = None
    total_s: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    estimated: bool = False  # counts were counted from what passed, not reported by the engine
    finish_reason: str = ""  # why the answer ended, as its API says it: stop, end_turn, completed ...; empty: not known
    reasoning_tokens: int | None = None  # of the completion, those that were thought and not said
    user: str = ""  # id of the user whose key it was; empty: the project's
    cost: int | None = None  # micro-units of the cluster's currency; None: no price, or nothing was counted
    client_gone: bool = False  # the client left before the end, whatever else happened
    alias_target: str = ""  # model or adapter that was chosen, where `model_asked` is an alias
    audio_seconds: int | None = None  # of sound that was heard, where the engine counts by time
