"""TLS between nodes: `ca.pem`, `node.pem` and `node.key` of `<data>/node`, as contexts that follow the files.

A node's certificate has its id as CN and `tls_name(id)` (cluster/domain/joining.py) as DNS name, whatever address it is reached at: it is the
node that is proved, not the machine. A certificate that was renewed on disk counts for the next handshake on.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmgw_site.lib import files
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """What a verified certificate says: whose it is, and its serial in lower-case hex without leading zeros."""

    node_id: str
    serial: str


def peer_certificate(found: Any) -> PeerCertificate | None:
    """Of what `SSLSocket.getpeercert()` gives; None where the other side showed no certificate."""
    if not found:
        return None
    names = dict(pair for part in found.get("subject", ()) for pair in part)
    return PeerCertificate(names.get("commonName", ""), serial(found.get("serialNumber", "")))


def serial(text: str) -> str:
    """A serial's one spelling, whoever wrote it."""
    return text.lower().lstrip("0")


class Certificates:
    """The contexts of the node listener and of calls to other nodes. Before there are files, handshakes fail."""

    def __init__(self, folder: Path) -> None:
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.minimum_version = ssl.TLSVersion.TLSv1_2
        self.server.verify_mode = ssl.CERT_OPTIONAL  # a node that joins has none yet; see node_listener.py
        self.server.set_alpn_protocols(["http/1.1"])
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.client.minimum_version = ssl.TLSVersion.TLSv1_2
        self.client.set_alpn_protocols(["http/1.1"])
        self._ca = folder / "ca.pem"
        self._own = folder / "node.pem"
        self._key = folder / "node.key"
        self._marks: tuple[Any, ...] = (None, None, None)

    def look(self) -> None:
        """Take over what lies there now, if it is another. Two stats and a third; reading costs a millisecond."""
        marks = (files.mark(self._ca), files.mark(self._own), files.mark(self._key))
        if marks == self._marks:
            return
        before, self._marks = self._marks, marks
        try:
            if marks[0] is not None and marks[0] != before[0]:
                for context in (self.server, self.client):
                    context.load_verify_locations(self._ca)
            if marks[1] is not None and marks[2] is not None and marks[1:] != before[1:]:
                for context in (self.server, self.client):
                    context.load_cert_chain(self._own, self._key)
        except (OSError, ssl.SSLError) as error:  # between two renames, or damaged: looked at again when it changes
            event(log, "certificate_unreadable", level=logging.ERROR, error=str(error)[:300])
        else:
            event(log, "certificate_taken", ca=marks[0] is not None, own=marks[1] is not None)


class Revoked:
    """Serials that are worth nothing any more. One object for good, so that targets can be compared; see `take`."""

    def __init__(self) -> None:
        self._serials: frozenset[str] = frozenset()

    def take(self, serials: Collection[str]) -> None:
        self._serials = frozenset(serial(text) for text in serials)

    def __contains__(self, certificate: object) -> bool:
        return isinstance(certificate, PeerCertificate) and certificate.serial in self._serials
