"""Weights on a real disk."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from catalog.services import weights
from llmgw_site.lib.errors import Refused
from tests.tiny import make_tiny_gguf, tiny_gguf


def code(path: Path | str) -> str:
    with pytest.raises(Refused) as refused:
        weights.look(str(path))
    assert refused.value.param == "weights_path"
    return refused.value.code


def shard(path: Path, number: int, count: int) -> Path:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint16("split.no", number)
    writer.add_uint16("split.count", count)
    writer.add_tensor(f"w{number}", np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_a_whole_file_is_looked_at() -> None:
    path = tiny_gguf()
    found = weights.look(str(path))
    assert (found.files, found.size, found.facts.layers) == ((str(path),), path.stat().st_size, 2)


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    adapter = tmp_path / "lora.gguf"
    make_tiny_gguf(tmp_path / "base.gguf", loras=[(adapter, "Another text that it says.")])
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(tiny_gguf().read_bytes()[:50_000])
    other = tmp_path / "other.gguf"
    other.write_text("no model at all")
    os.mkfifo(tmp_path / "pipe.gguf")
    hollow = tmp_path / "hollow.gguf"
    hollow.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    assert code(adapter) == "weights_not_a_model"
    assert code(hollow) == "weights_not_a_model"
    assert code(cut) == "gguf_truncated"
    assert code(other) == "gguf_not_gguf"
    assert code(tmp_path / "pipe.gguf") == "weights_not_a_file"
    assert code(tmp_path) == "weights_not_a_file"
    assert code("/dev/zero") == "weights_not_a_file"
    assert code(tmp_path / "absent.gguf") == "weights_missing"
    assert code("/srv/a\0b") == "weights_unreadable"
    (tmp_path / "empty.gguf").touch()
    assert code(tmp_path / "empty.gguf") == "gguf_not_gguf"


def test_a_set_of_parts_counts_when_it_is_complete(tmp_path: Path) -> None:
    parts = [shard(tmp_path / f"m-0000{n}-of-00003.gguf", n - 1, 3) for n in (1, 2, 3)]
    found = weights.look(str(parts[0]))
    assert found.size == sum(part.stat().st_size for part in parts)
    assert found.files == tuple(map(str, parts))
    assert code(parts[1]) == "weights_not_first_shard"
    renamed = tmp_path / "renamed.gguf"
    shutil.copy(parts[0], renamed)
    assert code(renamed) == "weights_incomplete"
    parts[2].unlink()
    assert code(parts[0]) == "weights_missing"


def test_only_the_header_is_read(monkeypatch: Any) -> None:
    read: list[int] = []
    real = os.pread

    def counted(handle: int, count: int, offset: int) -> bytes:
        data = real(handle, count, offset)
        read.append(offset + len(data))
        return data

    monkeypatch.setattr(os, "pread", counted)
    weights.look(str(tiny_gguf()))
    assert len(read) == 1
