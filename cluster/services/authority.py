"""The cluster's own certificate authority: made once, its key sealed in the database; certificates of nodes.

ECDSA over P-256 everywhere. A node makes its key itself and sends a certificate signing request (PKCS#10, RFC 2986), of
which only the public key is taken: what the certificate says comes from the node's row. Profile: RFC 5280.
"""

from __future__ import annotations

import logging
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from django.conf import settings
from django.db.models.functions import Now

from cluster.domain.joining import tls_name
from cluster.models import Certificate, ClusterIdentity, Node
from cluster.selectors import from_unix
from cluster.services import identity
from llmgw_site.lib import files
from llmgw_site.lib.config import Config
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.sealing import seal

log = logging.getLogger(__name__)

CA_DAYS, DAYS = 20 * 365, 365
BACKDATED = timedelta(days=1)
"""Certificates begin so long ago: the clock of the machine that checks one may be behind."""
RENEW_LEFT = timedelta(days=DAYS / 3)
"""A certificate with less than this left is to be renewed."""
MAX_CSR = 8_192
"""Characters of a signing request; one of P-256 has about 500."""
MOST_A_DAY = 20
"""Certificates that one node is given in 24 hours."""
UNREADABLE = (ValueError, UnsupportedAlgorithm, x509.InvalidVersion)
"""What `cryptography` raises for a damaged key, request or certificate."""


def certificate() -> str:
    """The CA's certificate (PEM), made at the first call. Of several processes that make one, all get the first one's."""
    row = identity.ensure_identity()
    if not row.ca_certificate:
        made, key = _new_ca(row.epoch)
        sealed = seal(_key_pem(key), secret=settings.SECRET_KEY)
        ClusterIdentity.objects.filter(id=row.id, ca_certificate="").update(ca_certificate=made, sealed_ca_key=sealed)
        row.refresh_from_db()
    return row.ca_certificate


def fingerprint(pem: str) -> str:
    """SHA-256 of a certificate's DER, hex: what a join token says of the CA."""
    return x509.load_pem_x509_certificate(pem.encode()).fingerprint(hashes.SHA256()).hex()


def issue(*, csr: str, node: Node, now: float) -> str:
    """A certificate (PEM) of this node for the key that signed the request, for 365 days from `now` (Unix time).

    Raises Refused: `bad_certificate_request` for what is none or has another kind of key, `certificates_too_often`.
    """
    public = _requested_key(csr)
    moment = from_unix(now)
    if Certificate.objects.filter(node=node, issued_at__gt=moment - timedelta(days=1)).count() >= MOST_A_DAY:
        text = f"node {node.name} was given {MOST_A_DAY} certificates within a day: it asks again tomorrow"
        raise Refused(Kind.LIMITED, "certificates_too_often", text, retry_after=3600)
    authority, key = _authority()
    expires = moment + timedelta(days=DAYS)
    serial = x509.random_serial_number()
    made = (
        x509.CertificateBuilder()
        .subject_name(_name(node.id))
        .issuer_name(authority.subject)
        .public_key(public)
        .serial_number(serial)
        .not_valid_before(moment - BACKDATED)
        .not_valid_after(expires)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(tls_name(node.id))]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(_issued_by(authority), critical=False)
        .sign(key, hashes.SHA256())
    )
    Certificate.objects.create(serial=f"{serial:x}", node=node, expires_at=expires)
    return made.public_bytes(serialization.Encoding.PEM).decode()


def vet(csr: str) -> None:
    """Raises Refused `bad_certificate_request` for what `issue` would refuse."""
    _requested_key(csr)


def revoke(node: Node) -> int:
    """Every certificate of a node is worth nothing from now on. Returns how many."""
    return Certificate.objects.filter(node=node, revoked_at__isnull=True).update(revoked_at=Now())


def prune(*, before: datetime, limit: int) -> int:
    """Forget certificates that expired before this time, at most `limit`. Returns how many. Until then a revoked one is listed."""
    ended = Certificate.objects.filter(expires_at__lt=before)
    return ended.filter(pk__in=list(ended.values_list("pk", flat=True)[:limit])).delete()[0]


def keep_local(config: Config, node: Node, *, now: float) -> None:
    """`ca.pem`, `node.pem` and `node.key` of this machine: made where they are missing, old, or of another cluster."""
    folder = files.private_folder(config.tls_folder)
    ca = certificate()
    if _still_good(folder, node, ca, now):
        return
    key = ec.generate_private_key(ec.SECP256R1())
    request = x509.CertificateSigningRequestBuilder().subject_name(_name(node.id)).sign(key, hashes.SHA256())
    made = issue(csr=request.public_bytes(serialization.Encoding.PEM).decode(), node=node, now=now)
    for name, text in (("ca.pem", ca), ("node.key", _key_pem(key)), ("node.pem", made)):
        files.write_atomic(folder / name, text.encode(), mode=0o600)


def _still_good(folder: Path, node: Node, ca: str, now: float) -> bool:
    """Whether the files at hand fit together, are of this node and this CA, and have a third of their time left."""
    try:
        own = x509.load_pem_x509_certificate((folder / "node.pem").read_bytes())
        key = serialization.load_pem_private_key((folder / "node.key").read_bytes(), password=None)
        own.verify_directly_issued_by(x509.load_pem_x509_certificate(ca.encode()))
        told = (folder / "ca.pem").read_text()
    except (OSError, TypeError, InvalidSignature, *UNREADABLE):
        return False
    left = own.not_valid_after_utc - from_unix(now)
    live = Certificate.objects.filter(serial=f"{own.serial_number:x}", node=node, revoked_at__isnull=True).exists()
    return live and told == ca and key.public_key() == own.public_key() and left > RENEW_LEFT


def _requested_key(csr: str) -> ec.EllipticCurvePublicKey:
    try:
        if len(csr) > MAX_CSR:
            raise ValueError("too long")
        request = x509.load_pem_x509_csr(csr.encode())
        public = request.public_key()
        if not (isinstance(public, ec.EllipticCurvePublicKey) and isinstance(public.curve, ec.SECP256R1)):
            raise ValueError("another kind of key")
        if not request.is_signature_valid:
            raise ValueError("not signed by its key")
    except UNREADABLE as error:
        text = f"no PEM of a certificate request that an ECDSA key over P-256 has signed ({error}): make one"
        raise Refused(Kind.INVALID, "bad_certificate_request", text, param="csr") from None
    return public


def _authority() -> tuple[x509.Certificate, Any]:
    pem = certificate()
    row = ClusterIdentity.objects.get(id=ClusterIdentity.ONLY)
    key = serialization.load_pem_private_key(identity.opened(row.sealed_ca_key).encode(), password=None)
    return x509.load_pem_x509_certificate(pem.encode()), key


def _new_ca(epoch: str) -> tuple[str, ec.EllipticCurvePrivateKey]:
    key = ec.generate_private_key(ec.SECP256R1())
    name, now = _name(f"llmgw {epoch}"), datetime.now(tz=UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(secrets.randbits(159) | 1)
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + timedelta(days=CA_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode(), key


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common[:64])])


def _issued_by(authority: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    found = authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(found.value)


def _usage(**wanted: bool) -> x509.KeyUsage:
    names = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: wanted.get(name, False) for name in names})


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
