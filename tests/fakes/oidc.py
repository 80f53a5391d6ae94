"""A small OpenID Connect provider: real HTTP, real RS256 signatures, the code flow with PKCE, strict about what it is sent.

A client proves itself in the one way that `method` says, and in no other. Whoever comes to `/authorize` is signed in at once as `person`. What a test wants wrong, it puts into `faults`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import OctKey, RSAKey

CLIENT, SECRET = "llmgw-console", "a secret: with+odd characters/="


class Provider(ThreadingHTTPServer):
    """`issuer` is its address. `codes`: what was handed out and not yet taken. `seen`: paths that were asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.keys = [RSAKey.generate_key(2048, {"kid": "k1", "use": "sig", "alg": "RS256"})]
        self.person: dict[str, Any] = {
            "sub": "s-1",
            "preferred_username": "ann",
            "email": "ann@example.com",
            "groups": [],
        }
        self.faults: dict[str, Any] = {}
        self.method = "client_secret_basic"
        self.in_id_token = True  # groups, or only in the user info
        self.codes: dict[str, dict[str, str]] = {}
        self.seen: list[str] = []

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def rotate(self) -> None:
        """Sign with another key from now on."""
        number = len(self.keys) + 1
        self.keys.append(RSAKey.generate_key(2048, {"kid": f"k{number}", "use": "sig", "alg": "RS256"}))

    # --- answers

    def document(self) -> dict[str, Any]:
        base = self.issuer
        return {
            "issuer": base, "authorization_endpoint": f"{base}/authorize", "token_endpoint": f"{base}/token",
            "jwks_uri": f"{base}/jwks", "userinfo_endpoint": f"{base}/userinfo", "end_session_endpoint": f"{base}/logout",
            "id_token_signing_alg_values_supported": ["RS256"], "token_endpoint_auth_methods_supported": [self.method],
            **self.faults.get("document", {}),
        }  # fmt: skip

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser goes back to."""
        assert query["response_type"] == "code", query
        assert query["client_id"] == CLIENT, query
        assert query["code_challenge_method"] == "S256", query
        assert "openid" in query["scope"].split(), query
        assert query["nonce"], query
        back = {"state": query["state"], "iss": self.faults.get("iss", self.issuer)}
        if "error" in self.faults:
            return f"{query['redirect_uri']}?{urlencode({**back, 'error': self.faults['error'], 'error_description': 'no'})}"
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({**back, 'code': code})}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        if not self._known(form, authorization):
            return 401, {"error": "invalid_client"}
        asked = self.codes.pop(form.get("code", ""), None)
        verifier = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if (
            asked is None
            or form["grant_type"] != "authorization_code"
            or form["redirect_uri"] != asked["redirect_uri"]
            or base64.urlsafe_b64encode(verifier).decode().rstrip("=") != asked["code_challenge"]
        ):
            return 400, {"error": "invalid_grant", "error_description": "this code is not good"}
        access = secrets.token_urlsafe(16)
        half = hashlib.sha256(access.encode()).digest()[:16]
        groups = {} if self.in_id_token else {"groups": None}
        claims = {
            "iss": self.issuer, "aud": CLIENT, "exp": int(time.time()) + 300, "iat": int(time.time()),
            "nonce": asked["nonce"], "at_hash": base64.urlsafe_b64encode(half).decode().rstrip("="),
            **self.person, **groups, **self.faults.get("claims", {}),
        }  # fmt: skip
        claims = {key: value for key, value in claims.items() if value is not None}
        answer = {"access_token": access, "token_type": "Bearer", "expires_in": 300, "id_token": self._signed(claims)}
        return 200, {**answer, **self.faults.get("token", {})}

    def _known(self, form: dict[str, str], authorization: str) -> bool:
        name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        basic = (unquote_plus(name), unquote_plus(secret)) if authorization else None  # RFC 6749, section 2.3.1
        posted = form.get("client_id"), form.get("client_secret")
        return (basic, posted) == {
            "client_secret_basic": ((CLIENT, SECRET), (None, None)),
            "client_secret_post": (None, (CLIENT, SECRET)),
            "none": (None, (CLIENT, None)),
        }[self.method]

    def logout_token(self, *, typ: str | None = "logout+jwt", **claims: Any) -> str:
        """Of whoever `claims` name; a claim of None is left out."""
        now = int(time.time())
        all_of_it = {
            "iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 120, "jti": secrets.token_urlsafe(8),
            "events": {"http://schemas.openid.net/event/backchannel-logout": {}}, **claims,
        }  # fmt: skip
        return self._signed({key: value for key, value in all_of_it.items() if value is not None}, typ)

    def _signed(self, claims: dict[str, Any], typ: str | None = "JWT") -> str:
        match self.faults.get("signed"):
            case "by a stranger":
                stranger = RSAKey.generate_key(2048, {"kid": str(self.keys[-1].kid)})
                return jwt.encode({"alg": "RS256", "kid": stranger.kid}, claims, stranger)
            case "by the secret":
                return jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET), algorithms=["HS256"])
            case "by nobody":
                parts = (json.dumps({"alg": "none"}), json.dumps(claims))
                return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts) + "."
        header = {"alg": "RS256", "kid": self.keys[-1].kid, **({"typ": typ} if typ else {})}
        return jwt.encode(header, claims, self.keys[-1])


class _Handler(BaseHTTPRequestHandler):
    server: Provider

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.server.seen.append(parts.path)
        match parts.path:
            case "/.well-known/openid-configuration":
                self._answer(self.server.faults.get("discovery", 200), self.server.document())
            case "/authorize":
                self.send_response(302)
                self.send_header("location", self.server.authorize(query))
                self.send_header("content-length", "0")
                self.end_headers()
            case "/jwks":
                keys = [key.as_dict(private=False) for key in self.server.keys]
                self._answer(self.server.faults.get("jwks", 200), self.server.faults.get("keys", {"keys": keys}))
            case "/userinfo":
                assert self.headers["authorization"].startswith("Bearer ")
                self._answer(200, {**self.server.person, **self.server.faults.get("userinfo", {})})
            case "/large":
                self._answer(200, {"x": "x" * (2 << 20)})
            case _:
                self._answer(404, {})

    def do_POST(self) -> None:
        self.server.seen.append(self.path)
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        form = {name: values[0] for name, values in parse_qs(text).items()}
        self._answer(*self.server.token(form, self.headers.get("authorization", "")))

    def _answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def running() -> Iterator[Provider]:
    with Provider() as it:
        thread = threading.Thread(target=it.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield it
        finally:
            it.shutdown()
            thread.join()
