"""The cloud module: requests for external models go to their provider, with the provider's name and key.

Of the client's request only the body goes out, with the model's name replaced; every header is ours. Of the provider's
answer only the body comes back: its headers speak of the account that the key belongs to. Redirects are not followed: the
key was given for this address. A request is sent once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from urllib.parse import urlsplit

from catalog.domain.providers import plain_key
from cluster.domain.modules import Module
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.logs import event
from llmgw_site.lib.sealing import WrongSecret
from routing.domain.choose import Route
from routing.domain.endpoints import ENDPOINTS, MESSAGES
from routing.domain.envelopes import body_of
from routing.domain.openai import Ask, engine_error, lacking
from routing.domain.outgoing import Outgoing, outgoing
from routing.domain.snapshot import ProviderEntry
from routing.gateway.errors import JSON
from routing.gateway.exchange import Exchange
from routing.gateway.forward import carry, read_error, send_error
from routing.gateway.inflate import plain
from routing.gateway.membership import Members
from routing.gateway.metrics import Metrics
from routing.gateway.speech import Speech
from routing.gateway.table import View
from routing.gateway.upload import content_type, payload
from routing.gateway.upstream import Broken, Headers, Response, Target, TooSlow, Upstream, UpstreamError

log = logging.getLogger(__name__)

KEY_BYTES = 8192
"""Bytes of a key file that are read; a key has at most 4096 and perhaps a line end."""
ANTHROPIC, ANTHROPIC_VERSION = "api.anthropic.com", b"2023-06-01"
"""Takes its key as `x-api-key` only, where all others that speak messages take a bearer; wants a version named."""
_SPOKEN = frozenset((b"anthropic-version", b"anthropic-beta"))
_PLAIN = re.compile(rb"[A-Za-z0-9_.,: -]{1,512}")
_KEPT = frozenset((b"content-type", b"content-length", b"content-encoding", b"retry-after"))
"""Headers of a provider's answer that concern the client."""


class Cloud:
    """The module of this node."""

    def __init__(
        self, config: Config, members: Members, upstream: Upstream, metrics: Metrics, *, view: Callable[[], View]
    ) -> None:
        self._config = config
        self._members = members
        self._upstream = upstream
        self._metrics = metrics
        self._view = view
        self._speech = Speech()
        self._tls: asyncio.Task[ssl.SSLContext] | None = None

    def serves(self, route: Route) -> bool:
        """Whether this node can ask the model's provider: the module runs, and the node has been told of it."""
        external = route.model.external
        if external is None or not self._members.runs(Module.CLOUD):
            return False
        return external.provider_id in self._view().providers

    async def answer(self, exchange: Exchange, ask: Ask, route: Route, body: bytes) -> None:
        """Send the request to the model's provider and its answer to the client. Raises Refused:

        1. `provider_unknown`      503 this node is not told of the provider any more
        2. `provider_key_missing`  503 its key cannot be read here; the log says why
        3. `provider_unreachable`  502 no connection stood, its certificate included: nothing ran
        4. `provider_timeout`      504 it accepted the request and was silent for too long
        5. `provider_broken`       502 it broke off, redirected, or answered what is no answer
        6. `provider_refused_key`  502 it does not accept the key
        """
        external = route.model.external
        provider = self._view().providers.get(external.provider_id) if external is not None else None
        if external is None or provider is None:  # 1
            raise _unknown(route.model.name)
        exchange.node_id, exchange.replica_id = self._members.node_id, ""
        out = outgoing(exchange.endpoint, ask, body, served_name=external.model)
        out = self._speech.first(provider.provider_id, out, exchange.loop.time())
        try:
            key = await self._key(provider, route.model.name)  # 2
            await self._send(exchange, ask, route, provider, key, out)
        except UpstreamError as error:
            refused = _refusal(error, route.model.name)  # 3, 4, 5
            self._failed(exchange, provider, refused.code, str(error))
            raise refused from error
        except Refused as refused:  # 2, 5, 6
            self._failed(exchange, provider, refused.code, "")
            raise
        if exchange.code:  # the provider's own error, passed on
            self._failed(exchange, provider, "provider_error", exchange.code)

    async def _send(
        self, exchange: Exchange, ask: Ask, route: Route, provider: ProviderEntry, key: str, out: Outgoing
    ) -> None:
        config, model = self._config, route.model
        scheme, host, port, prefix = _place(provider.url)
        target = Target(host, port, tls=await self._context() if scheme == "https" else None)
        if exchange.forwarded_at is None:
            exchange.forwarded_at = exchange.loop.time()
        exchange.pings = ask.stream

        async def send(out: Outgoing) -> Response:
            response = await self._upstream.request(
                target,
                method=b"POST",
                path=_path(prefix, out.path),
                headers=_headers(exchange, host, key, out),
                **payload(exchange, out.body),
                first_byte_timeout=model.first_byte_timeout or config.first_byte_timeout,
                idle_timeout=model.idle_timeout or config.idle_timeout,
            )
            response.headers = [item for item in response.headers if item[0] in _KEPT]
            return plain(response)

        response = await self._speech.ask(provider.provider_id, out, send, exchange.loop.time())
        await carry(exchange, response, partial(_error, model=model.name, key=key))

    async def _key(self, provider: ProviderEntry, model: str) -> str:
        """The provider's key; empty where it has none. Raises Refused `provider_key_missing`."""
        try:
            if provider.key_file:
                return await asyncio.to_thread(_read_key, Path(provider.key_file), self._config.data)
            if provider.sealed_key:
                return self._members.unseal(provider.sealed_key, about=provider.provider_id)
        except (OSError, WrongSecret, ValueError) as error:
            text = str(error)
        else:
            if not provider.key_digest:
                return ""
            text = "the controllers could not unseal it: set it anew"
        where = {"file": provider.key_file} if provider.key_file else {}
        event(log, "provider_key_missing", level=logging.ERROR, provider=provider.name, reason=text, **where)
        raise Refused(
            Kind.UNAVAILABLE,
            "provider_key_missing",
            f"The key for the provider of '{model}' cannot be read: tell an administrator, whose log says why.",
        )

    async def _context(self) -> ssl.SSLContext:
        """TLS with the certificates that this machine trusts. Loading them takes tens of milliseconds: once, in a thread."""
        if self._tls is None or (self._tls.done() and (self._tls.cancelled() or self._tls.exception() is not None)):
            self._tls = asyncio.get_running_loop().create_task(asyncio.to_thread(_trusting))
        return await asyncio.shield(self._tls)

    def _failed(self, exchange: Exchange, provider: ProviderEntry, code: str, reason: str) -> None:
        self._metrics.engine_failed(exchange.model, code)
        event(
            log, "provider_failed", level=logging.WARNING, provider=provider.name, model=exchange.model, code=code,
            reason=reason[:300], request_id=exchange.request_id,
        )  # fmt: skip


def _headers(exchange: Exchange, host: str, key: str, out: Outgoing) -> Headers:
    """All that a provider is told beside the body. Of a client's headers only those that say which messages it speaks."""
    stream = exchange.ask is not None and exchange.ask.stream
    headers = [
        (b"content-type", content_type(exchange) if exchange.upload else b"application/json"),
        (b"accept", b"text/event-stream" if stream else b"application/json"),
        (b"accept-encoding", b"identity"),
        (b"user-agent", b"llmgw"),
    ]
    messages = out.path.startswith(ENDPOINTS[MESSAGES].path)
    if messages:
        said = {name: value for name, value in exchange.scope["headers"] if name in _SPOKEN and _PLAIN.fullmatch(value)}
        headers += {b"anthropic-version": ANTHROPIC_VERSION, **said}.items()
    if key and messages and host == ANTHROPIC:
        headers.append((b"x-api-key", key.encode("ascii")))
    elif key:
        headers.append((b"authorization", b"Bearer " + key.encode("ascii")))
    return headers


@lru_cache(maxsize=256)
def _place(url: str) -> tuple[str, str, int, bytes]:
    """Scheme, host, port and path of a base URL."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme, parts.hostname or "", port, parts.path.rstrip("/").encode("ascii")


def _path(prefix: bytes, path: str) -> bytes:
    """At the provider: its URL stands for `/v1`; what is not below that is not below its `/v1` either."""
    if path.startswith("/v1/"):
        return prefix + path.removeprefix("/v1").encode()
    return prefix.removesuffix(b"/v1") + path.encode()


def _read_key(path: Path, data: Path) -> str:
    """The key that a file holds. Raises OSError, or ValueError for what is no key, or lies where our own secrets are."""
    real = path.resolve(strict=True)
    if real.is_relative_to(data.resolve()):
        raise ValueError("it lies in llmgw's own data folder, where other secrets are: keep it elsewhere")
    handle = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    with open(handle, "rb") as file:
        if not real.is_file():
            raise ValueError("it is no regular file")
        raw = file.read(KEY_BYTES)
    key = plain_key(raw.decode("ascii"))
    if key is None:
        raise ValueError("it is empty, or holds more than one line of printable ASCII")
    return key


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


async def _error(exchange: Exchange, response: Response, *, model: str, key: str) -> None:
    """A provider's error answer, in the endpoint's shape and with its status; see `Cloud.answer` for the exceptions."""
    status = response.status
    told = await read_error(response)
    if status in (401, 403):
        raise Refused(
            Kind.UPSTREAM,
            "provider_refused_key",
            f"The provider of '{model}' refuses the key that llmgw has for it: tell an administrator.",
        )
    if not 400 <= status < 600:
        raise Refused(
            Kind.UPSTREAM, "provider_broken", f"The provider of '{model}' answered with the unexpected status {status}."
        )
    if key:
        told = told.replace(key.encode(), b"[provider key]")
    error = engine_error(status, told, secret=key, who="provider")
    status, error = lacking(status, error, exchange.scope["path"], who="provider")
    body = body_of(status, error, exchange.shape)
    headers: Headers = [JSON, (b"content-length", b"%d" % len(body))]
    headers += [item for item in response.headers if item[0] == b"retry-after"]
    await send_error(exchange, status, headers, body, code=error["code"])


def _refusal(error: UpstreamError, model: str) -> Refused:
    """What a client is told of a provider that failed; the cause's own text stays in the log: it names addresses."""
    if not error.reached:
        return Refused(
            Kind.UPSTREAM,
            "provider_unreachable",
            f"The provider of '{model}' could not be reached, so nothing was run: try again in a few seconds.",
            retry_after=2,
        )
    if isinstance(error, TooSlow):
        what = "began to answer" if error.stage == "first_byte" else "went on with its answer"
        return Refused(
            Kind.TIMEOUT,
            "provider_timeout",
            f"The provider of '{model}' has not {what} within {error.seconds:g} s and was given up. "
            "Ask for less, or have the model's timeout raised.",
        )
    early = isinstance(error, Broken) and not error.headers_received
    when = "before it answered" if early else "in the middle of its answer"
    return Refused(
        Kind.UPSTREAM,
        "provider_broken",
        f"The provider of '{model}' broke off {when}. The request may have run and was not sent again: "
        "send it anew if running it twice does no harm.",
    )


def _unknown(model: str) -> Refused:
    return Refused(
        Kind.UNAVAILABLE,
        "provider_unknown",
        f"This node is not told of the provider of '{model}': try again in a few seconds, or ask an administrator.",
        param="model",
        retry_after=5,
    )
