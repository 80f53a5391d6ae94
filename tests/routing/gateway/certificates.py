"""A certificate authority of a test's own, and a server certificate by it."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def a_certificate(folder: Path, address: str) -> tuple[Path, Path, Path]:
    """Files: the authority's certificate, the server's certificate for this IP address, and its key."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of a test")])
    now = datetime.datetime.now(datetime.UTC)

    def build(subject: x509.Name, public: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(authority)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )

    root = build(authority, authority_key.public_key()).add_extension(
        x509.BasicConstraints(ca=True, path_length=0), True
    )
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "provider of a test")])
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    leaf = build(name, key.public_key()).add_extension(names, False)
    files = folder / "authority.pem", folder / "server.pem", folder / "server.key"
    for file, made in ((files[0], root), (files[1], leaf)):
        file.write_bytes(made.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    files[2].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files
