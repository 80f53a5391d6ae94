"""Browsers of other origins: nobody by default, and those that the setting names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.routing.gateway.rig import ask, rig

CHAT, HERE, ELSEWHERE = "/v1/chat/completions", "https://chat.example.com", "https://evil.example"
ALLOW, EXPOSE = "access-control-allow-origin", "access-control-expose-headers"


def question(origin: str, method: str = "POST") -> dict[str, str]:
    wanted = "authorization,content-type,x-stainless-os"
    return {
        "origin": origin,
        "access-control-request-method": method,
        "access-control-request-headers": wanted,
        "authorization": "",
    }


async def test_without_the_setting_no_browser_is_told_anything(tmp_path: Path) -> None:
    async with rig(tmp_path) as gw:
        asked = await gw.client.options(CHAT, headers=question(HERE))
        assert asked.status_code == 405
        answer = await gw.client.post(CHAT, json=ask(), headers={"origin": HERE})
        assert answer.status_code == 200
        for told in (asked, answer):
            assert not [name for name in told.headers if name.startswith("access-control-") or name == "vary"]


@pytest.mark.parametrize(("origins", "told"), [((HERE, "app://desk"), HERE), (("*",), "*")])
async def test_a_named_origin_is_told_before_and_with_every_answer(
    tmp_path: Path, origins: tuple[str, ...], told: str
) -> None:
    async with rig(tmp_path, cors_origins=origins) as gw:
        for path, method in ((CHAT, "POST"), ("/tokenize", "POST"), ("/v1/messages", "POST"), ("/v1/models", "GET")):
            before = await gw.client.options(path, headers=question(HERE, method))
            assert (before.status_code, before.content) == (204, b"")
            assert before.headers[ALLOW] == told
            assert before.headers["access-control-allow-methods"] == method
            assert before.headers["access-control-allow-headers"] == "authorization,content-type,x-stainless-os"
            assert "access-control-allow-credentials" not in before.headers
        assert not gw.engine.requests
        answers = [
            await gw.client.post(CHAT, json=ask(), headers={"origin": HERE}),
            await gw.client.post(CHAT, json=ask(stream=True), headers={"origin": HERE}),
            await gw.client.post(CHAT, json=ask(model="nobody"), headers={"origin": HERE}),
            await gw.client.post(CHAT, json=ask(), headers={"origin": HERE, "authorization": "Bearer x"}),
            await gw.client.get("/v1/models", headers={"origin": HERE}),
        ]
        assert [answer.status_code for answer in answers] == [200, 200, 404, 401, 200]
        for answer in answers:
            assert (answer.headers[ALLOW], answer.headers[EXPOSE]) == (told, "*")
            assert ("vary" in answer.headers) == (told != "*")
        assert "access-control" not in str(gw.engine.last.headers)


async def test_another_origin_is_told_nothing_and_caches_know_it(tmp_path: Path) -> None:
    async with rig(tmp_path, cors_origins=(HERE,)) as gw:
        for origin in (ELSEWHERE, HERE + ".evil.example", HERE + ":8443", "null"):
            before = await gw.client.options(CHAT, headers=question(origin))
            answer = await gw.client.post(CHAT, json=ask(), headers={"origin": origin})
            assert (before.status_code, answer.status_code) == (405, 200)
            assert ALLOW not in before.headers
            assert ALLOW not in answer.headers
            assert answer.headers["vary"] == "origin"
        plain = await gw.client.options(CHAT, headers={"origin": HERE})
        assert plain.status_code == 405  # no question of a browser's


async def test_other_paths_have_no_part_in_it(tmp_path: Path) -> None:
    async with rig(tmp_path, cors_origins=("*",)) as gw:
        for path in ("/healthz", "/api/v1/models", "/"):
            answer = await gw.client.get(path, headers={"origin": HERE})
            assert ALLOW not in answer.headers
