"""Gives damaged files and answers to everything that reads them, many times over, in a process of its own:
`python -m tests.catalog.domain.hostile READER,READER COUNT SEED`.

Prints for each how many cases ran and how many of them were refused, the slowest in seconds, and the memory that all of them together
came to need, in bytes. Anything but a refusal ends it with a traceback; so does a refusal that cannot be told in JSON, and a
fact that no database keeps.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

from catalog.domain.adapters import gguf_adapter, peft_adapter
from catalog.domain.cards import RepoCard, repo_card
from catalog.domain.changes import change, successor
from catalog.domain.facts import ModelFacts, facts_from_dict, model_facts
from catalog.domain.footprint import estimate
from catalog.domain.foreign import MAX_ITEMS, parsed
from catalog.domain.gguf import BadGguf, read_header
from catalog.domain.hf_config import config_facts
from catalog.domain.manifests import manifest_from_dict
from catalog.domain.projectors import is_projector, takes
from catalog.domain.repository import MAX_FILES, Format, choose, file_sets, projectors
from catalog.domain.safetensors import BadSafetensors, read_index
from catalog.domain.safetensors import read_header as read_safetensors
from catalog.domain.tracing import held
from catalog.registry.client import MAX_ANSWER
from llmgw_site.lib.errors import Refused
from tests.catalog.domain import hostile_seeds as seeds
from tests.catalog.domain.hostile_answers import Answers
from tests.catalog.domain.hostile_seeds import NUMBERS, Bytes, damaged, odd

Case = Callable[[random.Random], None]


def kept(facts: ModelFacts) -> None:
    """What is known of a model goes into databases and JSON of 64 bits and comes back; and so does what it takes."""
    text = orjson.dumps(facts.as_dict())
    assert b"\\u0000" not in text, text[:300]
    assert facts_from_dict(orjson.loads(text)) == facts
    for context in (0, 8192):
        assert estimate(facts, weights=facts.bytes, context=context, slots=8).total < 1 << 63


def tellable(message: str) -> None:
    """A refusal is kept with its job and told in JSON."""
    assert message.isprintable(), message
    assert len(message) < 3000, message


def gguf(dice: random.Random, seed: bytes, file_name: str = "m.gguf") -> None:
    """The header of a model, of an adapter, of a projector."""
    data = damaged(dice, seed)
    header = read_header(Bytes(data, dice.choice((len(data), len(seed) + 4096, 1 << 50))))
    facts = model_facts(header, file_name=file_name)
    kept(facts)
    if facts.kind == "adapter":
        orjson.dumps(gguf_adapter(header, facts, what=file_name).as_dict())
    if is_projector(header):
        assert takes(header).compute < 1 << 60


def shape(dice: random.Random) -> None:
    """A header that is sound, of a model that is not."""
    data = seeds.made_gguf(dice)
    header = read_header(Bytes(data, len(data) + (1 << 20)))
    if is_projector(header):
        assert takes(header).compute < 1 << 60
    name = dice.choice(("m.gguf", "mmproj-F16.gguf", "m-00002-of-00003.gguf", "m.imatrix"))
    kept(model_facts(header, file_name=name))


def safetensors(dice: random.Random) -> None:
    text = _json_bytes(dice, seeds.TENSORS)
    length = dice.choice((len(text), len(text), dice.choice(NUMBERS))) % (1 << 64)
    size = dice.choice((8 + len(text), 8 + len(text) + seeds.TENSOR_BYTES, 1 << 50))
    read_safetensors(Bytes(length.to_bytes(8, "little") + text, size))


def index(dice: random.Random) -> None:
    read_index(_json_bytes(dice, seeds.INDEX))


def config(dice: random.Random) -> None:
    data = _json(dice, seeds.CONFIG)
    if isinstance(data, dict):
        kept(config_facts(data, size=10**9))


def peft(dice: random.Random) -> None:
    text = _json_bytes(dice, seeds.PEFT_TENSORS, share=0.5)
    header = read_safetensors(Bytes(len(text).to_bytes(8, "little") + text, 8 + len(text) + seeds.PEFT_BYTES))
    facts = peft_adapter(_json(dice, seeds.PEFT), header, what="adapter_model.safetensors")
    assert b"\\u0000" not in orjson.dumps(facts.as_dict())


def manifest(dice: random.Random) -> None:
    orjson.dumps(manifest_from_dict(_json(dice, seeds.MANIFEST)).as_dict())


def card(dice: random.Random) -> None:
    """What a registry says of a repository, and all that is made of it."""
    found = repo_card(_json(dice, seeds.CARD))
    _used(found, dice)


def _used(found: RepoCard, dice: random.Random) -> None:
    orjson.dumps([file.path for file in found.files])
    sets = file_sets(found.files)
    projectors(found.files)
    held(found, {"m-Q4_K_M.gguf": 10, "model.safetensors": None})
    change(manifest_from_dict(seeds.MANIFEST), found)
    ask = dice.choice(({}, {"wanted": "q4_k_m"}, {"file": "m-Q4_K_M.gguf"}, {"format": "safetensors"}))
    choose(sets, **ask)
    successor(sets, format=Format.GGUF, first="m-Q4_K_M.gguf", quantization="Q4_K_M")


def largest() -> Case:
    """As much as is let in: items of each kind, texts of which each character takes four bytes, very many files and tensors."""
    texts = [seeds.of_pieces(piece, MAX_ITEMS) for piece in seeds.PIECES]
    keys, wide = seeds.of_keys(MAX_ITEMS), seeds.of_length(MAX_ANSWER)
    both = keys[:-2] + seeds.of_length(MAX_ANSWER - len(keys)) + b"}"  # the last key's value
    texts += [keys, wide, both, seeds.of_files(MAX_FILES)]
    headers = [seeds.of_tensors(38_000), seeds.of_keys(190_000), b'{"' + seeds.of_length(5 << 20)[1:] + b":1}"]
    headers += [
        b'{"x":' + seeds.of_pieces(b'{"a":1}', 300_000) + b"}",
        b'{"x":' + seeds.of_pieces(b'"ab"', 700_000) + b"}",
    ]
    indexes = [*headers, seeds.of_map(140_000)]
    files = [Bytes(len(text).to_bytes(8, "little") + text, 8 + len(text) + 2 * 38_000) for text in headers]

    def one(dice: random.Random) -> None:
        kind = dice.randrange(3)
        if kind == 0:
            answer = bytearray(dice.choice(texts))  # as it came
            found = parsed(answer)
            if isinstance(found, dict):
                config_facts(found)
            repo_card(found)
        elif kind == 1:
            read_safetensors(dice.choice(files))
        else:
            read_index(dice.choice(indexes))

    return one


def many() -> Case:
    """Repositories of as many files as are let in, whose names promise very many more."""
    cards = [repo_card(parsed(seeds.of_files(MAX_FILES, name))) for name in seeds.NAMES]

    def one(dice: random.Random) -> None:
        choose(file_sets(dice.choice(cards).files))

    return one


def _json(dice: random.Random, seed: Any) -> Any:
    """A JSON value of a stranger, read as all of them are; None where it is none."""
    try:
        return parsed(_json_bytes(dice, seed))
    except ValueError:
        return None


def _json_bytes(dice: random.Random, seed: Any, share: float = 1.0) -> bytes:
    """A text with damaged bytes, or one that is sound and has values that nobody expects. `share`: of cases with damage."""
    if dice.random() >= share:
        return json.dumps(seed).encode()
    if dice.random() < 0.4:
        return damaged(dice, json.dumps(seed).encode())
    return odd(dice, seed)


def case_of(reader: str) -> Case:
    if reader == "largest":
        return largest()
    if reader == "many":
        return many()
    tiny = seeds.tiny_header()
    return {
        "gguf": lambda dice: gguf(dice, tiny),
        "adapter": lambda dice: gguf(dice, seeds.ADAPTER, "adapter.gguf"),
        "mmproj": lambda dice: gguf(dice, seeds.PROJECTOR, "mmproj-F16.gguf"),
        "shape": shape,
        "safetensors": safetensors,
        "index": index,
        "config": config,
        "peft": peft,
        "manifest": manifest,
        "card": card,
        "answers": Answers().ask,
    }[reader]


def memory(name: str) -> int:
    """Bytes that this process has (VmRSS), or had at most (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


def main(reader: str, count: int, seed: int) -> dict[str, float]:
    one = case_of(reader)
    Path("/proc/self/clear_refs").write_text("5")  # the highest mark begins anew
    before, slowest, refusals = memory("VmRSS"), 0.0, 0
    for at in range(count):
        began = time.process_time()
        try:
            refusals += refused(one, random.Random(seed * 1_000_003 + at))
        except BaseException:
            sys.stderr.write(f"{reader}, case {at} of seed {seed}\n")
            raise
        slowest = max(slowest, time.process_time() - began)
    return {"cases": count, "refused": refusals, "slowest": slowest, "memory": memory("VmHWM") - before}


def refused(one: Case, dice: random.Random) -> bool:
    try:
        one(dice)
    except (Refused, BadGguf, BadSafetensors) as refusal:
        tellable(refusal.message)
        return True
    return False


if __name__ == "__main__":
    names, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    sys.stdout.write(json.dumps({name: main(name, count, seed) for name in names.split(",")}))
