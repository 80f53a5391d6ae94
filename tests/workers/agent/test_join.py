"""Entering a cluster: what is sent proves, what is answered must prove, and nothing is left by a refusal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from cluster.domain import joining, signing
from cluster.wire import ControllerAddress, JoinAnswer, JoinRequest, from_dict, to_dict
from llmgw_site.lib.config import Config, load
from llmgw_site.lib.errors import Refused
from workers.agent import removed
from workers.agent.identity import Identity
from workers.agent.join import Wish, join
from workers.agent.tls import Tls, fingerprint

SECRET, CONTROLLER_KEY = "ab" * 32, "22" * 32


class Authority:
    """A CA as the controllers have one, and a token of its cluster."""

    def __init__(self) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.pem = self.sign(self.key.public_key())
        self.token = joining.TokenText(
            token_id="jt_1", secret=SECRET, controller_public_key=signing.public_hex(CONTROLLER_KEY),
            ca_fingerprint=fingerprint(self.pem),
        )  # fmt: skip

    def sign(self, public: Any, *, days: float = 365.0, age: float = 0.0) -> str:
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
        began = datetime.now(UTC) - timedelta(days=age)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(public)
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(began)
        made = builder.not_valid_after(began + timedelta(days=days)).sign(self.key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM).decode()

    def certificate(self, csr: str, **life: float) -> str:
        return self.sign(x509.load_pem_x509_csr(csr.encode()).public_key(), **life)

    @property
    def text(self) -> str:
        return joining.format_token(self.token)


class Controller:
    """Answers a join; `change` spoils the answer after it was made, `status` and `code` refuse."""

    def __init__(self, authority: Authority) -> None:
        self.authority = authority
        self.requests: list[JoinRequest] = []
        self.secret, self.status, self.down = SECRET, 200, {"http://127.0.0.9:8880"}
        self.change: Callable[[JoinAnswer], JoinAnswer] = lambda answer: answer
        self.transport = httpx.MockTransport(self)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if f"{request.url.scheme}://{request.url.host}:{request.url.port}" in self.down:
            raise httpx.ConnectError("connection refused")
        if self.status != 200:
            return httpx.Response(self.status, json={"error": {"code": "join_token_used", "message": "It was used."}})
        message = from_dict(JoinRequest, orjson.loads(request.content))
        assert SECRET not in request.content.decode()
        assert joining.proves(joining.proof(SECRET, message), message.proof)
        self.requests.append(message)
        answer = JoinAnswer(
            node_id="node_7", certificate=self.authority.certificate(message.csr), ca_certificate=self.authority.pem,
            controllers=(ControllerAddress(node_id="node_1", address="http://127.0.0.1:8880"),), server_time=5.0,
        )  # fmt: skip
        answer = replace(answer, proof=joining.answer_proof(self.secret, message, answer))
        return httpx.Response(200, content=orjson.dumps(to_dict(self.change(answer))))


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture
def controller(authority: Authority) -> Controller:
    return Controller(authority)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load({"LLMGW_DATA": str(tmp_path / "data"), "LLMGW_NODE_PORT": "8881"})


def enter(config: Config, answering: Controller, /, **wish: str) -> Identity:
    asked = {"token": answering.authority.text, "controller": "http://127.0.0.1:8880", "name": "n2", **wish}
    return join(config, Wish(**asked), lambda text: None, transport=answering.transport)


def wish_of(answering: Controller) -> Wish:
    return Wish(token=answering.authority.text, controller="http://127.0.0.1:8880", name="n2")


def test_a_machine_that_was_taken_in_has_identity_certificate_and_the_settings_of_its_join(
    config: Config, controller: Controller
) -> None:
    found = enter(config, controller)
    (asked,) = controller.requests
    assert (asked.name, asked.address) == ("n2", "http://127.0.0.1:8881")
    assert found == Identity.read(config.node_file)
    assert (found.node_id, found.joined, found.host) == ("node_7", True, "127.0.0.1")
    assert signing.public_hex(found.private_key) == asked.public_key
    assert not Tls(config.tls_folder).due(datetime.now(UTC).timestamp())
    assert {path.stat().st_mode & 0o777 for path in config.tls_folder.iterdir()} == {0o600}
    after = load({"LLMGW_DATA": str(config.data), "LLMGW_NODE_PORT": "8881"})
    assert (after.controllers, after.node_name, after.node_host) == (("http://127.0.0.1:8880",), "n2", "127.0.0.1")
    assert load({"LLMGW_DATA": str(config.data), "LLMGW_CONTROLLERS": "http://b:1"}).controllers == ("http://b:1",)


def test_the_private_keys_never_leave(config: Config, controller: Controller) -> None:
    found = enter(config, controller)
    said = json.dumps(to_dict(controller.requests[0]))
    assert found.private_key not in said
    assert "PRIVATE" not in said


def test_a_controller_that_cannot_be_reached_is_passed_over(config: Config, controller: Controller) -> None:
    several = replace(config, controllers=("http://127.0.0.9:8880", "http://127.0.0.1:8880"))
    assert enter(several, controller, controller="").controllers == ("http://127.0.0.9:8880", "http://127.0.0.1:8880")


def test_an_address_that_is_given_is_told_and_kept(config: Config, controller: Controller) -> None:
    enter(config, controller, address="https://n2.example:9443")
    assert controller.requests[0].address == "https://n2.example:9443"
    assert load({"LLMGW_DATA": str(config.data)}).node_address == "https://n2.example:9443"


@pytest.mark.parametrize(
    ("wish", "code"),
    [
        ({"token": "llmgw-join.x.y"}, "join_token_damaged"),
        ({"controller": ""}, "controller_not_named"),
        ({"controller": "ftp://x"}, "bad_node_address"),
        ({"controller": "http://x:8880/path"}, "bad_node_address"),
        ({"controller": "http://x:99999"}, "bad_node_address"),
        ({"controller": "http://[::1"}, "bad_node_address"),
        ({"controller": "http://user:pw@x:8880"}, "bad_node_address"),
        ({"controller": "http://127.0.0.1:8880", "address": "https://[::1"}, "bad_node_address"),
        ({"address": "n2 example"}, "bad_node_address"),
        ({"controller": "http://127.0.0.9:8880"}, "controller_unreachable"),
    ],
)
def test_what_cannot_work_is_refused_and_leaves_no_identity(
    config: Config, controller: Controller, wish: dict[str, str], code: str
) -> None:
    with pytest.raises(Refused) as caught:
        enter(config, controller, **wish)
    assert caught.value.code == code
    assert not config.node_file.exists()


def test_what_the_controller_refuses_is_told_as_it_says(config: Config, controller: Controller) -> None:
    controller.status = 401
    with pytest.raises(Refused, match="It was used") as caught:
        enter(config, controller)
    assert caught.value.code == "join_token_used"
    assert not config.node_file.exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: replace(answer, node_id="node_evil"),
        lambda answer: replace(answer, ca_certificate=answer.certificate),
        lambda answer: replace(answer, controllers=()),
        lambda answer: replace(answer, proof=""),
    ],
    ids=["node", "CA", "controllers", "no proof"],
)
def test_an_answer_that_does_not_prove_itself_is_not_believed(
    config: Config, controller: Controller, change: Callable[[JoinAnswer], JoinAnswer]
) -> None:
    controller.change = change
    with pytest.raises(Refused) as caught:
        enter(config, controller)
    assert caught.value.code == "controller_not_believed"
    assert not config.node_file.exists()


def test_a_ca_that_the_token_does_not_name_is_not_believed(config: Config, controller: Controller) -> None:
    controller.authority = other = Authority()
    other.token = replace(other.token, ca_fingerprint="00" * 32)
    with pytest.raises(Refused) as caught:
        enter(config, controller)
    assert caught.value.code == "controller_not_believed"


def test_a_folder_that_joined_already_stays_what_it_is(config: Config, controller: Controller) -> None:
    first = enter(config, controller)
    assert enter(config, controller) == first
    assert len(controller.requests) == 1
    other = Controller(Authority())
    other.authority.token = replace(other.authority.token, controller_public_key=signing.public_hex("33" * 32))
    with pytest.raises(Refused, match="a node of another cluster") as caught:
        enter(config, other)
    assert caught.value.code == "already_in_a_cluster"


def test_a_cluster_of_its_own_is_no_folder_to_join_with(config: Config, controller: Controller) -> None:
    config.node_file.parent.mkdir(parents=True)
    Identity(node_id="node_1", private_key="11" * 32, controller_public_key=signing.public_hex("33" * 32)).write(
        config.node_file
    )
    with pytest.raises(Refused, match="a cluster of its own") as caught:
        enter(config, controller)
    assert caught.value.code == "already_in_a_cluster"


def test_a_second_try_after_a_lost_answer_says_the_same_key(config: Config, controller: Controller) -> None:
    controller.secret = "cd" * 32  # an answer that cannot be believed is as good as none
    with pytest.raises(Refused):
        enter(config, controller)
    controller.secret = SECRET
    enter(config, controller)
    first, second = controller.requests
    assert (first.public_key, first.nonce != second.nonce) == (second.public_key, True)


def test_a_key_whose_node_was_taken_out_before_its_answer_came_is_given_up(
    config: Config, controller: Controller
) -> None:
    """The answer to the first try was lost and an administrator removed what it made: the machine is not stuck with it."""
    refusals = [httpx.Response(401, json={"error": {"code": "node_removed", "message": "It was removed."}})]
    keys = []

    def answer(request: httpx.Request) -> httpx.Response:
        keys.append(from_dict(JoinRequest, orjson.loads(request.content)).public_key)
        return refusals.pop() if refusals else controller(request)

    found = join(config, wish_of(controller), lambda text: None, transport=httpx.MockTransport(answer))
    assert (len(set(keys)), signing.public_hex(found.private_key)) == (2, keys[1])


def test_where_too_many_join_at_once_a_machine_waits_its_turn(
    config: Config, controller: Controller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.agent.join.PAUSE", 0.0)
    busy = [httpx.Response(429, json={"error": {"code": "joins_too_often", "message": "Later."}}) for _ in range(3)]
    transport = httpx.MockTransport(lambda request: busy.pop() if busy else controller(request))
    assert join(config, wish_of(controller), lambda text: None, transport=transport).node_id == "node_7"


def test_an_answer_without_end_is_not_read_to_its_end(config: Config, controller: Controller) -> None:
    class Endless(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            while True:
                yield b"x" * 65536

    transport = httpx.MockTransport(lambda request: httpx.Response(200, stream=Endless()))
    with pytest.raises(Refused, match="too large") as caught:
        join(config, wish_of(controller), lambda text: None, transport=transport)
    assert caught.value.code == "controller_unreachable"


def test_a_removed_node_keeps_its_files_aside_and_may_join_again(config: Config, controller: Controller) -> None:
    first = enter(config, controller)
    assert removed.said(config) == ""
    aside = removed.put_aside(config, node_id=first.node_id)
    assert not config.node_file.exists()
    assert Identity.read(aside / "identity.json") == first
    assert "llmgw node join" in removed.said(config)
    again = enter(config, controller)
    assert again.private_key != first.private_key
    assert removed.said(config) == ""


def test_a_folder_that_cannot_be_read_says_nothing_of_a_removal(config: Config) -> None:
    (config.node_file.parent / "removed.json").mkdir(parents=True)
    assert removed.said(config) == ""


@pytest.mark.parametrize(
    ("age", "due"), [(0.0, False), (240.0, False), (244.0, True), (400.0, True)], ids=["new", "fine", "third", "over"]
)
def test_a_certificate_is_renewed_when_a_third_of_its_life_is_left(
    authority: Authority, tmp_path: Path, age: float, due: bool
) -> None:
    tls = Tls(tmp_path)
    assert tls.due(0.0)
    csr = tls.request()
    key = (tmp_path / "node.key").read_bytes()
    tls.keep(certificate=authority.certificate(csr, age=age), ca=authority.pem)
    assert tls.due(datetime.now(UTC).timestamp()) is due
    tls.request()
    assert (tmp_path / "node.key").read_bytes() == key
