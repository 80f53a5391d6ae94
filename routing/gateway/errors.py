"""Refusals as HTTP on the OpenAI endpoints: `llmgw_site.lib.errors` in, status, headers and an error object out."""

from __future__ import annotations

import math

from llmgw_site.lib.errors import HTTP_STATUS, Kind, Refused
from routing.domain.endpoints import Shape
from routing.domain.envelopes import error_body
from routing.gateway.response import Broken, TooSlow, UpstreamError

JSON = (b"content-type", b"application/json")
NO_RETRY = (b"x-should-retry", b"false")
"""Read by OpenAI's clients, which else ask again on any 5xx."""

Headers = list[tuple[bytes, bytes]]


def render(error: Refused, shape: Shape = Shape.OPENAI) -> tuple[int, Headers, bytes]:
    """Status, headers (without the request id) and body of a refusal."""
    body = error_body(error, shape)
    headers: Headers = [JSON, (b"content-length", b"%d" % len(body))]
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after))))
    if error.kind is Kind.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Bearer realm="llmgw"'))
    if error.code in ("model_disabled", "model_parked", "request_over_limit"):
        headers.append(NO_RETRY)
    return HTTP_STATUS[error.kind], headers, body


def from_upstream(error: UpstreamError, model: str) -> Refused:
    """What a client is told of an engine that failed: `engine_unreachable`, `engine_timeout` or `engine_broken`."""
    codes = ("engine_unreachable", "engine_timeout", "engine_broken")
    return _failed(error, codes, f"The engine of '{model}'", broke="broke off")


def from_node(error: UpstreamError, model: str) -> Refused:
    """The same of another node: `upstream_unreachable`, `upstream_timeout` or `upstream_lost`."""
    codes = ("upstream_unreachable", "upstream_timeout", "upstream_lost")
    return _failed(error, codes, f"The node that serves '{model}'", broke="was lost")


def _failed(error: UpstreamError, codes: tuple[str, str, str], who: str, *, broke: str) -> Refused:
    """`codes` are those of the three cases. The cause's own text stays in the log: it names addresses.

    1. unreachable 502   no connection stood, or none within the connect timeout: nothing ran
    2. timeout     504   it accepted the request and was silent for too long
    3. broken      502   it broke off; the request may have run, so it is not sent again
    """
    unreachable, timeout, broken = codes
    if not error.reached:  # 1
        return Refused(
            Kind.UPSTREAM,
            unreachable,
            f"{who} could not be reached, so nothing was run: try again in a few seconds.",
            retry_after=2,
        )
    if isinstance(error, TooSlow) and error.stage == "silent":  # 2
        return Refused(
            Kind.TIMEOUT,
            timeout,
            f"{who} has said nothing for {error.seconds:g} s, not even that the request waits, and was given up. The request "
            "may have run and was not sent again: send it anew if running it twice does no harm.",
        )
    if isinstance(error, TooSlow):
        what = "began to answer" if error.stage == "first_byte" else "went on with its answer"
        return Refused(
            Kind.TIMEOUT,
            timeout,
            f"{who} has not {what} within {error.seconds:g} s and was given up. "
            "Ask for less, or have the model's timeout raised.",
        )
    early = isinstance(error, Broken) and not error.headers_received  # 3
    when = "before it answered" if early else "in the middle of its answer"
    return Refused(
        Kind.UPSTREAM,
        broken,
        f"{who} {broke} {when}. The request may have run and was not sent again: "
        "send it anew if running it twice does no harm.",
    )


def internal() -> Refused:
    """Our own defect: the log has the cause under the request id."""
    return Refused(
        Kind.INTERNAL, "internal_error", "llmgw failed on this request: tell an administrator the X-Request-Id."
    )


def stopping() -> Refused:
    """The process ends before the request did."""
    return Refused(
        Kind.UNAVAILABLE, "gateway_stopping", "The gateway is being restarted: send the request again.", retry_after=2
    )
