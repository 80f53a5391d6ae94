"""Refusals as HTTP on the OpenAI endpoints: `llmgw_site.lib.errors` in, status, headers and an error object out."""

from __future__ import annotations

import math

from llmgw_site.lib.errors import HTTP_STATUS, Kind, Refused
from routing.domain.openai import error_body
from routing.gateway.response import Broken, NotReached, TooSlow, UpstreamError

JSON = (b"content-type", b"application/json")

Headers = list[tuple[bytes, bytes]]


def render(error: Refused) -> tuple[int, Headers, bytes]:
    """Status, headers (without the request id) and body of a refusal."""
    body = error_body(error)
    headers: Headers = [JSON, (b"content-length", b"%d" % len(body))]
    if error.retry_after is not None:
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(error.retry_after))))
    if error.kind is Kind.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Bearer realm="llmgw"'))
    if error.code == "model_disabled":
        headers.append((b"x-should-retry", b"false"))  # read by OpenAI's clients, which else ask again on any 503
    return HTTP_STATUS[error.kind], headers, body


def from_upstream(error: UpstreamError, model: str) -> Refused:
    """What a client is told of an engine that failed. The cause's own text stays in the log: it names addresses.

    1. `engine_unreachable` 502   no connection stood, or none within the connect timeout: nothing ran
    2. `engine_timeout`     504   the engine accepted the request and was silent for too long
    3. `engine_broken`      502   it broke off; the request may have run, so it is not sent again
    """
    if isinstance(error, NotReached) or (isinstance(error, TooSlow) and error.stage == "connect"):  # 1
        return Refused(
            Kind.UPSTREAM,
            "engine_unreachable",
            f"The engine of '{model}' could not be reached, so nothing was run: try again in a few seconds.",
            retry_after=2,
        )
    if isinstance(error, TooSlow):  # 2
        what = "began to answer" if error.stage == "first_byte" else "went on with its answer"
        return Refused(
            Kind.TIMEOUT,
            "engine_timeout",
            f"The engine of '{model}' has not {what} within {error.seconds:g} s and was given up. "
            "Ask for less, or have the model's timeout raised.",
        )
    early = isinstance(error, Broken) and not error.headers_received  # 3
    when = "before it answered" if early else "in the middle of its answer"
    return Refused(
        Kind.UPSTREAM,
        "engine_broken",
        f"The engine of '{model}' broke off {when}. The request may have run and was not sent again: "
        "send it anew if running it twice does no harm.",
    )


def from_node(error: UpstreamError, model: str) -> Refused:
    """The same for another node.

    1. `upstream_unreachable` 502   no connection stood, or none within the connect timeout: nothing ran
    2. `upstream_timeout`     504   it accepted the request and was silent for too long
    3. `upstream_lost`        502   it broke off; the request may have run, so it is not sent again
    """
    if not error.reached:  # 1
        return Refused(
            Kind.UPSTREAM,
            "upstream_unreachable",
            f"The node that serves '{model}' could not be reached, so nothing was run: try again in a few seconds.",
            retry_after=2,
        )
    if isinstance(error, TooSlow):  # 2
        what = "began to answer" if error.stage == "first_byte" else "went on with its answer"
        return Refused(
            Kind.TIMEOUT,
            "upstream_timeout",
            f"The node that serves '{model}' has not {what} within {error.seconds:g} s and was given up. "
            "Ask for less, or have the model's timeout raised.",
        )
    early = isinstance(error, Broken) and not error.headers_received  # 3
    when = "before it answered" if early else "in the middle of its answer"
    return Refused(
        Kind.UPSTREAM,
        "upstream_lost",
        f"The node that serves '{model}' was lost {when}. The request may have run and was not sent again: "
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
