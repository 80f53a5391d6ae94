"""This node among the others: who it is, which modules it runs, the module map, and signatures on calls between nodes.

All of it is files that the agent (at joining, `llmgw node join`) writes and this process follows: identity.json,
module-map.json, modules.json, the certificates.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from cluster.domain import roles, signing
from cluster.domain.joining import tls_name
from cluster.domain.modules import MapFile, MapNode, Module, ModuleMap, ModulesFile, ModuleState
from cluster.domain.states import NodeState
from llmgw_site.lib.clock import Clock
from llmgw_site.lib.config import Config
from llmgw_site.lib.logs import event
from llmgw_site.lib.sealing import WrongSecret, unseal
from routing.gateway.callers import HOP, KEY, PROJECT, SESSION, Caller, Marks, refusal
from routing.gateway.certificates import Certificates, PeerCertificate, Revoked
from routing.gateway.upstream import Headers, NotReached, Target
from routing.gateway.watched import LOOK, WatchedFile

log = logging.getLogger(__name__)

CLOCK_ERROR = 1.0
"""Seconds by which two nodes may differ about cluster time and still be right."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """`<data>/node/identity.json`, as far as it matters here."""

    node_id: str
    private_key: str = field(repr=False)
    controller_public_key: str
    address: str = ""


class Members:
    """Follows the files. `on_change`: called after each change of map, modules or identity.

    `since`: when this process began to listen, by the clock's monotonic time (default: now). What was signed later can
    have been met by no process before this one.
    """

    def __init__(self, config: Config, clock: Clock, *, since: float | None = None) -> None:
        self.on_change: list[Callable[[], None]] = []
        self.certificates = Certificates(config.tls_folder)
        self.map: ModuleMap | None = None
        self.modules = ModulesFile()
        self.nodes: dict[str, MapNode] = {}
        self._config = config
        self._clock = clock
        self._identity: Identity | None = None
        self._files = (
            WatchedFile(config.node_file, Identity),
            WatchedFile(config.map_file, MapFile),
            WatchedFile(config.modules_file, ModulesFile),
        )
        self._running: frozenset[str] = frozenset()
        self._keys: dict[str, bytes] = {}  # by the other's public key
        self._targets: dict[tuple[str, str], Target] = {}  # by node id and address
        self._others: dict[str, list[MapNode]] = {}  # by module
        self._places: dict[tuple[str, str, int], MapNode] = {}  # by scheme, host and port
        self._gone: set[str] = set()  # ids that an earlier map had
        self._revoked = Revoked()
        self._offset = 0.0
        self._boot = os.urandom(6).hex()
        self._counter = itertools.count(1)
        self._seen = signing.Seen()
        self._began = clock.monotonic() if since is None else since
        self._take()

    # --- what is known ---

    @property
    def node_id(self) -> str:
        """Empty before this node has an identity."""
        return self._identity.node_id if self._identity is not None else ""

    @property
    def address(self) -> str:
        """Base URL that this node advertises, as far as it is known here."""
        return self._config.node_address or (self._identity.address if self._identity is not None else "")

    @property
    def managed(self) -> bool:
        """Whether the cluster setup names this node."""
        return self.modules.managed

    def runs(self, module: str) -> bool:
        """Whether this node runs the module now."""
        return module in self._running

    def stopped(self, module: str) -> bool:
        """Whether it ran here and was switched off."""
        return any(item.name == module and item.state == ModuleState.STOPPED for item in self.modules.modules)

    def now(self) -> float:
        """Cluster time: Unix seconds as the controllers have it."""
        return self._clock.now() + self._offset

    def others(self, module: str) -> list[MapNode]:
        """Other nodes of the map that run this module. Looked up once for each map."""
        found = self._others.get(module)
        if found is None:
            found = [node for node in self.nodes.values() if node.node_id != self.node_id and node.runs(module)]
            self._others[module] = found
        return found

    def at(self, address: str) -> MapNode | None:
        """The other node that advertises this base URL."""
        node = self._places.get(_place(address))
        return node if node is not None and node.node_id != self.node_id else None

    # --- calls ---

    def target(self, node: MapNode) -> Target:
        """Where calls to a node go. Raises NotReached where its address is no address."""
        key = (node.node_id, node.address)
        target = self._targets.get(key)
        if target is None:
            scheme, host, port = _place(node.address)
            if scheme not in ("http", "https") or not host:
                raise NotReached(f"the address of {node.name} is no URL: {node.address[:200]!r}")
            if scheme == "http":
                target = Target(host, port)
            else:
                name = tls_name(node.node_id)
                target = Target(host, port, tls=self.certificates.client, server_name=name, refused=self._revoked)
            self._targets[key] = target
        return target

    def controllers(self) -> list[MapNode]:
        """Nodes of the map that run the controller: this one first, then those that are not offline."""
        found = [node for node in self.nodes.values() if node.runs(Module.CONTROLLER)]
        return sorted(found, key=lambda node: (node.node_id != self.node_id, node.state == NodeState.OFFLINE))

    def sign(
        self,
        node: MapNode,
        *,
        method: str,
        path: str,
        body: bytes | None,
        marks: Marks | None = None,
        controllers: bool = False,
    ) -> Headers:
        """Headers of a call to a node; `path` with its query. Raises NotReached where no signature can be made.

        `controllers`: it is for the controllers, who have one key, whichever of their nodes takes it.
        """
        identity = self._identity
        if identity is None:
            raise NotReached("this node has no identity yet")
        signed = signing.sign(
            self._pairwise(identity, identity.controller_public_key if controllers else node.public_key),
            method=method,
            path=path,
            node=identity.node_id,
            now=self.now(),
            boot=self._boot,
            counter=next(self._counter),
            body=body,
            marks=marks or (),
        )
        headers = [(name.encode(), value.encode()) for name, value in signed.items()]
        if marks is not None:
            names = (HOP, KEY, PROJECT, SESSION)
            headers += [
                (name.encode(), value.encode("latin-1")) for name, value in zip(names, marks, strict=True) if value
            ]
        return headers

    def proves(self, signature: str, *, nonce: str, status: int, body: bytes) -> bool:
        """Whether an answer is the controllers' to the call whose signature is `nonce`."""
        identity = self._identity
        if identity is None:
            return False
        key = self._pairwise(identity, identity.controller_public_key)
        return signing.verify_answer(key, signature, nonce=nonce, status=status, body=body)

    def verify(
        self,
        headers: Iterable[tuple[bytes, bytes]],
        *,
        method: str,
        path: str,
        certificate: PeerCertificate | None = None,
        tls: bool = False,
    ) -> Caller:
        """Who makes a call, before its body is read. `tls`: the call came that way. Raises Refused (401):

        1. `node_signature_required`   no signature, or none that can be read
        2. `node_removed`, `node_unknown`   the node was taken out, or is in no map that was seen here
        3. `node_certificate_required`, `node_certificate_wrong`   by TLS, and not with the certificate of that node
        4. `bad_signature`, `clock_skew`
        5. `call_repeated`   a copy; or made before this process listened, which cannot know what the one before it has met
        """
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        call, identity = signing.read(given), self._identity
        if call is None or identity is None:  # 1
            raise refusal("", "node_signature_required")
        public = identity.controller_public_key
        if call.node != signing.CONTROLLER:  # 2
            node = self.nodes.get(call.node)
            if node is None:
                raise refusal(call.node, "node_removed" if call.node in self._gone else "node_unknown")
            public = node.public_key
        if tls:
            self.check_certificate(certificate, call.node)  # 3
        marks = Marks(*(given.get(name, "") for name in (HOP, KEY, PROJECT, SESSION)))
        try:
            now, key = self.now(), self._pairwise(identity, public)
        except NotReached:
            raise refusal(call.node, "bad_signature") from None
        wrong = signing.verify_head(key, call, method=method, path=path, now=now, marks=marks if marks.hop else ())
        began = now - (self._clock.monotonic() - self._began)
        if wrong is None and (call.time < began - CLOCK_ERROR or not self._seen.first(call, now=now)):
            wrong = "call_repeated"
        if wrong is not None:  # 4, 5
            event(log, "node_call_refused", level=logging.WARNING, node_id=call.node, code=wrong)
            raise refusal(call.node, wrong)
        return Caller(node_id=call.node, marks=marks if marks.hop else Marks(), call=call)

    def unseal(self, sealed: str, *, about: str) -> str:
        """What the controllers sealed to this node. Raises WrongSecret."""
        identity = self._identity
        if identity is None:
            raise WrongSecret("this node has no identity yet")
        return unseal(sealed, secret=self._pairwise(identity, identity.controller_public_key), about=about)

    def check_certificate(self, certificate: PeerCertificate | None, node_id: str) -> None:
        """Whether a call that came by TLS showed the certificate of the node it names. Raises Refused."""
        if certificate is None:
            raise refusal(node_id, "node_certificate_required")
        if certificate in self._revoked:
            raise refusal(node_id, "node_removed" if node_id in self._gone else "node_certificate_wrong")
        if certificate.node_id != node_id and node_id != signing.CONTROLLER:
            raise refusal(node_id, "node_certificate_wrong")

    def _pairwise(self, identity: Identity, public_key: str) -> bytes:
        key = self._keys.get(public_key)
        if key is None:
            try:
                key = signing.pairwise_key(identity.private_key, public_key)
            except ValueError as error:
                raise NotReached(f"a node's public key is damaged: {error}") from None
            self._keys[public_key] = key
        return key

    # --- following ---

    def look(self) -> bool:
        """Read what has changed, here and now; whether something has."""
        self.certificates.look()
        changed = [file for file in self._files if file.changed()]
        if not _read(changed):
            return False
        self._take()
        return True

    async def watch(self) -> None:
        """Look for ever. The files are small: a map of a thousand nodes reads in some milliseconds, in a thread."""
        while True:
            await asyncio.sleep(LOOK)
            self.certificates.look()
            changed = [file for file in self._files if file.changed()]
            if changed and await asyncio.to_thread(_read, changed) > 0:
                self._take()

    def _take(self) -> None:
        """Take the files' content over: identity, map, modules."""
        identity, map_file, modules = (file.value for file in self._files)
        self._others.clear()
        if identity != self._identity:
            self._identity = identity
            self._keys.clear()
        if map_file is not None:
            self._offset = map_file.offset
            if map_file.map is not self.map:
                self._take_map(map_file.map)
        if modules is None:  # no agent yet
            modules = roles.decide(own=self._config.roles, assigned=None, switches={}, before=None, problems={})
        running = frozenset(item.name for item in modules.modules if item.state == ModuleState.RUNNING)
        if running != self._running:
            event(log, "modules_taken", running=sorted(running))
        self.modules, self._running = modules, running
        for call in self.on_change:
            call()

    def _take_map(self, new: ModuleMap) -> None:
        nodes = {node.node_id: node for node in new.nodes}
        self._gone.update(self.nodes.keys(), new.removed)
        self._gone -= nodes.keys()
        self._revoked.take(new.revoked)
        if self.map is None or self.map.version != new.version:
            event(log, "module_map_taken", version=new.version, nodes=len(nodes))
        self.map, self.nodes = new, nodes
        # A machine that joined anew may still stand in the map as the node that it was.
        self._places = {_place(node.address): node for node in sorted(new.nodes, key=_last_seen)}
        known = {node.public_key for node in new.nodes}
        self._keys = {public: key for public, key in self._keys.items() if public in known}
        places = {(node.node_id, node.address) for node in new.nodes}
        self._targets = {place: target for place, target in self._targets.items() if place in places}


def _read(files: list[WatchedFile]) -> int:
    """How many of them could be read; each is, also after a good one."""
    return sum(file.read() for file in files)


def _last_seen(node: MapNode) -> tuple[bool, float]:
    return node.state != NodeState.OFFLINE, node.last_seen_at or 0.0


def _place(address: str) -> tuple[str, str, int]:
    """Scheme, host and port of a base URL; empty where it is none."""
    try:
        url = urlsplit(address)
        return url.scheme, url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    except ValueError:
        return "", "", 0
