"""What several edges have of limits, counted in Valkey: each question for a limit is one script, so nobody sees half of it.

Nothing of it is in a table. Where Valkey is away nobody counts, and edges work on their shares; what it lost is counted
anew (docs/limits.md).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from cluster.domain.leasing import (
    COUNTED,
    KINDS,
    MOST,
    PARALLEL,
    PERMITS,
    LimitGrant,
    LimitsAnswer,
    LimitsAsk,
    LimitWant,
)
from cluster.wire import WireError
from llmgw_site.lib.errors import Kind, Refused

PATIENCE = 0.3
"""Seconds for Valkey's answer: edges give a controller half a second."""
LARGEST = (1 << 53) - 1
"""What Lua counts exactly."""
_SCOPE = re.compile(r"[A-Za-z0-9_-]{1,64}")

_PER_MINUTE = """
local limit, want, back, taken, span = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local second = tonumber(time[1])
local now = second + tonumber(time[2]) / 1000000
local every, slots, total = redis.call('HGETALL', KEYS[1]), {}, 0
for i = 1, #every, 2 do
  local at, amount = tonumber(every[i]), tonumber(every[i + 1])
  if at + 1 + span <= now or amount <= 0 then
    redis.call('HDEL', KEYS[1], every[i])
  else
    slots[#slots + 1] = {at, amount}
    total = total + amount
  end
end
table.sort(slots, function(a, b) return a[1] < b[1] end)
for _, slot in ipairs(slots) do
  local part = math.min(back, slot[2])
  if part > 0 then
    slot[2] = slot[2] - part
    back, total = back - part, total - part
    redis.call('HSET', KEYS[1], slot[1], string.format('%.0f', slot[2]))
  end
end
local granted = math.max(0, math.min(want, limit - total - taken))
if granted + taken > 0 then
  redis.call('HINCRBY', KEYS[1], second, string.format('%.0f', granted + taken))
  redis.call('EXPIRE', KEYS[1], math.ceil(span) + 5)
  if #slots > 0 and slots[#slots][1] == second then
    slots[#slots][2] = slots[#slots][2] + granted + taken
  else
    slots[#slots + 1] = {second, granted + taken}
  end
end
local told = {string.format('%.0f', granted), string.format('%.0f', limit - total - taken - granted)}
if granted < want then
  for _, slot in ipairs(slots) do
    if slot[2] > 0 then
      told[#told + 1] = string.format('%.6f', slot[1] + 1 + span - now)
      told[#told + 1] = string.format('%.0f', slot[2])
    end
  end
end
return told
"""
"""A hash of seconds and what was given in each. Back goes what was given first: what is left then leaves no sooner than
it would have."""

_PARALLEL = """
local limit, want, running, node, span = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
local time = redis.call('TIME')
local now = tonumber(time[1]) + tonumber(time[2]) / 1000000
local every, others = redis.call('HGETALL', KEYS[1]), 0
for i = 1, #every, 2 do
  local count, ends = string.match(every[i + 1], '^(%d+) ([%d.]+)$')
  if tonumber(ends) <= now then
    redis.call('HDEL', KEYS[1], every[i])
  elseif every[i] ~= node then
    others = others + tonumber(count)
  end
end
local granted = math.max(0, math.min(want, limit - others))
local kept = math.max(granted, running)
if kept > 0 then
  redis.call('HSET', KEYS[1], node, string.format('%.0f %.6f', kept, now + span))
  redis.call('EXPIRE', KEYS[1], math.ceil(span) + 5)
else
  redis.call('HDEL', KEYS[1], node)
end
return {string.format('%.0f', granted), string.format('%.0f', limit - others - kept)}
"""
"""A hash of edges, each with its permits and when they end."""


def lease(question: LimitsAsk, *, node_id: str) -> LimitsAnswer:
    """Count what an edge says, and give it of what it wants as much as there is. Raises WireError, Refused."""
    if len(question.wants) > MOST:
        raise WireError(f"LimitsAsk.wants: {len(question.wants)} limits, and at most {MOST} go into one question")
    for want in question.wants:
        _check(want)
    client = _client(settings.REDIS_URL)
    per_minute, parallel = client.register_script(_PER_MINUTE), client.register_script(_PARALLEL)
    try:
        with client.pipeline(transaction=False) as pipe:
            for want in question.wants:
                keys = [f"llmgw:limit:{want.scope}:{want.kind}"]
                if want.kind == PARALLEL:
                    parallel(keys=keys, args=[want.limit, want.want, want.taken, node_id, PERMITS], client=pipe)
                else:
                    args = [want.limit, want.want, want.back, want.taken, COUNTED]
                    per_minute(keys=keys, args=args, client=pipe)
            told: list[Any] = pipe.execute()
            if not question.wants:
                client.ping()  # an edge that asks whether anybody counts
    except RedisError as error:
        text = f"Valkey does not answer ({type(error).__name__}): nobody counts limits, gateways work on their shares."
        raise Refused(Kind.UNAVAILABLE, "limits_not_counted", text, retry_after=2) from None
    return LimitsAnswer(grants=tuple(_grant(want, item) for want, item in zip(question.wants, told, strict=True)))


def _grant(want: LimitWant, told: list[bytes]) -> LimitGrant:
    return LimitGrant(
        scope=want.scope,
        kind=want.kind,
        granted=int(told[0]),
        left=int(told[1]),
        leaves=tuple(float(item) for item in told[2::2]),
        amounts=tuple(int(item) for item in told[3::2]),
    )


def _check(want: LimitWant) -> None:
    if want.kind not in KINDS or not _SCOPE.fullmatch(want.scope):
        raise WireError(f"LimitWant: there is no limit {want.kind[:40]!r} of {want.scope[:64]!r}")
    if not all(0 <= item <= LARGEST for item in (want.limit, want.want, want.back, want.taken)):
        raise WireError("LimitWant: an amount is below nothing or beyond counting")


@lru_cache(maxsize=4)
def _client(url: str) -> redis.Redis:
    once_more = Retry(
        NoBackoff(), 1
    )  # on a connection that is of before a restart; what is counted twice is free in a minute
    return redis.Redis.from_url(url, socket_connect_timeout=PATIENCE, socket_timeout=PATIENCE, retry=once_more)
