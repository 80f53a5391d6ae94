"""Files from plain addresses and from a registry, over real HTTP."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from catalog.domain.manifests import Manifest, ManifestFile
from catalog.domain.repository import Format
from catalog.mirror import fetch as fetching
from catalog.mirror.fetch import Wanted, fetch
from catalog.mirror.origins import FromAddresses, FromRegistry
from catalog.mirror.store import Store
from catalog.registry.client import Registry
from llmgw_site.lib.errors import Refused
from llmgw_site.lib.outgoing import Guard
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.hub.serve import running

BIG = bytes(range(256)) * 400


@pytest.fixture(scope="module")
def serving() -> Iterator[Hub]:
    with running() as hub:
        hub.add(Repo("org/m")).commit({"q/m.gguf": BIG, "config.json": b"{}"})
        hub.add(Repo("org/gated", gated="auto", granted=frozenset({"hf_reader"}))).commit({"m.gguf": BIG})
        yield hub


@pytest.fixture
def hub(serving: Hub, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setattr(fetching, "FIRST_PAUSE", 0.01)
    serving.faults.reset()
    serving.seen.clear()
    return serving


def addresses(hub: Hub, path: str, repository: str = "org/m") -> FromAddresses:
    return FromAddresses(Guard(private=True, proxies={}), {"m.gguf": f"{hub.base}/{repository}/resolve/main/{path}"})


WANTED = Wanted(path="m.gguf", size=len(BIG), sha256=hashlib.sha256(BIG).hexdigest())


def test_a_file_is_fetched_from_a_plain_address_over_a_redirect(hub: Hub, tmp_path: Path) -> None:
    hub.faults.cut_after, hub.faults.cuts = 50_000, 1
    with addresses(hub, "q/m.gguf") as origin:
        fetch(WANTED, tmp_path / "m.gguf", origin, reserve=0)
    assert (tmp_path / "m.gguf").read_bytes() == BIG
    assert {item["token"] for item in hub.seen} == {""}
    assert hub.sent() == len(BIG)


def test_a_version_is_fetched_from_the_registry(hub: Hub, tmp_path: Path) -> None:
    files = hub.repos["org/m"].commits[hub.repos["org/m"].head]
    wanted = Manifest(
        id="ver_0123456789", format=Format.GGUF, first="q/m.gguf", registry=hub.base, repository="org/m",
        commit=hub.repos["org/m"].head,
        files=(
            ManifestFile(path="q/m.gguf", size=len(BIG), sha256=files["q/m.gguf"].sha256),
            ManifestFile(path="config.json", size=2, blob=files["config.json"].blob),
        ),
    )  # fmt: skip
    store = Store(tmp_path, reserve=0)
    with Registry(guard=Guard(private=True, proxies={}), endpoint=hub.base) as registry:
        store.fetch(wanted, FromRegistry(registry, wanted))
    path = store.path(wanted.id)
    assert path is not None
    assert path.read_bytes() == BIG


@pytest.mark.parametrize(
    ("path", "repository", "words"),
    [
        ("nothing.gguf", "org/m", "there is no file at"),
        ("m.gguf", "org/gated", "name the repository instead"),
    ],
)
def test_an_address_without_a_file_is_refused_with_what_to_do(
    hub: Hub, tmp_path: Path, path: str, repository: str, words: str
) -> None:
    with addresses(hub, path, repository) as origin, pytest.raises(Refused) as refused:
        fetch(WANTED, tmp_path / "m.gguf", origin, reserve=0)
    assert refused.value.code == "address_failed"
    assert words in refused.value.message
    assert refused.value.retry_after is None


def test_an_address_that_fails_for_a_moment_is_asked_again(hub: Hub, tmp_path: Path) -> None:
    hub.faults.server_errors = 1
    with addresses(hub, "q/m.gguf") as origin:
        fetch(WANTED, tmp_path / "m.gguf", origin, reserve=0)
    assert (tmp_path / "m.gguf").read_bytes() == BIG


def test_a_redirect_to_where_nothing_may_go_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.faults.redirect_to = "http://169.254.169.254/latest/meta-data"
    with addresses(hub, "q/m.gguf") as origin, pytest.raises(Refused) as refused:
        fetch(WANTED, tmp_path / "m.gguf", origin, reserve=0)
    assert refused.value.code == "address_refused"


def test_a_name_without_an_address_is_refused(hub: Hub) -> None:
    with addresses(hub, "q/m.gguf") as origin, pytest.raises(Refused) as refused, origin.opened("x", start=0, end=None):
        pass
    assert refused.value.code == "file_unknown"


@pytest.mark.parametrize("url", ["http://0177.0.0.1/m?key=secret", "http://\u2460.1.1.1/m?key=secret"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    guard = Guard(private=True, proxies={})
    with (
        FromAddresses(guard, {"m": url}) as origin,
        pytest.raises(Refused) as refused,
        origin.opened("m", start=0, end=1),
    ):
        pass
    assert refused.value.code == "address_failed"
    assert "give the address of the file itself" in refused.value.message
    assert "secret" not in refused.value.message


def test_a_redirect_to_no_address_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.faults.redirect_to = "ftp://x.test/m.gguf"
    with addresses(hub, "q/m.gguf") as origin, pytest.raises((Refused, httpx.HTTPError)) as refused:
        fetch(WANTED, tmp_path / "m.gguf", origin, reserve=0)
    assert isinstance(refused.value, Refused)
    assert refused.value.code == "url_refused"
