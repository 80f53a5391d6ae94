"""POST /api/v1/agent/join and /certificate, and /api/v1/join-tokens: over the real views."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from cryptography import x509
from django.test import Client

from cluster.domain import joining as words
from cluster.models import Certificate, JoinToken, Node
from cluster.services import authority, joining, nodes
from cluster.wire import CertificateRequest, JoinAnswer, from_dict, to_dict
from tests.cluster.rows import Machine
from tests.cluster.services.test_joining import a_csr, a_request, a_token, calm
from tests.rows import a_user

pytestmark = pytest.mark.django_db
JOIN, CERTIFICATE, TOKENS = "/api/v1/agent/join", "/api/v1/agent/certificate", "/api/v1/join-tokens"
NODE = {"x-llmgw-listener": "node"}
__all__ = ["calm"]


def post(client: Client, body: bytes, headers: dict[str, str] = NODE) -> Any:
    return client.post(JOIN, body, content_type="application/json", headers=headers)


def code(response: Any) -> str:
    return str(json.loads(response.content)["error"]["code"])


def test_a_machine_joins_over_the_node_listener(client: Client) -> None:
    token = a_token()
    asked = a_request(token)
    response = post(client, orjson.dumps(to_dict(asked)))
    assert response.status_code == 200
    answer = from_dict(JoinAnswer, json.loads(response.content))
    assert answer.proof == words.answer_proof(token.secret, asked, answer)
    assert token.secret not in response.content.decode()
    assert Node.objects.get().id == answer.node_id


def test_over_the_client_listener_there_is_nothing_to_join(client: Client) -> None:
    body = orjson.dumps(to_dict(a_request(a_token())))
    for headers in ({}, {"x-llmgw-listener": "client"}):
        response = post(client, body, headers)
        assert (response.status_code, code(response)) == (404, "not_found")
    assert not Node.objects.exists()


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (b"", 400, "bad_message"),
        (b"no json", 400, "bad_message"),
        (b"[]", 400, "bad_message"),
        (b'{"token_id": 7}', 400, "bad_message"),
        (b"x" * 20_000, 413, "body_too_large"),
    ],
)
def test_what_cannot_be_read_is_refused(client: Client, body: bytes, status: int, reason: str) -> None:
    response = post(client, body)
    assert (response.status_code, code(response)) == (status, reason)


def test_only_post_joins(client: Client) -> None:
    assert client.get(JOIN, headers=NODE).status_code == 404


def test_a_wrong_token_is_a_401_and_many_at_once_a_429_that_says_when(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joining, "SPAN", 600.0)  # however slow the machine, they come within it
    body = orjson.dumps(to_dict(a_request(a_token(), proof="x")))
    body = body.replace(b"join_", b"join-")
    for _ in range(joining.ATTEMPTS):
        response = post(client, body)
        assert (response.status_code, code(response)) == (401, "join_token_invalid")
    response = post(client, body)
    assert (response.status_code, code(response), response["Retry-After"]) == (429, "joins_too_often", "600")


# --- certificates of nodes


def test_a_node_renews_its_certificate_with_a_signed_call(client: Client) -> None:
    machine = Machine()
    response = machine.post(client, CERTIFICATE, orjson.dumps(to_dict(CertificateRequest(csr=a_csr()))))
    assert response.status_code == 200
    assert machine.proves(response)
    made = json.loads(response.content)
    certificate = x509.load_pem_x509_certificate(made["certificate"].encode())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(made["ca_certificate"].encode()))
    assert Certificate.objects.get().node_id == machine.node.id


def test_nobody_else_gets_a_certificate(client: Client) -> None:
    machine, body = Machine(), orjson.dumps(to_dict(CertificateRequest(csr=a_csr())))
    unsigned = client.post(CERTIFICATE, body, content_type="application/json", headers=NODE)
    assert code(unsigned) == "node_signature_required"
    nodes.remove(node_id=machine.node.id, actor="t")
    assert code(machine.post(client, CERTIFICATE, body)) == "node_removed"
    assert not Certificate.objects.exists()


def test_a_bad_request_for_a_certificate_is_refused(client: Client) -> None:
    response = Machine().post(client, CERTIFICATE, b'{"csr": "x"}')
    assert (response.status_code, code(response)) == (400, "bad_certificate_request")


def test_a_node_that_asks_for_too_many_certificates_is_told_when_to_ask_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(authority, "MOST_A_DAY", 1)
    machine, body = Machine(), orjson.dumps(to_dict(CertificateRequest(csr=a_csr())))
    assert machine.post(client, CERTIFICATE, body).status_code == 200
    response = machine.post(client, CERTIFICATE, body)
    assert (response.status_code, code(response), response["Retry-After"]) == (429, "certificates_too_often", "3600")
    assert machine.proves(response)


# --- tokens


def test_a_token_is_made_shown_once_listed_and_revoked(admin_client: Client) -> None:
    made = admin_client.post(TOKENS, {"uses": 3, "hours": 2}, content_type="application/json")
    assert made.status_code == 201
    shown = made.json()
    assert shown["uses_allowed"] == 3
    assert words.parse_token(shown["token"]).token_id == shown["id"]
    assert shown["command"].startswith(f"llmgw node join {shown['token']} --controller ")
    listed = admin_client.get(TOKENS).json()["results"]
    assert [item["id"] for item in listed] == [shown["id"]]
    assert shown["token"] not in str(listed)
    assert admin_client.get(f"{TOKENS}/{shown['id']}").json() == listed[0]
    assert admin_client.delete(f"{TOKENS}/{shown['id']}").status_code == 204
    assert admin_client.get(TOKENS).json()["results"][0]["revoked_at"]
    assert admin_client.delete(f"{TOKENS}/join_none").status_code == 404


def test_a_token_without_wishes_is_for_one_machine_and_a_day(admin_client: Client) -> None:
    admin_client.post(TOKENS, {}, content_type="application/json")
    token = JoinToken.objects.get()
    assert token.uses_allowed == 1
    assert 86_000 < (token.expires_at - token.created_at).total_seconds() < 87_000


@pytest.mark.parametrize(
    ("body", "reason"),
    [({"uses": 0}, "invalid_value"), ({"hours": 0}, "invalid_value"), ({"mood": 1}, "unknown_field")],
)
def test_tokens_that_make_no_sense_are_refused(admin_client: Client, body: Any, reason: str) -> None:
    response = admin_client.post(TOKENS, body, content_type="application/json")
    assert (response.status_code, code(response)) == (400, reason)
    assert not JoinToken.objects.exists()


def test_tokens_are_for_those_who_may(client: Client) -> None:
    assert client.get(TOKENS).status_code == 401
    assert client.post(TOKENS, {}, content_type="application/json").status_code == 401
    client.force_login(a_user("reader", "cluster.view_jointoken"))
    assert client.get(TOKENS).status_code == 200
    assert client.post(TOKENS, {}, content_type="application/json").status_code == 403
    token = joining.issue(actor="t").token
    assert client.delete(f"{TOKENS}/{token.id}").status_code == 403
