"""cluster.services.joining: tokens, and machines that come with them."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.db import connection
from django.utils import timezone

from catalog.models import Event
from cluster import selectors
from cluster.domain import joining as words
from cluster.domain import signing
from cluster.domain.joining import JoinAnswer, JoinRequest, TokenText
from cluster.models import Certificate, JoinToken, Node
from cluster.services import authority, identity, joining, members, nodes
from llmgw_site.lib.errors import Refused
from tests.cluster.rows import Machine

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def calm() -> Iterator[None]:
    joining._recent.clear()
    yield
    joining._recent.clear()


def a_csr(key: Any = None) -> str:
    key = key or ec.generate_private_key(ec.SECP256R1())
    asked = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    return asked.public_bytes(serialization.Encoding.PEM).decode()


def a_request(token: TokenText, name: str = "alpha", **fields: Any) -> JoinRequest:
    """What a machine sends that holds this token."""
    asked = JoinRequest(
        token_id=token.token_id,
        name=name,
        public_key=fields.pop("public_key", None) or signing.public_hex(secrets.token_hex(32)),
        csr=fields.pop("csr", None) or a_csr(),
        address=fields.pop("address", "http://10.0.0.1:8880"),
        nonce=secrets.token_hex(16),
    )
    asked = replace(asked, **fields)
    return replace(asked, proof=words.proof(token.secret, asked))


def a_token(**fields: Any) -> TokenText:
    return words.parse_token(joining.issue(actor="t", **fields).text)


def join(asked: JoinRequest) -> JoinAnswer:
    return joining.join(asked, now=selectors.database_now())


def refused(asked: JoinRequest) -> str:
    with pytest.raises(Refused) as problem:
        join(asked)
    return problem.value.code


def test_a_machine_with_a_token_becomes_a_node() -> None:
    token = a_token()
    asked = a_request(token)
    answer = join(asked)
    node = Node.objects.get(id=answer.node_id)
    assert (node.name, node.public_key, node.address) == ("alpha", asked.public_key, "http://10.0.0.1:8880")
    assert answer.proof == words.answer_proof(token.secret, asked, answer)
    assert token.ca_fingerprint == authority.fingerprint(answer.ca_certificate)
    assert token.controller_public_key == identity.ensure_identity().public_key
    assert JoinToken.objects.get().uses == 1
    event = Event.objects.get(kind="node_enrolled")
    assert event.actor == f"join:{token.token_id}"
    assert token.secret not in str([vars(row) for row in Event.objects.all()])


def test_the_secret_is_kept_sealed_and_shown_once() -> None:
    issued = joining.issue(actor="t")
    token = words.parse_token(issued.text)
    assert token.secret not in str(vars(JoinToken.objects.get()))
    assert token.secret not in repr(issued)
    assert issued.command.startswith(f"llmgw node join {issued.text} --controller http")


def test_a_token_lets_in_as_many_as_it_says() -> None:
    token = a_token(uses=2)
    join(a_request(token, "a"))
    join(a_request(token, "b"))
    assert refused(a_request(token, "c")) == "join_token_invalid"
    assert Node.objects.count() == 2


def test_a_machine_whose_answer_was_lost_asks_again_without_another_use() -> None:
    token = a_token()
    asked = a_request(token)
    first = join(asked)
    again = replace(asked, nonce="another", csr=a_csr())
    second = join(replace(again, proof=words.proof(token.secret, again)))
    assert second.node_id == first.node_id
    assert second.certificate != first.certificate
    assert JoinToken.objects.get().uses == 1
    assert Node.objects.count() == 1


def test_an_expired_revoked_or_unknown_token_or_a_wrong_proof_are_refused_alike() -> None:
    texts = set()
    expired, revoked, unknown, wrong = (a_token() for _ in range(4))
    JoinToken.objects.filter(id=expired.token_id).update(expires_at=timezone.now() - timedelta(seconds=1))
    joining.revoke(actor="t", token_id=revoked.token_id)
    JoinToken.objects.filter(id=unknown.token_id).delete()
    other = replace(wrong, secret=secrets.token_hex(32))
    for token in (expired, revoked, unknown, other):
        with pytest.raises(Refused) as problem:
            join(a_request(token))
        assert problem.value.code == "join_token_invalid"
        texts.add(problem.value.message)
    assert len(texts) == 1
    assert "llmgw node token" in texts.pop()
    assert not Node.objects.exists()


def test_what_was_proved_cannot_be_changed_on_the_way() -> None:
    asked = a_request(a_token())
    for field, value in {"name": "eve", "address": "http://10.6.6.6:8880", "csr": a_csr(), "nonce": "x"}.items():
        assert refused(replace(asked, **{field: value})) == "join_token_invalid"


def test_a_name_that_is_taken_is_refused_and_spends_no_use() -> None:
    token = a_token()
    Machine("alpha")
    assert refused(a_request(token)) == "node_exists"
    assert JoinToken.objects.get().uses == 0
    join(a_request(token, "beta"))


def test_a_removed_node_does_not_come_back_with_its_key() -> None:
    token = a_token(uses=5)
    asked = a_request(token)
    answer = join(asked)
    nodes.remove(node_id=answer.node_id, actor="t")
    assert refused(asked) == "node_removed"
    assert refused(a_request(a_token(), public_key=asked.public_key)) == "node_removed"
    assert join(a_request(token)).node_id != answer.node_id


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": ""}, "invalid_value"),
        ({"name": "a b"}, "invalid_value"),
        ({"name": "../x"}, "invalid_value"),
        ({"name": "x" * 101}, "invalid_value"),
        ({"address": "ftp://x"}, "invalid_value"),
        ({"address": "http://x/path"}, "invalid_value"),
        ({"address": "http://user@x"}, "invalid_value"),
        ({"address": "http://x:99999"}, "invalid_value"),
        ({"address": "http://" + "x" * 400}, "invalid_value"),
        ({"nonce": ""}, "invalid_value"),
        ({"nonce": "x" * 200}, "invalid_value"),
        ({"public_key": "zz"}, "bad_public_key"),
        ({"public_key": " ".join(["ab"] * 32)}, "bad_public_key"),  # longer than its column
        ({"public_key": "00" * 32}, "bad_public_key"),  # nobody can agree on a secret with it: RFC 7748, section 6.1
        ({"csr": "no pem"}, "bad_certificate_request"),
        ({"csr": "x" * 100_000}, "bad_certificate_request"),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(fields: dict[str, str], code: str) -> None:
    token = a_token()
    assert refused(a_request(token, **fields)) == code
    assert JoinToken.objects.get().uses == 0
    assert not Node.objects.exists()


@pytest.mark.parametrize("address", ["", "http://10.0.0.1:8880", "https://node.example/", "http://[fd00::1]:8880"])
def test_addresses_that_are_some(address: str) -> None:
    assert join(a_request(a_token(), address=address)).node_id


@pytest.mark.parametrize("bad", [{"uses": 0}, {"uses": 10**6}, {"hours": 0}, {"hours": -1}, {"hours": 10**6}])
def test_tokens_are_bounded(bad: dict[str, Any]) -> None:
    with pytest.raises(Refused) as problem:
        joining.issue(actor="t", **bad)
    assert problem.value.code == "invalid_value"


def test_many_at_once_are_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(joining, "SPAN", 600.0)  # however slow the machine, they come within it
    unknown = a_request(replace(a_token(), token_id="join_none"))
    codes = [refused(unknown) for _ in range(joining.ATTEMPTS + 1)]
    assert codes[-1] == "joins_too_often"
    assert set(codes[:-1]) == {"join_token_invalid"}


def test_who_joins_is_told_of_the_controllers_in_the_map() -> None:
    controller = Machine("boss")
    Node.objects.filter(id=controller.node.id).update(
        last_seen_at=timezone.now(),
        address="http://10.0.0.9:8880",
        modules=[{"name": "controller", "state": "running", "code": "", "message": ""}],
    )
    members.publish()
    answer = join(a_request(a_token()))
    assert [(c.node_id, c.address) for c in answer.controllers] == [(controller.node.id, "http://10.0.0.9:8880")]


def test_revoking_is_recorded_once_and_unknown_tokens_are_told() -> None:
    token = a_token()
    for _ in range(2):
        joining.revoke(actor="user:x", token_id=token.token_id)
    assert Event.objects.filter(kind="join_token_revoked").count() == 1
    with pytest.raises(Refused) as problem:
        joining.revoke(actor="t", token_id="join_none")
    assert problem.value.code == "not_found"


# --- races


def at_once(calls: list[Any]) -> list[Any]:
    """Each call in a thread of its own, begun together; what each returned or raised."""
    barrier, results = threading.Barrier(len(calls)), [None] * len(calls)

    def run(number: int) -> None:
        barrier.wait()
        try:
            results[number] = calls[number]()
        except Refused as problem:
            results[number] = problem.code
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return results


@pytest.mark.django_db(transaction=True)
def test_of_several_that_race_for_the_last_use_one_gets_it() -> None:
    token = a_token()
    requests = [a_request(token, f"n{number}") for number in range(4)]
    results = at_once([lambda asked=asked: join(asked) for asked in requests])
    assert sorted(isinstance(result, JoinAnswer) for result in results) == [False, False, False, True]
    assert {result for result in results if isinstance(result, str)} == {"join_token_invalid"}
    assert Node.objects.count() == JoinToken.objects.get().uses == 1


@pytest.mark.django_db(transaction=True)
def test_a_machine_that_asks_twice_at_once_is_one_node() -> None:
    token = a_token(uses=5)
    asked = a_request(token)
    results = at_once([lambda: join(asked)] * 3)
    assert len({result.node_id for result in results}) == 1
    assert JoinToken.objects.get().uses == 1
    assert Certificate.objects.count() == 3
