"""`llmgw check` finds what is wrong and says how to mend it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from llmgw_site.cli import check
from tests.processes import free_port


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    tmp_path.chmod(0o700)
    numbers = {name: str(free_port()) for name in ("LLMGW_PORT", "LLMGW_NODE_PORT", "LLMGW_METRICS_PORT")}
    return {"LLMGW_DATA": str(tmp_path), "LLMGW_DATA_FREE": "1", **numbers}


def problems(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> str:
    assert check.run(environ) == 1
    return capsys.readouterr().out


def test_all_is_well(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert check.run(environ) == 0
    assert capsys.readouterr().out.startswith("all is well")


def test_it_changes_nothing(environ: dict[str, str], tmp_path: Path) -> None:
    check.run({**environ, "LLMGW_DATA": str(tmp_path / "new")})
    assert list(tmp_path.iterdir()) == []


def test_every_wrong_setting_is_told_at_once(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    out = problems({**environ, "LLMGW_PORT": "x", "LLMGW_HEARTBEAT": "-1"}, capsys)
    assert "LLMGW_PORT" in out
    assert "LLMGW_HEARTBEAT" in out


def test_a_folder_open_to_others(environ: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.chmod(0o755)
    assert f"chmod 700 {tmp_path}" in problems(environ, capsys)


def test_a_folder_too_deep_for_sockets(
    environ: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "choose a shorter path" in problems({**environ, "LLMGW_DATA": str(tmp_path / ("d" * 100))}, capsys)


def test_too_little_disk(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "disk left" in problems({**environ, "LLMGW_DATA_FREE": "9000 TiB"}, capsys)


def test_f24_usage_records_that_cannot_be_written(
    environ: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "usage").mkdir()
    assert check.run(environ) == 0
    capsys.readouterr()
    (tmp_path / "usage").rmdir()
    (tmp_path / "usage").touch()
    assert f"usage records cannot be written: {tmp_path / 'usage'} is no folder" in problems(environ, capsys)


def test_a_taken_port(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", int(environ["LLMGW_NODE_PORT"]))):
        assert "LLMGW_NODE_PORT=" in problems(environ, capsys)


def test_missing_weights(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "LLMGW_QUICKSTART_WEIGHTS" in problems({**environ, "LLMGW_QUICKSTART_WEIGHTS": "/none.gguf"}, capsys)


def test_traces_that_cannot_be_sent(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    asked = {**environ, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}
    assert check.run(asked) == 0
    capsys.readouterr()
    assert "only http/protobuf" in problems({**asked, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, capsys)


def test_stores_that_do_not_answer(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    away = free_port()
    stores = {
        "DATABASE_URL": f"postgresql://me:hidden@127.0.0.1:{away}/x",
        "LLMGW_REDIS_URL": f"redis://127.0.0.1:{away}",
    }
    out = problems({**environ, **stores}, capsys)
    assert "DATABASE_URL: PostgreSQL cannot be opened" in out
    assert "LLMGW_REDIS_URL: nobody answers there (Connection refused)" in out
    assert "hidden" not in out


@pytest.mark.slow
def test_stores_that_answer_are_no_problem(environ: dict[str, str], postgres_url: str, valkey_url: str) -> None:
    assert check.run({**environ, "DATABASE_URL": postgres_url, "LLMGW_REDIS_URL": valkey_url}) == 0
