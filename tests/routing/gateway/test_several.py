"""Several answers to one request, of a real engine that counts each by itself, or the first only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from routing.domain.endpoints import CHAT, COMPLETIONS, ENDPOINTS
from tests import tiny
from tests.routing.gateway.real import real_rig
from tests.routing.gateway.rig import ENGINE_KEY, TINY, Rig

PROMPTS = ["one", "one two three", "one two three four five six"]
MANY = {"prompt": PROMPTS}
COPIES = {"messages": [{"role": "user", "content": "say something"}], "n": 2}


async def counted(gw: Rig) -> tuple[int, int]:
    """Tokens that the engine has read and made since its start, as it says itself."""
    port = gw.gateway.table.view.routes[TINY].seats[0].port
    async with httpx.AsyncClient(headers={"authorization": f"Bearer {ENGINE_KEY}"}) as client:
        text = (await client.get(f"http://127.0.0.1:{port}/metrics")).text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return int(lines["llamacpp:prompt_tokens_total"]), int(lines["llamacpp:tokens_predicted_total"])


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    ("endpoint", "body"),
    [(COMPLETIONS, MANY), (CHAT, COPIES), (CHAT, {**COPIES, "n": 1, "n_cmpl": 2})],
    ids=["prompts", "copies", "copies by another name"],
)
async def test_f15_every_answer_is_counted(tmp_path: Path, endpoint: str, body: dict[str, Any], stream: bool) -> None:
    async with real_rig(tmp_path, tiny.tiny_gguf(), TINY) as gw:
        for number, longest in enumerate((4, 100)):  # cut, and to its end
            before = await counted(gw)
            asked = {"model": TINY, **body, "max_tokens": longest, "stream": stream, "cache_prompt": False}
            answer = await gw.client.post(ENDPOINTS[endpoint].path, json=asked)
            assert answer.status_code == 200
            record = await gw.record(number + 1)
            read, made = (now - then for now, then in zip(await counted(gw), before, strict=True))
            assert record.estimated is not stream
            assert record.prompt_tokens is not None
            assert record.completion_tokens is not None
            if stream or longest == 4:
                assert record.completion_tokens == made
            assert made / 2 <= record.completion_tokens <= made
            if endpoint == COMPLETIONS:
                assert (record.prompt_tokens == read) if stream else (10 <= record.prompt_tokens <= read)
