"""A client of one OpenID Connect provider: where people sign in, what they come back with, and whether that can be believed.

Source: OpenID Connect Core 1.0 (section 3.1, code flow) and Discovery 1.0; PKCE (RFC 7636); the issuer in answers (RFC 9207).
Links and claims are Authlib's, signatures joserfc's. Every request goes through the outgoing guard; the provider's own host may be
on a private network, since the operator named it, and what its answers name beside it only where such addresses are allowed.
"""

from __future__ import annotations

import secrets
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import quote_plus, urlencode, urlsplit

import httpx
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.client import OAuth2Client
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.outgoing import Guard, GuardedTransport

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""Signatures by a key that the provider alone has: none, and none by a secret that two have."""
LARGEST = 1 << 20
"""Bytes of an answer that are read."""
TIMEOUT = httpx.Timeout(10.0, connect=5.0)
DEADLINE = 30.0
"""Seconds for the head of an answer, and as many for the rest of it: somebody waits for the page."""
LEEWAY = 60
"""Seconds that the provider's clock may differ."""
FRESH = 600.0
"""Seconds that what the provider says of itself is kept."""
PATIENCE = 10.0
"""Seconds between two looks for new keys, and after a look that failed: anybody may send a token that has us look."""
Read = TypeVar("Read")


@dataclass(frozen=True, kw_only=True)
class Started:
    """One try to sign in, between leaving for the provider and coming back. Kept in the browser's session."""

    url: str
    state: str
    nonce: str
    verifier: str


def _basic(client: Any, method: str, uri: str, headers: Any, body: Any) -> tuple[str, Any, Any]:
    """Name and secret are form-encoded each (RFC 6749, section 2.3.1), which Authlib leaves out."""
    pair = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
    headers["Authorization"] = f"Basic {b64encode(pair.encode()).decode()}"
    return uri, headers, body


class _Auth(httpx.Auth, ClientAuth):  # type: ignore[misc]
    """Authlib's way to name a client, as httpx wants it."""

    DEFAULT_AUTH_METHODS = {**ClientAuth.DEFAULT_AUTH_METHODS, "client_secret_basic": _basic}
    requires_request_body = True

    def auth_flow(self, request: httpx.Request) -> Any:
        url, headers, body = self.prepare(request.method, str(request.url), request.headers, request.content)
        raw = body if isinstance(body, bytes) else str(body).encode()
        kept = {name: value for name, value in dict(headers).items() if name.lower() != "content-length"}
        yield httpx.Request(request.method, url, headers=kept, content=raw, extensions=request.extensions)


class _Client(OAuth2Client):  # type: ignore[misc]
    client_auth_class = _Auth


class Provider:
    """One provider. What it says of itself is asked once in a while; threads may share it. Every method raises Refused:

    `oidc_unreachable`  the provider does not answer, or what it answers is no such document
    `oidc_refused`      the provider says no; the message has its reason
    `oidc_untrusted`    an answer that was not made for this try by this provider; the message says what is wrong with it
    """

    def __init__(self, *, issuer: str, client_id: str, client_secret: str, scopes: str, private: bool) -> None:
        self.issuer, self.client_id, self._secret, self._scopes = issuer, client_id, client_secret, scopes
        self._guards = {True: Guard(private=True), False: Guard(private=private)}
        self._lock = Lock()
        self._failed: dict[str, tuple[float, Refused]] = {}  # by address: until when it is not asked again, and why
        self._said: dict[str, Any] = {}
        self._keys: KeySet | None = None
        self._keys_at = self._until = 0.0

    def start(self, redirect_uri: str) -> Started:
        """Where to send the browser, and what to know it again by."""
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        with self._client(redirect_uri, self._metadata("authorization_endpoint")) as (client, url):
            link, _ = client.create_authorization_url(url, state=state, nonce=nonce, code_verifier=verifier)
        return Started(url=link, state=state, nonce=nonce, verifier=verifier)

    def finish(self, started: Started, answer: Mapping[str, str], redirect_uri: str) -> dict[str, Any]:
        """The claims of whoever comes back with `answer`, the query of the redirect. Checked in this order:

        1. state, and the issuer where the answer names one
        2. the provider's own no
        3. the code is exchanged, with the verifier that only this try knows
        4. the ID token: signature, issuer, audience, time, nonce, and the hash of the access token
        5. what only the user info has (groups, often) is asked for and has to be about the same person
        """
        if not secrets.compare_digest(answer.get("state", ""), started.state):  # 1
            raise _untrusted("its state is not that of this try")
        if answer.get("iss", self.issuer) != self.issuer:
            raise _untrusted("it comes from another issuer")
        if "error" in answer:  # 2
            reason = " ".join(filter(None, (answer["error"], answer.get("error_description", ""))))
            raise Refused(Kind.FORBIDDEN, "oidc_refused", f"The provider refused the sign-in: {reason[:300]}.")
        if not answer.get("code"):
            raise _untrusted("it has no code")
        token = self._exchange(started, answer["code"], redirect_uri)  # 3
        claims = self._verified(token, started.nonce)  # 4
        return {**self._more(token, claims), **claims}  # 5

    def told(self, text: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Header and claims of a token that came without being asked for. Only its signature was looked at."""
        try:
            found = self._signed(text, patience=PATIENCE)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise _untrusted(f"its token is not good ({str(error)[:200] or type(error).__name__})") from None
        return dict(found.header), dict(found.claims)

    def end_session(self, back: str) -> str:
        """Where a person ends the session that the provider keeps; empty where it tells of no such place."""
        try:
            url = self._metadata("end_session_endpoint")
        except Refused:
            return ""
        query = urlencode({"client_id": self.client_id, "post_logout_redirect_uri": back})
        return f"{url}{'&' if '?' in url else '?'}{query}"

    # --- steps

    def _exchange(self, started: Started, code: str, redirect_uri: str) -> dict[str, Any]:
        with self._client(redirect_uri, self._metadata("token_endpoint")) as (client, url):
            try:
                token = client.fetch_token(
                    url, grant_type="authorization_code", code=code, code_verifier=started.verifier,
                    redirect_uri=redirect_uri,
                )  # fmt: skip
            except httpx.HTTPError as error:
                raise _unreachable(url, error) from None
            except Refused:
                raise
            except Exception as error:  # Authlib's own, and what it makes of an answer that is no JSON
                raise Refused(
                    Kind.FORBIDDEN, "oidc_refused", f"The provider did not take the code: {str(error)[:300]}."
                ) from None
        return dict(token)

    def _verified(self, token: Mapping[str, Any], nonce: str) -> dict[str, Any]:
        text = token.get("id_token")
        if not isinstance(text, str):
            raise _untrusted("it has no ID token")
        try:
            found = self._signed(text)
            claims = CodeIDToken(
                found.claims, found.header,
                {"iss": {"essential": True, "value": self.issuer}, "aud": {"essential": True, "value": self.client_id}},
                {"nonce": nonce, "client_id": self.client_id, "access_token": token.get("access_token")},
            )  # fmt: skip
            claims.validate(leeway=LEEWAY)
        except (JoseError, ValueError, TypeError, KeyError) as error:
            raise _untrusted(f"its ID token is not good ({str(error)[:200] or type(error).__name__})") from None
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise _untrusted("its ID token names nobody")
        return dict(claims)

    def _signed(self, text: str, *, patience: float = 0.0) -> jwt.Token:
        """`patience`: seconds that keys are kept, though the token may be signed with one that is newer than they are."""
        said = self._metadata().get("id_token_signing_alg_values_supported") or ["RS256"]
        registry = JWSRegistry(algorithms=[name for name in ALGORITHMS if name in said], strict_check_header=False)
        try:
            return jwt.decode(text, self._key_set(), registry=registry)
        except InvalidKeyIdError:
            return jwt.decode(text, self._key_set(older_than=patience), registry=registry)

    def _more(self, token: Mapping[str, Any], claims: Mapping[str, Any]) -> dict[str, Any]:
        url, access = self._metadata().get("userinfo_endpoint"), token.get("access_token")
        if not isinstance(url, str) or not isinstance(access, str):
            return {}
        found = self._json(url, headers={"authorization": f"Bearer {access}"})
        if found.get("sub") != claims["sub"]:
            raise _untrusted("its user info is about somebody else")
        return found

    def _metadata(self, name: str = "") -> Any:
        """All that the provider says of itself, or one address of it."""
        with self._lock:
            if time.monotonic() >= self._until:
                said = self._looked(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration", self._own)
                self._said, self._keys, self._until = said, None, time.monotonic() + FRESH
        if not name:
            return self._said
        url = self._said.get(name)
        if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https"):
            raise Refused(Kind.UPSTREAM, "oidc_unreachable", f"{self.issuer} names no {name}.")
        return url

    def _key_set(self, *, older_than: float = FRESH) -> KeySet:
        """The provider's keys, asked for anew where they are so many seconds old."""
        url = self._metadata("jwks_uri")
        with self._lock:
            if self._keys is None or time.monotonic() - self._keys_at >= older_than:
                self._keys_at = time.monotonic()  # also of a look that fails: the keys of before stay as they are then
                self._keys = self._looked(url, _keys)
            return self._keys

    def _own(self, said: dict[str, Any]) -> dict[str, Any]:
        if said.get("issuer") != self.issuer:
            raise _untrusted(f"{self.issuer} says that it is {str(said.get('issuer'))[:200]}")
        return said

    def _looked(self, url: str, read: Callable[[dict[str, Any]], Read]) -> Read:
        """What stands at `url`, while the lock is held. A failure is remembered for PATIENCE seconds: a look may take a minute,
        and behind those of strangers' tokens nobody could sign in."""
        until, failure = self._failed.get(url, (0.0, None))
        if failure is not None and time.monotonic() < until:
            raise Refused(failure.kind, failure.code, failure.message)
        try:
            found = read(self._json(url))
        except Refused as refused:
            self._failed[url] = (time.monotonic() + PATIENCE, refused)
            raise
        self._failed.pop(url, None)
        return found

    # --- requests

    def _method(self) -> str:
        """How this client proves itself at the token endpoint: with its secret in the header, or in the form where the provider
        takes it nowhere else; a public client has none, and its verifier stands for it."""
        said = self._metadata().get("token_endpoint_auth_methods_supported") or ["client_secret_basic"]
        if not self._secret:
            return "none"
        posted = "client_secret_post" in said and "client_secret_basic" not in said
        return "client_secret_post" if posted else "client_secret_basic"

    def _json(self, url: str, *, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        with self._http(url) as http:
            try:
                answer = http.get(url, headers={"accept": "application/json", **(headers or {})})
                answer.raise_for_status()
                found = answer.json()
            except (httpx.HTTPError, ValueError) as error:
                raise _unreachable(url, error) from None
        if not isinstance(found, dict):
            raise Refused(Kind.UPSTREAM, "oidc_unreachable", f"{url} answers with something else than a JSON object.")
        return found

    def _http(self, url: str) -> httpx.Client:
        own = urlsplit(url).hostname == urlsplit(self.issuer).hostname
        return httpx.Client(
            transport=_Bounded(self._guards[own], head=DEADLINE),
            timeout=TIMEOUT,
            trust_env=False,
            follow_redirects=False,
        )

    def _client(self, redirect_uri: str, url: str) -> _Opened:
        return _Opened(self, redirect_uri, url)


class _Opened:
    """Authlib's client over a guarded connection, for one address."""

    def __init__(self, provider: Provider, redirect_uri: str, url: str) -> None:
        self._http = provider._http(url)
        self._url = url
        self._client = _Client(
            self._http, client_id=provider.client_id, client_secret=provider._secret or None, scope=provider._scopes,
            redirect_uri=redirect_uri, code_challenge_method="S256", token_endpoint_auth_method=provider._method(),
        )  # fmt: skip

    def __enter__(self) -> tuple[Any, str]:
        return self._client, self._url

    def __exit__(self, *_: object) -> None:
        self._http.close()


class _Bounded(GuardedTransport):
    """Reads no more of an answer than LARGEST, and no longer than DEADLINE."""

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        content, until = bytearray(), time.monotonic() + DEADLINE
        try:
            for piece in response.iter_raw():
                content += piece
                if len(content) > LARGEST:
                    raise httpx.ReadError(f"the answer is larger than {LARGEST} bytes", request=request)
                if time.monotonic() > until:
                    raise httpx.ReadTimeout(f"no whole answer within {DEADLINE:g} s", request=request)
        finally:
            response.close()
        return httpx.Response(response.status_code, headers=response.headers, content=bytes(content), request=request)


def _keys(said: dict[str, Any]) -> KeySet:
    try:
        return KeySet.import_key_set(said)  # type: ignore[arg-type]
    except (JoseError, ValueError, TypeError, KeyError) as error:
        told = f"The provider's keys cannot be read ({str(error)[:200] or type(error).__name__})."
        raise Refused(Kind.UPSTREAM, "oidc_unreachable", told) from None


def _unreachable(url: str, error: Exception) -> Refused:
    reason = str(error)[:200] or type(error).__name__
    return Refused(Kind.UPSTREAM, "oidc_unreachable", f"The provider did not answer at {url[:200]} ({reason}).")


def _untrusted(what: str) -> Refused:
    return Refused(Kind.FORBIDDEN, "oidc_untrusted", f"The answer of the provider was not taken: {what}.")
