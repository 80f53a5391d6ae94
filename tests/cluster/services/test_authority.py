"""cluster.services.authority: the CA, certificates of nodes, and what becomes of them."""

from __future__ import annotations

import base64
import ssl
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from django.conf import settings
from django.utils import timezone
from hypothesis import given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from cluster import selectors
from cluster.models import Certificate, ClusterIdentity
from cluster.services import authority, nodes
from llmgw_site.lib.errors import Refused
from tests.cluster.rows import Machine
from tests.cluster.services.test_joining import a_csr

pytestmark = pytest.mark.django_db
CSR = x509.load_pem_x509_csr(a_csr().encode())


def issued(machine: Machine, csr: str = "") -> x509.Certificate:
    now = selectors.database_now()
    return x509.load_pem_x509_certificate(authority.issue(csr=csr or a_csr(), node=machine.node, now=now).encode())


def test_the_ca_is_made_once_and_its_key_is_sealed() -> None:
    first = authority.certificate()
    assert authority.certificate() == first
    assert "PRIVATE" not in ClusterIdentity.objects.get().sealed_ca_key
    ca = x509.load_pem_x509_certificate(first.encode())
    constraints = ca.extensions.get_extension_for_class(x509.BasicConstraints).value
    assert (constraints.ca, constraints.path_length) == (True, 0)
    assert len(authority.fingerprint(first)) == 64


def test_a_certificate_is_the_nodes_and_says_what_it_may_be_used_for() -> None:
    machine, key = Machine(), ec.generate_private_key(ec.SECP256R1())
    made = issued(machine, a_csr(key))
    made.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate().encode()))
    assert made.public_key() == key.public_key()
    (common,) = made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common.value == machine.node.id
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [machine.node.id.lower().replace("_", "-") + ".node.llmgw"]
    uses = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(uses) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    left = made.not_valid_after_utc - timezone.now()
    assert timedelta(days=364) < left < timedelta(days=366)
    assert Certificate.objects.get().serial == f"{made.serial_number:x}"


@pytest.mark.parametrize(
    "csr",
    ["", "x", a_csr(rsa.generate_private_key(65537, 2048)), a_csr(ec.generate_private_key(ec.SECP384R1()))],
    ids=["empty", "letter", "RSA", "P-384"],
)
def test_other_requests_are_refused(csr: str) -> None:
    with pytest.raises(Refused) as refused:
        authority.issue(csr=csr, node=Machine().node, now=selectors.database_now())
    assert refused.value.code == "bad_certificate_request"


def pem_of(der: bytes, what: str = "CERTIFICATE REQUEST") -> str:
    return f"-----BEGIN {what}-----\n{base64.encodebytes(der).decode()}-----END {what}-----\n"


@given(st.data())
@settings_of_hypothesis(max_examples=200)
def test_a_request_with_any_byte_changed_is_refused_in_words(data: st.DataObject) -> None:
    """Also where the library does not know what the changed byte names. One byte alone says nothing: how many of the
    signature's last bits are none of it."""
    der = bytearray(CSR.public_bytes(serialization.Encoding.DER))
    unused_bits = len(der) - len(CSR.signature) - 1
    at = data.draw(st.integers(0, len(der) - 1).filter(lambda at: at != unused_bits))
    der[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(Refused) as refused:
        authority.vet(pem_of(bytes(der)))
    assert refused.value.code == "bad_certificate_request"


def test_a_request_of_an_unknown_version_is_refused_in_words() -> None:
    der = bytearray(CSR.public_bytes(serialization.Encoding.DER))
    at = der.index(b"\x02\x01\x00") + 2  # the version, an INTEGER of one byte: 0 is version 1, the only one
    der[at] = 1
    with pytest.raises(Refused, match="version"):
        authority.vet(pem_of(bytes(der)))


def test_a_request_that_somebody_changed_is_refused() -> None:
    lines = a_csr().splitlines()
    lines[-2] = lines[-2][:-8] + ("A" * 6) + lines[-2][-2:]
    with pytest.raises(Refused):
        authority.issue(csr="\n".join(lines), node=Machine().node, now=selectors.database_now())


def test_a_node_cannot_have_certificates_without_end() -> None:
    machine, csr = Machine(), a_csr()
    for _ in range(authority.MOST_A_DAY):
        issued(machine, csr)
    with pytest.raises(Refused) as refused:
        issued(machine, csr)
    assert refused.value.code == "certificates_too_often"
    issued(Machine(), csr)


def test_removing_a_node_revokes_its_certificates() -> None:
    machine, other = Machine(), Machine()
    issued(machine)
    issued(other)
    nodes.remove(node_id=machine.node.id, actor="t")
    revoked = Certificate.objects.filter(revoked_at__isnull=False)
    assert [row.node_id for row in revoked] == [machine.node.id]


def test_the_local_node_has_files_that_fit_together(tmp_path: Path) -> None:
    config = replace(settings.CONFIG, data=tmp_path, node_name="here")
    node = nodes.enrol_local(config)
    folder = config.tls_folder
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.load_cert_chain(folder / "node.pem", folder / "node.key")
    for name in ("ca.pem", "node.pem", "node.key"):
        assert (folder / name).stat().st_mode & 0o777 == 0o600
    before = (folder / "node.pem").read_bytes()
    nodes.enrol_local(config)
    assert (folder / "node.pem").read_bytes() == before
    assert Certificate.objects.get().node_id == node.id


@pytest.mark.parametrize("name", ["ca.pem", "node.pem", "node.key"])
def test_local_files_that_are_damaged_are_made_anew(tmp_path: Path, name: str) -> None:
    config = replace(settings.CONFIG, data=tmp_path, node_name="here")
    node = nodes.enrol_local(config)
    (config.tls_folder / name).write_text("nonsense")
    authority.keep_local(config, node, now=selectors.database_now())
    assert "nonsense" not in (config.tls_folder / name).read_text()
    assert Certificate.objects.count() == 2


def test_a_local_certificate_of_an_unknown_version_is_made_anew(tmp_path: Path) -> None:
    config = replace(settings.CONFIG, data=tmp_path, node_name="here")
    node = nodes.enrol_local(config)
    path = config.tls_folder / "node.pem"
    der = x509.load_pem_x509_certificate(path.read_bytes()).public_bytes(serialization.Encoding.DER)
    damaged = pem_of(der.replace(b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x07", 1), "CERTIFICATE")  # version 3: 2
    path.write_text(damaged)
    authority.keep_local(config, node, now=selectors.database_now())
    assert x509.load_pem_x509_certificate(path.read_bytes()).version is x509.Version.v3
    assert Certificate.objects.count() == 2


def test_a_local_certificate_with_a_third_left_is_renewed(tmp_path: Path) -> None:
    config = replace(settings.CONFIG, data=tmp_path, node_name="here")
    node = nodes.enrol_local(config)
    authority.keep_local(config, node, now=selectors.database_now() + 240 * 86400)
    assert Certificate.objects.count() == 1
    authority.keep_local(config, node, now=selectors.database_now() + 250 * 86400)
    assert Certificate.objects.count() == 2
