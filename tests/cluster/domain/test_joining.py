"""cluster.domain.joining: the token as a word, and proofs."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain import joining
from cluster.domain.joining import ControllerAddress, JoinAnswer, JoinRequest, TokenText, format_token, parse_token
from cluster.wire import from_dict, to_dict
from llmgw_site.lib.errors import Refused

SECRET = "11" * 32
TOKEN = TokenText(token_id="join_1", secret=SECRET, controller_public_key="22" * 32, ca_fingerprint="33" * 32)
REQUEST = JoinRequest(
    token_id="join_1", name="alpha", public_key="44" * 32, csr="CSR", address="http://10.0.0.1:8880", nonce="n1"
)
ANSWER = JoinAnswer(
    node_id="node_1",
    certificate="CERT",
    ca_certificate="CA",
    controllers=(ControllerAddress(node_id="node_0", address="http://10.0.0.9:8880"),),
    server_time=1_700_000_000.25,
)
hexes = st.binary(min_size=32, max_size=32).map(bytes.hex)


@given(hexes, hexes, hexes, st.from_regex(r"join_[0-9a-z]{26}", fullmatch=True))
def test_a_token_is_one_word_that_says_the_same_again(secret: str, key: str, ca: str, token_id: str) -> None:
    token = TokenText(token_id=token_id, secret=secret, controller_public_key=key, ca_fingerprint=ca)
    text = format_token(token)
    assert text.startswith("llmgw-join.")
    assert len(text.split()) == 1
    assert parse_token(f"  {text}\n") == token


@given(st.data())
def test_a_damaged_token_is_refused(data: st.DataObject) -> None:
    text = format_token(TOKEN)
    at = data.draw(st.integers(0, len(text) - 1))
    other = data.draw(st.characters(codec="ascii", exclude_characters=text[at]).filter(lambda c: not c.isspace()))
    with pytest.raises(Refused) as refused:
        parse_token(text[:at] + other + text[at + 1 :])
    assert refused.value.code == "join_token_damaged"


def test_the_last_character_counts_too() -> None:
    text = format_token(TOKEN)
    for last in set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/=") - {text[-1]}:
        with pytest.raises(Refused):
            parse_token(text[:-1] + last)


@pytest.mark.parametrize("text", ["", "x", "llmgw-join", "llmgw-join.", "llmgw-join.a.b", format_token(TOKEN)[:-1]])
def test_what_is_no_token_is_refused_with_a_way_out(text: str) -> None:
    with pytest.raises(Refused, match="llmgw node token"):
        parse_token(text)


def test_a_token_does_not_show_its_secret() -> None:
    assert SECRET not in repr(TOKEN)


def test_a_proof_holds_for_its_request_only() -> None:
    made = joining.proof(SECRET, REQUEST)
    assert joining.proves(made, joining.proof(SECRET, replace(REQUEST, proof="anything")))
    for field in fields(JoinRequest):
        if field.name != "proof":
            assert joining.proof(SECRET, replace(REQUEST, **{field.name: "other"})) != made
    assert joining.proof("12" * 32, REQUEST) != made


def test_text_cannot_move_from_one_field_to_the_next() -> None:
    one, other = replace(REQUEST, name="a", public_key='b","c'), replace(REQUEST, name='a","b', public_key="c")
    assert joining.proof(SECRET, one) != joining.proof(SECRET, other)


def test_an_answer_is_for_one_request() -> None:
    made = joining.answer_proof(SECRET, REQUEST, ANSWER)
    assert joining.answer_proof(SECRET, replace(REQUEST, nonce="n2"), ANSWER) != made
    for field in fields(JoinAnswer):
        if field.name != "proof":
            other = {"controllers": (), "server_time": 1.0}.get(field.name, "other")
            assert joining.answer_proof(SECRET, REQUEST, replace(ANSWER, **{field.name: other})) != made


def test_proofs_survive_the_wire() -> None:
    request = from_dict(JoinRequest, to_dict(replace(REQUEST, proof=joining.proof(SECRET, REQUEST))))
    assert joining.proves(joining.proof(SECRET, request), request.proof)
    answer = replace(ANSWER, proof=joining.answer_proof(SECRET, request, ANSWER))
    assert from_dict(JoinAnswer, to_dict(answer)) == answer
