"""Entering a cluster: keys made here, one call to a controller, and the files that make this machine a node.

The token never travels: the request carries a proof that we hold it, the answer a proof that the controllers that made it
answered this very request. So it does not matter who else listens, or whether TLS can be verified before the CA is known.
"""

from __future__ import annotations

import logging
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import httpx
import orjson

from cluster.domain import joining, signing
from cluster.wire import JoinAnswer, JoinRequest, WireError, from_dict, to_dict
from llmgw_site.lib import files
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused
from workers.agent import address, removed
from workers.agent.identity import Identity, NoIdentity
from workers.agent.tls import Tls, fingerprint

log = logging.getLogger(__name__)
JOIN = "/api/v1/agent/join"
JOINING = "joining.key"
"""Beside the identity until this machine is a node: a second try after a lost answer is the same machine's."""
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
LARGEST_ANSWER = 1 << 20
PATIENCE, PAUSE = 60.0, 1.0
"""Seconds for which a machine tries again where too many join at once, and between two tries."""
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What the administrator asked for; "" is: found by itself."""

    token: str
    controller: str = ""
    name: str = ""
    address: str = ""
    host: str = ""  # that the node listener shall bind: LLMGW_NODE_HOST where it is set


def join(
    config: Config, wish: Wish, say: Say, *, transport: httpx.BaseTransport | None = None, again: bool = False
) -> Identity:
    """Make this machine a node of the token's cluster. Until a controller took it in, only keys are made in the folder.

    Raises Refused:
    1. `join_token_damaged`, `controller_not_named`
    2. this data folder is a node already: nothing to do in the token's cluster, else `already_in_a_cluster`
    3. `controller_unreachable`, and whatever the controller refuses with
    4. `controller_not_believed`: who answered does not hold the token, or has another CA
    """
    token = joining.parse_token(wish.token)
    controllers = (wish.controller,) if wish.controller else config.controllers
    if not controllers:  # 1
        text = "a join needs a controller's node address: add --controller http://HOST:8880, or set LLMGW_CONTROLLERS"
        raise Refused(Kind.INVALID, "controller_not_named", text, param="controller")
    controllers = tuple(_url(item, "controller") for item in controllers)
    known = _already(config, token)
    if known is not None:  # 2
        say(f"this data folder is node {known.node_id} of that cluster already")
        return known
    host = address.find(controllers)
    if host is None:
        text = (
            f"this machine has no address from which {controllers[0]} can be reached: check the network and the address"
        )
        raise Refused(Kind.UNAVAILABLE, "controller_unreachable", text)
    bound = wish.host or address.bind_host(host)
    named = _url(wish.address or config.node_address, "address") if wish.address or config.node_address else ""
    told = address.advertised(
        setting=named, bound=bound, port=config.node_port, controllers=controllers, local=False,
    )  # fmt: skip
    folder = files.private_folder(config.tls_folder)
    private = files.write_once(folder / JOINING, secrets.token_hex(32).encode()).decode()
    request = JoinRequest(
        token_id=token.token_id, name=wish.name or config.node_name or socket.gethostname(),
        public_key=signing.public_hex(private), csr=Tls(folder).request(), address=told or "",
        nonce=secrets.token_hex(16),
    )  # fmt: skip
    request = replace(request, proof=joining.proof(token.secret, request))
    say(f"asking {', '.join(controllers)} to take {request.name} in at {request.address}")
    try:
        answer = _ask(controllers, request, token, transport)  # 3, 4
    except Refused as refused:
        if refused.code != "node_removed" or again:
            raise
        (folder / JOINING).unlink(missing_ok=True)  # what this key made was taken out, so this is another node
        return join(config, wish, say, transport=transport, again=True)
    found = Identity(
        node_id=answer.node_id, private_key=private, controller_public_key=token.controller_public_key, joined=True,
        name=request.name, address=named, host=bound,
        controllers=tuple(dict.fromkeys([*controllers, *(item.address for item in answer.controllers)])),
    )  # fmt: skip
    Tls(folder).keep(certificate=answer.certificate, ca=answer.ca_certificate)
    found.write(config.node_file)  # last: with it this machine is a node
    removed.forget(config)
    with suppress(OSError):
        (folder / JOINING).unlink()
    say(f"{request.name} is node {answer.node_id} now; its identity is in {config.node_file}")
    return found


def _already(config: Config, token: joining.TokenText) -> Identity | None:
    try:
        known = Identity.read(config.node_file)
    except NoIdentity:
        if config.node_file.exists():
            raise
        return None
    if known.controller_public_key == token.controller_public_key:
        return known
    what = "a node of another cluster" if known.joined else "a cluster of its own (`llmgw up` made it)"
    text = (
        f"{config.data} is {what}: a folder belongs to one cluster. Set LLMGW_DATA to a new folder for this node, or move "
        "the old one away if nothing in it is needed"
    )
    raise Refused(Kind.CONFLICT, "already_in_a_cluster", text)


def _url(text: str, param: str) -> str:
    whole = text if "://" in text else f"http://{text}"
    if not joining.is_address(whole):
        what = f"{text[:100]!r} is no node address: write http://HOST:8880, or https:// where TLS is wanted"
        raise Refused(Kind.INVALID, "bad_node_address", what, param=param)
    return whole.rstrip("/")


def _ask(
    controllers: tuple[str, ...], request: JoinRequest, token: joining.TokenText, transport: httpx.BaseTransport | None
) -> JoinAnswer:
    """The first controller's answer that can be believed."""
    problems, until = [], time.monotonic() + PATIENCE
    # The CA is not known yet; the answer's proof, not the connection, says who answered.
    with httpx.Client(trust_env=False, follow_redirects=False, verify=False, transport=transport) as client:  # noqa: S501
        for url in controllers:
            try:
                status, body = _post(client, url, request)
                while status == 429 and time.monotonic() < until:
                    time.sleep(PAUSE)
                    status, body = _post(client, url, request)
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
                problems.append(f"{url} cannot be reached ({error or type(error).__name__})")
                continue
            if status == 200:
                return _believed(body, request, token)
            code, message = _refusal(body)
            if status < 500 and code:
                raise Refused(Kind.UNAVAILABLE, code, message)
            problems.append(f"{url} answered {status} {message or code}".strip())
    text = "; ".join(problems) + ": name a controller's node listener (LLMGW_NODE_PORT there, 8880 unless set)"
    raise Refused(Kind.UNAVAILABLE, "controller_unreachable", text)


def _post(client: httpx.Client, url: str, request: JoinRequest) -> tuple[int, bytes]:
    """Status and body, at most LARGEST_ANSWER of it: who answers has proved nothing yet."""
    headers, content, body = {"content-type": "application/json"}, orjson.dumps(to_dict(request)), b""
    with client.stream("POST", url + JOIN, content=content, timeout=TIMEOUT, headers=headers) as response:
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > LARGEST_ANSWER:
                raise ValueError("its answer is too large")
    return response.status_code, body


def _believed(body: bytes, request: JoinRequest, token: joining.TokenText) -> JoinAnswer:
    try:
        answer = from_dict(JoinAnswer, orjson.loads(body))
        right = joining.proves(joining.answer_proof(token.secret, request, answer), answer.proof)
        right = right and fingerprint(answer.ca_certificate) == token.ca_fingerprint
    except (orjson.JSONDecodeError, WireError, ValueError):
        right = False
    if not right:
        text = "who answered is not the cluster that made this token: check the controller's address, make a new token"
        raise Refused(Kind.UNAVAILABLE, "controller_not_believed", text)
    return answer


def _refusal(body: bytes) -> tuple[str, str]:
    try:
        error = orjson.loads(body)["error"]
        return str(error["code"])[:80], str(error["message"])[:500]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return "", ""
