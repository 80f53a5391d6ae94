"""The registry's client against a hub that answers as the real one does, faults included."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator

import pytest

from catalog.domain.gguf import read_header
from catalog.registry import client
from catalog.registry.client import Registry
from catalog.registry.ranges import RemoteFile
from llmgw_site.lib.errors import Kind, Refused
from llmgw_site.lib.outgoing import Guard
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.hub.serve import running
from tests.tiny import tiny_gguf

BIG = bytes(range(256)) * 400
TINY = "tiny-F16.gguf"


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    with running() as hub:
        repo = hub.add(
            Repo("org/tiny", downloads=10, base_model="org/base", relation="quantized", tags=("conversational",))
        )
        repo.commit({"README.md": b"old"})
        repo.commit({"README.md": b"# Tiny", TINY: tiny_gguf().read_bytes(), "sub dir/a b.gguf": BIG})
        hub.add(Repo("org/gated", gated="manual", granted=frozenset({"hf_reader"}), downloads=5)).commit(
            {"m.gguf": BIG}
        )
        hub.add(Repo("org/private", private=True, granted=frozenset({"hf_reader"}))).commit({"m.gguf": BIG})
        hub.add(Repo("org/disabled", disabled=True)).commit({"m.gguf": BIG})
        lora = hub.add(Repo("org/lora", base_model="org/tiny", relation="adapter", downloads=7))
        lora.commit({"adapter.gguf": BIG})
        hub.add(Repo("org/st", downloads=3)).commit({"model.safetensors": BIG, "config.json": b"{}"})
        yield hub


@pytest.fixture
def hub(serving: Hub) -> Hub:
    serving.faults.reset()
    serving.seen.clear()
    return serving


@pytest.fixture
def registry(hub: Hub) -> Iterator[Registry]:
    with made(hub) as one:
        yield one


def made(hub: Hub, token: str = "") -> Registry:
    return Registry(guard=Guard(private=True, proxies={}), endpoint=hub.base, token=token)


def code_of(refused: pytest.ExceptionInfo[Refused]) -> str:
    return refused.value.code


def test_a_repository_comes_with_its_commit_and_files(hub: Hub, registry: Registry) -> None:
    card = registry.card("org/tiny")
    assert (card.id, card.commit, card.license, card.base_models) == (
        "org/tiny", hub.repos["org/tiny"].head, "apache-2.0", ("org/base",),
    )  # fmt: skip
    assert card.formats == ("gguf",)
    found = {file.path: file for file in card.files}
    assert found[TINY].sha256 == hashlib.sha256(tiny_gguf().read_bytes()).hexdigest()
    assert found[TINY].size == len(tiny_gguf().read_bytes())
    assert (found["README.md"].sha256, found["README.md"].size) == ("", 6)
    assert found["README.md"].blob == hashlib.sha1(b"blob 6\0# Tiny").hexdigest()


def test_an_older_commit_can_be_named(hub: Hub, registry: Registry) -> None:
    first = next(iter(hub.repos["org/tiny"].commits))
    card = registry.card("org/tiny", first)
    assert (card.commit, [file.path for file in card.files]) == (first, ["README.md"])


@pytest.mark.parametrize("after", ["\x0e", "a=\u2028", "a=ä"])
def test_a_mark_of_a_page_that_none_had_is_refused(registry: Registry, after: str) -> None:
    with pytest.raises(Refused) as refused:
        registry.search(after=after)
    assert (refused.value.code, refused.value.param) == ("invalid_value", "after")


def test_search_by_words_format_and_adapters_page_by_page(registry: Registry) -> None:
    assert [card.id for card in registry.search(text="org/").repositories] == [
        "org/tiny", "org/lora", "org/gated", "org/st", "org/disabled",
    ]  # fmt: skip
    assert [card.id for card in registry.search(format="safetensors").repositories] == ["org/st"]
    adapters = registry.search(adapters_of="org/tiny").repositories
    assert [(card.id, card.adapter) for card in adapters] == [("org/lora", True)]
    first = registry.search(format="gguf", limit=2)
    rest = registry.search(after=first.after)
    assert [card.id for card in first.repositories] == ["org/tiny", "org/lora"]
    assert [card.id for card in rest.repositories] == ["org/gated", "org/disabled"]
    assert rest.after == ""


def test_the_token_goes_to_the_registry_and_to_no_other_host(hub: Hub) -> None:
    with made(hub, "hf_reader") as registry:
        card = registry.card("org/gated")
        registry.check_access("org/gated", card.commit, "m.gguf")
        with registry.opened("org/gated", card.commit, "m.gguf", start=10, end=20) as response:
            assert response.read() == BIG[10:20]
    hosts = {(item["host"] == hub.files.removeprefix("http://"), item["token"]) for item in hub.seen}
    assert hosts == {(False, "hf_reader"), (True, "")}


@pytest.mark.parametrize(
    ("repository", "token", "code", "words"),
    [
        ("org/nothing", "", "repository_unknown", "without a token (HF_TOKEN), which private ones need"),
        ("org/nothing", "hf_reader", "repository_unknown", "for the account of the token that is set"),
        ("org/private", "hf_other", "repository_unknown", "for the account of the token"),
        ("org/disabled", "", "repository_disabled", "has taken org/disabled down"),
        ("org/tiny", "hf_wrong", "registry_token_refused", "refuses the token that is set"),
        ("no-owner", "", "repository_name_bad", "write OWNER/REPOSITORY"),
        ("https://hub.test/org/tiny", "", "repository_name_bad", "write OWNER/REPOSITORY"),
        ("org/../x", "", "repository_name_bad", "write OWNER/REPOSITORY"),
    ],
)
def test_a_repository_that_cannot_be_had_is_refused_with_why(
    hub: Hub, repository: str, token: str, code: str, words: str
) -> None:
    with made(hub, token) as registry, pytest.raises(Refused) as refused:
        registry.card(repository)
    assert code_of(refused) == code
    assert words in refused.value.message
    assert "hf_" not in refused.value.message


@pytest.mark.parametrize(("token", "words"), [("", "no token is set"), ("hf_other", "has no access yet")])
def test_a_gated_repository_is_refused_with_how_to_get_access(hub: Hub, token: str, words: str) -> None:
    with made(hub, token) as registry:
        card = registry.card("org/gated")
        assert card.gated == "manual"
        with pytest.raises(Refused) as refused:
            registry.check_access("org/gated", card.commit, "m.gguf")
    assert code_of(refused) == "repository_gated"
    assert words in refused.value.message
    assert f"{hub.base}/org/gated" in refused.value.message


def test_unknown_revisions_and_files_are_named(registry: Registry) -> None:
    with pytest.raises(Refused) as refused:
        registry.card("org/tiny", "no/such branch")
    assert code_of(refused) == "revision_unknown"
    assert "no/such branch" in refused.value.message
    with pytest.raises(Refused) as refused:
        registry.check_access("org/tiny", "main", "nothing.gguf")
    assert code_of(refused) == "file_unknown"


@pytest.mark.parametrize("style", ["ratelimit", "retry-after"])
def test_a_rate_limit_says_when_to_ask_again(hub: Hub, registry: Registry, style: str) -> None:
    hub.faults.rate_limits, hub.faults.rate_wait, hub.faults.rate_style = 1, 55, style
    with pytest.raises(Refused) as refused:
        registry.card("org/tiny")
    assert (refused.value.kind, code_of(refused), refused.value.retry_after) == (Kind.LIMITED, "registry_limited", 56.0)
    assert registry.card("org/tiny").commit


def test_a_registry_out_of_order_is_asked_again_later(hub: Hub, registry: Registry) -> None:
    hub.faults.server_errors = 1
    with pytest.raises(Refused) as refused:
        registry.card("org/tiny")
    assert code_of(refused) == "registry_failed"
    assert refused.value.retry_after


def test_nobody_there_is_a_refusal_that_time_may_cure(hub: Hub) -> None:
    nobody = Registry(guard=Guard(private=True, proxies={}), endpoint="http://127.0.0.1:9")
    with nobody as registry, pytest.raises(Refused) as refused:
        registry.card("org/tiny")
    assert code_of(refused) == "registry_unreachable"
    assert refused.value.retry_after
    assert "127.0.0.1:9 cannot be reached" in refused.value.message


def test_a_sign_in_page_is_no_answer(hub: Hub, registry: Registry) -> None:
    hub.faults.login_page = True
    with pytest.raises(Refused) as refused:
        registry.card("org/tiny")
    assert code_of(refused) == "registry_answer_bad"
    assert "sign-in page" in refused.value.message


def test_an_endless_answer_is_cut_off(hub: Hub, registry: Registry) -> None:
    hub.faults.huge_json = True
    with pytest.raises(Refused) as refused:
        registry.search(text="x")
    assert code_of(refused) == "registry_answer_bad"
    assert "longer than" in refused.value.message


@pytest.mark.parametrize(
    ("to", "code"),
    [
        ("http://169.254.169.254/latest", "address_refused"),
        ("file:///etc/passwd", "url_refused"),
        ("http://[::1", "registry_answer_bad"),
        ("http://", "registry_answer_bad"),
        ("https://example.com:99999/x", "registry_answer_bad"),
    ],
)
def test_a_redirect_to_where_nothing_may_go_is_refused(hub: Hub, registry: Registry, to: str, code: str) -> None:
    hub.faults.redirect_to = to
    with pytest.raises(Refused) as refused:
        registry.check_access("org/tiny", "main", TINY)
    assert code_of(refused) == code


def test_a_mirror_without_the_hubs_own_headers_serves_too(hub: Hub, registry: Registry) -> None:
    hub.faults.bare = True
    card = registry.card("org/tiny")
    registry.check_access("org/tiny", card.commit, TINY)
    assert [item["method"] for item in hub.seen if TINY in item["path"]] == [
        "HEAD",
        "HEAD",
    ]  # the second at the file's host


def test_the_header_of_a_far_file_is_read_without_the_file(hub: Hub, registry: Registry) -> None:
    card = registry.card("org/tiny")
    size = next(file.size for file in card.files if file.path == TINY)
    header = read_header(RemoteFile(registry, "org/tiny", card.commit, TINY, size=size))
    assert header.file_size == size
    assert header.pairs["general.architecture"]


def test_a_far_file_is_fetched_in_growing_pieces_once(
    hub: Hub, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.registry.ranges.FIRST", 1000)
    far = RemoteFile(registry, "org/tiny", "main", "sub dir/a b.gguf", size=len(BIG))
    assert far.read(0, 8) == BIG[:8]
    assert far.read(500, 8) == BIG[500:508]
    assert far.read(1500, 100) == BIG[1500:1600]
    assert far.read(len(BIG) - 4, 100) == BIG[-4:]
    ranges = [item["range"] for item in hub.seen if item["path"].startswith("/cdn/")]
    assert ranges == ["bytes=0-999", "bytes=1000-1999", f"bytes=2000-{len(BIG) - 1}"]


def test_of_a_far_file_only_what_is_read_is_kept_and_who_goes_back_fetches_it_again(
    hub: Hub, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.registry.ranges.FIRST", 1000)
    monkeypatch.setattr("catalog.registry.ranges.STEP", 4000)
    far = RemoteFile(registry, "org/tiny", "main", "sub dir/a b.gguf", size=len(BIG))
    for at in range(0, 60_000, 500):
        assert far.read(at, 700) == BIG[at : at + 700]
        assert len(far._kept) <= 4000 + 700
    assert far.read(70_000, 9000) == BIG[70_000:79_000]  # more than a step ahead, more than a step at once
    assert far.read(10, 20) == BIG[10:30]
    ranges = [item["range"].removeprefix("bytes=").split("-") for item in hub.seen if item["path"].startswith("/cdn/")]
    assert max(int(last) + 1 - int(first) for first, last in ranges) == 4000


def test_a_server_that_ignores_ranges_is_read_from_the_start_and_no_further(hub: Hub, registry: Registry) -> None:
    hub.faults.ignore_range = True
    far = RemoteFile(registry, "org/tiny", "main", "sub dir/a b.gguf", size=len(BIG))
    assert far.read(100, 50) == BIG[100:150]
    assert far.read(90_000, 50) == BIG[90_000:90_050]


def test_a_transfer_that_breaks_off_goes_on_where_it_was(hub: Hub, registry: Registry) -> None:
    hub.faults.cut_after, hub.faults.cuts = 70_000, 1
    far = RemoteFile(registry, "org/tiny", "main", "sub dir/a b.gguf", size=len(BIG))
    assert far.read(80_000, 50) == BIG[80_000:80_050]


def test_a_file_that_is_not_as_long_as_promised_is_refused(hub: Hub, registry: Registry) -> None:
    far = RemoteFile(registry, "org/tiny", "main", "sub dir/a b.gguf", size=len(BIG) + 1)
    with pytest.raises(Refused) as refused:
        far.read(0, 10)
    assert code_of(refused) == "file_changed"


def test_a_slow_answer_ends_within_the_deadline(hub: Hub, registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.registry.client.DEADLINE", 0.0)
    began = time.monotonic()
    with pytest.raises(Refused) as refused:
        registry.card("org/tiny")
    assert code_of(refused) == "registry_unreachable"
    assert time.monotonic() - began < 30


def test_a_file_that_comes_in_drops_ends_within_the_deadline(
    hub: Hub, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.registry.ranges.DEADLINE", 0.0)
    hub.faults.ignore_range = True  # all of it comes, in many pieces
    far = RemoteFile(registry, "org/tiny", "main", "sub dir/a b.gguf", size=len(BIG))
    with pytest.raises(Refused) as refused:
        far.read(len(BIG) - 100, 50)
    assert code_of(refused) == "registry_unreachable"
    assert "came in 0 s" in refused.value.message


def test_a_refusal_shows_a_hundred_characters_of_a_host_at_most() -> None:
    assert len(client._bad("http://" + "a" * 5000, "it leads to an address that is none").message) < 250
