"""Which files of a repository make a model together: names as publishers write them."""

from __future__ import annotations

import pytest

from catalog.domain.repository import Format, RepoFile, choose, file_sets, projectors, quantization
from llmgw_site.lib.errors import Refused


def files(*paths: str) -> list[RepoFile]:
    return [RepoFile(path=path, size=10 + at) for at, path in enumerate(paths)]


LABELS = {
    "Llama-3.2-1B-Instruct-Q4_K_M.gguf": "Q4_K_M",
    "llama-2-7b.Q5_K_S.gguf": "Q5_K_S",
    "qwen2.5-7b-instruct-q8_0.gguf": "Q8_0",
    "gemma-3-27b-it-UD-Q4_K_XL.gguf": "UD-Q4_K_XL",
    "Mistral-7B-IQ3_XXS.gguf": "IQ3_XXS",
    "Mistral-7B-IQ4_NL.gguf": "IQ4_NL",
    "model-BF16.gguf": "BF16",
    "model.f16.gguf": "F16",
    "gpt-oss-20b-MXFP4.gguf": "MXFP4",
    "model-fp16.gguf": "FP16",
    "BF16/big-BF16-00001-of-00002.gguf": "BF16",
    "Q4_K_M/big-00001-of-00002.gguf": "Q4_K_M",
    "Q2_K-of-nothing/model-Q6_K.gguf": "Q6_K",
    "bitnet-TQ2_0.gguf": "TQ2_0",
    "SmolLM2-135M-Instruct.Q4_1.gguf": "Q4_1",
    "mamba-2.8b.gguf": "",
    "Q4ever-model.gguf": "",
}


@pytest.mark.parametrize(("path", "label"), LABELS.items())
def test_a_quantization_is_read_from_the_name(path: str, label: str) -> None:
    assert quantization(path) == label


def test_each_quantization_is_a_set_and_what_lies_beside_is_none() -> None:
    sets = file_sets(files(
        "README.md", "m-Q4_K_M.gguf", "m-Q8_0.gguf", "mmproj-m-f16.gguf", "m.imatrix", "imatrix.gguf", "mtp-m-Q8_0.gguf",
        "ggml-vocab-llama.gguf", "m-imatrix.gguf", "imatrix.dat",
    ))  # fmt: skip
    assert [(item.first.path, item.quantization, item.format) for item in sets] == [
        ("m-Q4_K_M.gguf", "Q4_K_M", Format.GGUF),
        ("m-Q8_0.gguf", "Q8_0", Format.GGUF),
    ]


def test_the_parts_of_a_set_are_one_model_in_order() -> None:
    sets = file_sets(
        files("Q8_0/m-Q8_0-00003-of-00003.gguf", "Q8_0/m-Q8_0-00001-of-00003.gguf", "Q8_0/m-Q8_0-00002-of-00003.gguf")
    )
    assert len(sets) == 1
    assert [part.name for part in sets[0].weights] == [f"m-Q8_0-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    assert sets[0].size == 10 + 11 + 12
    assert sets[0].missing == ()


def test_parts_that_are_missing_are_named() -> None:
    sets = file_sets(files("m-Q8_0-00002-of-00003.gguf", "m-Q8_0-00003-of-00003.gguf"))
    assert [item.missing for item in sets] == [("m-Q8_0-00001-of-00003.gguf",)]
    with pytest.raises(Refused) as refused:
        choose(sets)
    assert refused.value.code == "weights_incomplete"
    assert "m-Q8_0-00001-of-00003.gguf is missing" in refused.value.message


def test_a_part_beyond_the_end_of_its_set_is_none() -> None:
    assert file_sets(files("m-00005-of-00003.gguf", "m-00000-of-00003.gguf")) == ()
    sets = file_sets(files("m-00005-of-00003.gguf", "m-00001-of-00003.gguf"))
    assert [[part.path for part in item.weights] for item in sets] == [["m-00001-of-00003.gguf"]]
    assert len(sets[0].missing) == 2


def test_of_very_many_missing_parts_some_are_told_and_one_of_each_set() -> None:
    one = file_sets(files("m-00001-of-01000.gguf"))
    assert len(one[0].missing) == 999
    many = file_sets(files(*(f"m{number}-00001-of-01000.gguf" for number in range(100))))
    assert len(many) == 100
    assert all(item.missing for item in many)
    assert sum(len(item.missing) for item in many) < 1200


def test_sets_of_the_same_name_in_two_folders_are_two() -> None:
    sets = file_sets(files("a/m-00001-of-00002.gguf", "a/m-00002-of-00002.gguf", "b/m-00001-of-00002.gguf"))
    assert [(item.first.path, len(item.weights), len(item.missing)) for item in sets] == [
        ("a/m-00001-of-00002.gguf", 2, 0),
        ("b/m-00001-of-00002.gguf", 1, 1),
    ]


def test_safetensors_come_with_what_an_engine_reads_beside_them() -> None:
    sets = file_sets(files(
        "README.md", "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json",
        "consolidated.safetensors", "modeling_x.py", "pytorch_model.bin", "original/model.safetensors", "figure.png",
    ))  # fmt: skip
    assert len(sets) == 1
    assert sets[0].format is Format.SAFETENSORS
    assert [part.path for part in sets[0].weights] == [
        "model-00001-of-00002.safetensors",
        "model-00002-of-00002.safetensors",
    ]
    assert [part.path for part in sets[0].beside] == [
        "chat_template.jinja", "config.json", "generation_config.json", "model.safetensors.index.json", "tokenizer.json",
        "tokenizer_config.json",
    ]  # fmt: skip


def test_safetensors_without_a_part_or_config_are_not_whole() -> None:
    sets = file_sets(files("model-00001-of-00002.safetensors"))
    assert sets[0].missing == ("model-00002-of-00002.safetensors", "config.json")


def test_projectors_are_found_the_usual_one_first() -> None:
    found = projectors(files("mmproj-F32.gguf", "mmproj-BF16.gguf", "m-Q4_K_M.gguf", "m.mmproj-f16.gguf", "mmproj.txt"))
    assert [file.path for file in found] == ["m.mmproj-f16.gguf", "mmproj-BF16.gguf", "mmproj-F32.gguf"]


SETS = file_sets(files("m-Q4_K_M.gguf", "m-Q8_0.gguf", "sub/m-Q8_0.gguf", "config.json", "model.safetensors"))


def test_words_choose_among_sets() -> None:
    assert [item.first.path for item in choose(SETS, wanted="q4_k_m")] == ["m-Q4_K_M.gguf"]
    assert [item.first.path for item in choose(SETS, wanted="Q8_0")] == ["m-Q8_0.gguf", "sub/m-Q8_0.gguf"]
    assert [item.first.path for item in choose(SETS, file="sub/m-Q8_0.gguf")] == ["sub/m-Q8_0.gguf"]
    assert [item.first.path for item in choose(SETS, format="safetensors")] == ["model.safetensors"]


@pytest.mark.parametrize(
    ("words", "code", "there"),
    [
        ({"wanted": "Q2_K"}, "quantization_not_in_repository", "it has Q4_K_M, Q8_0"),
        (
            {"file": "x.gguf"},
            "file_not_in_repository",
            "it has m-Q4_K_M.gguf, m-Q8_0.gguf, model.safetensors, sub/m-Q8_0.gguf",
        ),
        ({"format": "onnx"}, "format_not_in_repository", "it has gguf, safetensors"),
        ({"format": "safetensors", "wanted": "Q8_0"}, "quantization_not_in_repository", "it names none"),
    ],
)
def test_what_is_not_there_is_refused_with_what_is(words: dict[str, str], code: str, there: str) -> None:
    with pytest.raises(Refused) as refused:
        choose(SETS, **words)
    assert refused.value.code == code
    assert there in refused.value.message


def test_a_repository_without_a_model_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        choose(file_sets(files("README.md", "pytorch_model.bin", "model.py")))
    assert refused.value.code == "repository_has_no_model"
