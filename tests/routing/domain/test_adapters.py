"""An adapter in the data path: the entry, the seat, and the body that an engine is sent."""

from __future__ import annotations

import orjson
import pytest

from cluster.wire import LocalAdapter, LocalEngine
from routing.domain.adapters import adapter_seat, base_seat, entry_of, lacking
from routing.domain.choose import Seat
from routing.domain.endpoints import CHAT
from routing.domain.openai import NO_LORA, model_object, parse, upstream_body
from routing.domain.snapshot import AdapterEntry, ModelEntry

MODEL = ModelEntry(name="org/base", created=1, replicas=("rep_1",), context=4096)
LOUD = AdapterEntry(name="loud", created=2, weights="/srv/loud.gguf", scale=0.5)
SEAT = Seat(replica_id="rep_1", host="127.0.0.1", port=1, key="k", served_name="org/base")


def engine(*adapters: LocalAdapter) -> LocalEngine:
    return LocalEngine(
        replica_id="rep_1", model="org/base", engine="llama.cpp", state="ready", host="127.0.0.1", port=1, key="k",
        adapters=adapters,
    )  # fmt: skip


def body(**more: object) -> bytes:
    return orjson.dumps({"model": "loud", "messages": [{"role": "user", "content": "x"}], **more})


def test_an_adapter_stands_and_falls_with_its_model_and_has_its_own_name() -> None:
    entry = entry_of(MODEL, LOUD)
    assert (entry.name, entry.parent, entry.base, entry.created) == ("loud", "org/base", "org/base", 2)
    assert (entry.replicas, entry.context) == (MODEL.replicas, 4096)
    assert model_object(entry, {})["parent"] == "org/base"
    assert "parent" not in model_object(MODEL, {})
    assert MODEL.base == "org/base"


def test_llama_cpp_is_told_the_number_and_vllm_the_name() -> None:
    numbered = adapter_seat(SEAT, engine(LocalAdapter(name="loud", weights="/srv/loud.gguf", id=3)), LOUD)
    assert numbered is not None
    assert orjson.loads(numbered.lora) == [{"id": 3, "scale": 0.5}]
    assert numbered.served_name == "org/base"
    named = adapter_seat(SEAT, engine(LocalAdapter(name="loud", weights="/srv/loud.gguf")), LOUD)
    assert named is not None
    assert (named.served_name, named.lora) == ("loud", b"")


@pytest.mark.parametrize("held", [(), (LocalAdapter(name="loud", weights="/srv/older.gguf", id=0),)])
def test_an_engine_without_it_or_with_an_earlier_file_of_its_name_is_no_seat(held: tuple[LocalAdapter, ...]) -> None:
    assert adapter_seat(SEAT, engine(*held), LOUD) is None
    assert [item.code for item in lacking([engine(*held)], LOUD)] == ["adapter_not_loaded"]


def test_requests_of_the_model_itself_apply_none_whatever_a_client_says() -> None:
    seat = base_seat(SEAT, engine(LocalAdapter(name="loud", weights="/srv/loud.gguf", id=3)))
    plain, sly = body(), body(lora=[{"id": 3, "scale": 1}])
    for sent in (plain, sly):
        ask = parse(CHAT, sent, max_depth=9)
        made = upstream_body(sent, ask, served_name="loud", lora=seat.lora)
        assert made == (plain if sent is plain else sent.replace(b'[{"id":3,"scale":1}]', NO_LORA))
    assert base_seat(SEAT, engine()) == SEAT


def test_the_field_is_set_in_the_bytes_and_nothing_else_is_touched() -> None:
    lora = orjson.dumps([{"id": 1, "scale": 1.0}])
    sent = b'{ "model":"loud","messages":[{"role":"user","content":"lora"}],"temperature":1.0}'
    made = upstream_body(sent, parse(CHAT, sent, max_depth=9), served_name="org/base", lora=lora)
    assert orjson.loads(made)["lora"] == [{"id": 1, "scale": 1.0}]
    assert orjson.loads(made)["model"] == "org/base"
    assert b'"temperature":1.0' in made
    for hidden in (b'"lora":7', b'"l\\u006fra":[{"id":0,"scale":9}]'):
        sly = sent[:-1] + b"," + hidden + b"}"
        made = upstream_body(sly, parse(CHAT, sly, max_depth=9), served_name="", lora=lora)
        assert orjson.loads(made)["lora"] == [{"id": 1, "scale": 1.0}]
        assert made.count(b"scale") == 1


def test_the_file_before_an_update_answers_where_it_is_still_loaded() -> None:
    updated = AdapterEntry(name="loud", created=2, weights="/srv/loud.gguf", former="/srv/older.gguf", scale=0.5)
    for weights in ("/srv/loud.gguf", "/srv/older.gguf"):
        seat = adapter_seat(SEAT, engine(LocalAdapter(name="loud", weights=weights, id=3)), updated)
        assert seat is not None
        assert orjson.loads(seat.lora) == [{"id": 3, "scale": 0.5}]
    assert adapter_seat(SEAT, engine(LocalAdapter(name="loud", weights="/srv/other.gguf", id=3)), updated) is None
