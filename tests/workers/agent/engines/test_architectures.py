"""workers.agent.engines.architectures: read from the engine that is installed here, and from files made for the test."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from cluster.domain.serving import plain
from workers.agent.engines.architectures import of_library, of_vllm
from workers.agent.engines.llama_cpp import LlamaCpp
from workers.agent.engines.vllm import Vllm


def test_the_engine_that_is_installed_knows_every_architecture_that_its_converter_writes() -> None:
    known = set(map(plain, LlamaCpp().build().architectures))
    if not known:
        pytest.skip("no xllamacpp is installed")
    assert {name for name in gguf.MODEL_ARCH_NAMES.values() if plain(name) not in known} == set()
    assert "nosucharchitecture" not in known
    assert "llamaforcausallm" not in known


def test_names_are_taken_from_classes_and_from_the_list_of_texts(tmp_path: Path) -> None:
    file = tmp_path / "lib.so"
    names = b"".join(b"name%d\0" % n for n in range(30))
    file.write_bytes(b"\x7fELF\0_ZTV19llama_model_command_r\0x\0llama\0" + names + b"command-r\0(unknown)\0")
    found = of_library(file)
    assert {"llama", "command-r", "name7"} <= set(found)
    assert "command_r" not in found


@pytest.mark.parametrize("content", [b"", b"no library", b"\0llama\0qwen3\0(unknown)\0"])
def test_a_library_that_does_not_tell_tells_nothing(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "lib.so"
    file.write_bytes(content)
    assert of_library(file) == ()
    assert of_library(tmp_path / "none") == ()


def test_vllm_tells_by_its_registry_of_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "lib/python3.12/site-packages/vllm/model_executor/models"
    folder.mkdir(parents=True)
    binary = tmp_path / "bin/vllm"
    binary.parent.mkdir()
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    assert of_vllm(binary) == ()
    (folder / "registry.py").write_text(
        '_TEXT = {\n    "LlamaForCausalLM": ("llama", "LlamaForCausalLM"),\n    # x\n    "Qwen3ForCausalLM": ("q", "Q"),\n}\n'
    )
    monkeypatch.setenv("PATH", str(binary.parent))
    assert Vllm().build().architectures == ("LlamaForCausalLM", "Qwen3ForCausalLM")
