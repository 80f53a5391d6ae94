"""This node's TLS files (`ca.pem`, `node.pem`, `node.key`) and what is made of them. The key is made here and stays here.

Profile: a P-256 key (RFC 5480), a PKCS#10 request (RFC 2986); the controllers decide what the certificate says.
"""

from __future__ import annotations

import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from llmgw_site.lib import files
from llmgw_site.lib.logs import event

log = logging.getLogger(__name__)
CA, CERTIFICATE, KEY = "ca.pem", "node.pem", "node.key"


class Tls:
    """The files in one folder. Contexts are made anew when a file was replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._marks: object = None
        self._contexts: dict[bool, ssl.SSLContext] = {}

    def request(self) -> str:
        """A certificate signing request (PEM) for this node's key, which is made at the first call, or anew where it cannot be
        read: what is damaged is set aside first."""
        self._set_aside_damaged()
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        kept = _private_key(files.write_once(self._folder / KEY, pem))
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        return builder.sign(kept, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def keep(self, *, certificate: str, ca: str) -> None:
        """Write what the controllers gave; a reader sees the old certificate or the new one, both of the same key."""
        if self._read(CA) != ca.encode():
            files.write_atomic(self._folder / CA, ca.encode())
        files.write_atomic(self._folder / CERTIFICATE, certificate.encode())

    def due(self, now: float) -> bool:
        """Whether it is time for a new certificate: none is at hand that fits the key, or a third of its life is left."""
        try:
            own = x509.load_pem_x509_certificate(self._read(CERTIFICATE))
            key = _private_key(self._read(KEY))
            own.verify_directly_issued_by(x509.load_pem_x509_certificate(self._read(CA)))
        except Exception:  # whatever is wrong with a file that a new certificate replaces
            return True
        if own.public_key() != key.public_key():
            return True
        left = (own.not_valid_after_utc - datetime.fromtimestamp(now, UTC)).total_seconds()
        return left <= (own.not_valid_after_utc - own.not_valid_before_utc).total_seconds() / 3

    def context(self, *, named: bool) -> ssl.SSLContext:
        """For calls to other nodes: their certificate must be the CA's and, if `named`, bear the name that is expected
        (`cluster.domain.joining.tls_name`, given as the server's name). Raises OSError, ssl.SSLError without the files."""
        marks = tuple(files.mark(self._folder / name) for name in (CA, CERTIFICATE, KEY))
        if marks != self._marks:
            self._contexts.clear()
            self._marks = marks
        if named not in self._contexts:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            context.check_hostname = named
            context.load_verify_locations(cafile=self._folder / CA)
            context.load_cert_chain(self._folder / CERTIFICATE, self._folder / KEY)
            self._contexts[named] = context
        return self._contexts[named]

    def _set_aside_damaged(self) -> None:
        """Rename what lies there and is none of ours (a bad disk, another program) to `NAME.damaged`; nothing reads that, it is
        for people. Such a key would be asked with for ever, in vain: a new one is made, whose certificate the controllers give
        as they give any other."""
        for name, read in (
            (KEY, _private_key),
            (CERTIFICATE, x509.load_pem_x509_certificate),
            (CA, x509.load_pem_x509_certificate),
        ):
            path = self._folder / name
            try:
                read(path.read_bytes())
            except FileNotFoundError:
                continue
            except (ValueError, TypeError, UnsupportedAlgorithm, PermissionError, IsADirectoryError) as error:
                aside = path.with_name(f"{name}.damaged")
                path.replace(aside)
                files.sync_folder(self._folder)
                event(
                    log, "tls_file_set_aside", level=logging.WARNING, path=str(path), to=str(aside), reason=str(error)[:200],
                    then="a new certificate is asked for",
                )  # fmt: skip

    def _read(self, name: str) -> bytes:
        try:
            return (self._folder / name).read_bytes()
        except FileNotFoundError:
            return b""


def _private_key(pem: bytes) -> ec.EllipticCurvePrivateKey:
    """Raises ValueError, TypeError or UnsupportedAlgorithm for what is no key of our profile."""
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ValueError(f"it is no P-256 key but {type(key).__name__}")
    return key


def fingerprint(pem: str) -> str:
    """SHA-256 of a certificate's DER, hex. Raises ValueError for what is no certificate."""
    return x509.load_pem_x509_certificate(pem.encode()).fingerprint(hashes.SHA256()).hex()
