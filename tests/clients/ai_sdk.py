"""The npm package `ai` with its OpenAI-compatible provider: a streamed chat with a tool."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import tiny
from tests.e2e.test_openai_client import usage_of
from tests.stack import MODEL, Stack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.usefixtures("more_models")]

FOLDER = Path(__file__).with_name("ai_sdk")


def test_the_ai_package_has_a_streamed_chat_with_a_tool(stack: Stack) -> None:
    quick = stack.quickstart
    environ = {
        "PATH": os.environ["PATH"], "LLMGW_URL": stack.url, "LLMGW_API_KEY": quick["LLMGW_API_KEY"],
        "ASKING_MODEL": "tiny-tools", "ANSWERING_MODEL": MODEL,
    }  # fmt: skip
    done = subprocess.run(["node", "chat.mjs"], cwd=FOLDER, env=environ, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    asking, answering = said["steps"]
    assert said["asked"] == ["Oslo"]
    assert (asking["finish"], asking["calls"]) == ("tool-calls", [["get_weather", {"city": "Oslo"}]])
    assert (answering["finish"], answering["text"]) == ("stop", tiny.TEXT)
    assert "".join(said["pieces"]) == tiny.TEXT
    assert len(said["pieces"]) > 3
    for step in said["steps"]:
        record = usage_of(stack, step["request"])
        assert (record["outcome"], record["stream"]) == ("ok", True)
        assert (record["prompt_tokens"], record["completion_tokens"]) == (step["input"], step["output"])
