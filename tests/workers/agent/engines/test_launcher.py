"""The launcher understands what the vetting lets pass, and nothing else."""

from __future__ import annotations

import subprocess
import sys

import pytest

from catalog.domain.engine_flags import LLAMA_CPP, Flag, ValueKind
from workers.agent.engines import launcher

NEEDED = ["-m", "/w.gguf", "-a", "m", "--port", "1", "-c", "512", "-np", "2", "-t", "1", "--cache-ram", "0"]


def test_every_allowed_flag_reaches_the_engine() -> None:
    assert set(launcher.APPLY) == {flag.name for flag in LLAMA_CPP}


def values(flag: Flag) -> list[str]:
    if flag.kind is ValueKind.CHOICE:
        return list(flag.choices)
    return {
        ValueKind.INT: [f"{flag.low:.0f}", f"{flag.high:.0f}"],
        ValueKind.FLOAT: [f"{flag.low:.12g}", "1.0"],
        ValueKind.NAME: ["chatml"],
        ValueKind.JSON: ['{"enable_thinking": false}'],
    }[flag.kind]


@pytest.mark.parametrize("flag", LLAMA_CPP, ids=lambda flag: flag.name)
def test_the_wheel_takes_each_allowed_flag_with_each_kind_of_value(flag: Flag) -> None:
    pytest.importorskip("xllamacpp")
    forms = [[name] for name in (flag.name, *flag.aliases)]
    if flag.kind is ValueKind.PAIR:
        forms.append(["--no-" + flag.name[2:]])
    if flag.takes_value:
        forms = [[*form, value] for form in forms for value in values(flag)]
    for form in forms:
        options = launcher.parser().parse_args([*NEEDED, *form])
        made = launcher.params(options, key="k")
        assert made.hostnames == ["127.0.0.1"]
        assert (made.n_ctx, made.n_parallel, made.fit_params, made.kv_unified) == (512, 2, False, False)


@pytest.mark.parametrize(
    "extra",
    [
        ["--chat-template-f", "x"],
        ["--tools", "all"],
        ["--host", "0.0.0.0"],
        ["--log-file", "/x"],
        ["--lora-scaled", "/x:1"],
    ],
)
def test_anything_else_is_refused(extra: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        launcher.parser().parse_args([*NEEDED, *extra])
    assert "unrecognized arguments" in capsys.readouterr().err


def test_a_projector_lies_where_the_layers_lie_and_films_are_played_by_nobody() -> None:
    pytest.importorskip("xllamacpp")
    for layers in (0, 999):
        words = [*NEEDED, "--mmproj", "/mmproj.gguf", "--n-gpu-layers", str(layers)]
        made = launcher.params(launcher.parser().parse_args(words), key="k")
        assert (made.mmproj.path, made.mmproj_use_gpu) == ("/mmproj.gguf", bool(layers))
        assert made.video_ffmpeg_bin_dir == "/dev/null"


def test_without_a_key_it_does_not_start() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "workers.agent.engines.launcher", *NEEDED],
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "LLMGW_ENGINE_KEY is not set" in done.stderr


def test_layers_lie_on_the_cards_as_planned_or_on_none() -> None:
    def shape(*more: str) -> tuple[object, ...]:
        words = [
            "-m",
            "/m.gguf",
            "-a",
            "m",
            "--port",
            "1",
            "-c",
            "512",
            "-np",
            "1",
            "-t",
            "1",
            "--cache-ram",
            "0",
            *more,
        ]
        made = launcher.params(launcher.parser().parse_args(words), key="k")
        return made.n_gpu_layers, made.split_mode.name, list(made.tensor_split)[:3], made.fit_params

    assert shape() == (0, "LLAMA_SPLIT_MODE_NONE", [0.0, 0.0, 0.0], False)
    split = ("--n-gpu-layers", "999", "--main-gpu", "0", "--split-mode", "layer", "--tensor-split", "3,5")
    assert shape(*split) == (999, "LLAMA_SPLIT_MODE_LAYER", [3.0, 5.0, 0.0], False)


CPU, GPU, IGPU = (f"GGML_BACKEND_DEVICE_TYPE_{name}" for name in ("CPU", "GPU", "IGPU"))


@pytest.mark.parametrize(
    ("cards", "devices", "fits"),
    [
        ((), [CPU], True),
        (("--n-gpu-layers", "999"), [CPU], False),
        (("--n-gpu-layers", "999"), [CPU, GPU], True),
        (("--n-gpu-layers", "999"), [IGPU, CPU], True),
        (("--n-gpu-layers", "999", "--split-mode", "layer", "--tensor-split", "3,5"), [CPU, GPU], False),
        (("--n-gpu-layers", "999", "--split-mode", "layer", "--tensor-split", "3,5"), [GPU, GPU, CPU], True),
    ],
)
def test_a_wheel_that_sees_too_few_cards_does_not_run_on_the_processor_instead(
    cards: tuple[str, ...], devices: list[str], fits: bool
) -> None:
    why = launcher.lacks_cards(launcher.parser().parse_args([*NEEDED, *cards]), devices)
    assert (why == "") is fits
    if not fits:
        assert "install a build of it for this node's accelerators" in why


def test_the_wheel_of_a_machine_without_cards_says_so_before_it_loads_anything() -> None:
    xllamacpp = pytest.importorskip("xllamacpp")
    if any(item["type"].name != CPU for item in xllamacpp.get_device_info()):
        pytest.skip("this machine has an accelerator")
    done = subprocess.run(
        [sys.executable, "-m", "workers.agent.engines.launcher", *NEEDED, "--n-gpu-layers", "999"],
        env={"LLMGW_ENGINE_KEY": "k"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "is to use 1 card and its xllamacpp sees 0" in done.stderr
