"""A certificate authority for tests, and what it gives to nodes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cluster.domain.joining import tls_name
from llmgw_site.lib.files import write_atomic


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Authority:
    """One cluster's CA."""

    def __init__(self, name: str = "test") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(tz=UTC)
        self._certificate = (
            x509.CertificateBuilder()
            .subject_name(_name(name))
            .issuer_name(_name(name))
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def give(self, folder: Path, node_id: str, *, days_left: float = 1.0) -> str:
        """Write a node's files; the serial of its certificate, as the map lists revoked ones."""
        key = ec.generate_private_key(ec.SECP256R1())
        now, serial = datetime.now(tz=UTC), x509.random_serial_number()
        made = (
            x509.CertificateBuilder()
            .subject_name(_name(node_id))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .serial_number(serial)
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=days_left))
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(tls_name(node_id))]), critical=False)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        encoding = serialization.Encoding.PEM
        files = (
            ("ca.pem", self._certificate.public_bytes(encoding)),
            ("node.key", _pem(key)),
            ("node.pem", made.public_bytes(encoding)),
        )
        for name, data in files:
            write_atomic(folder / name, data)
        return f"{serial:x}"
