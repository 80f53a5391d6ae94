"""The test hub is believed because the hub's own client takes it for one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import HfApi, errors
from huggingface_hub.utils import close_session
from huggingface_hub.utils.tqdm import disable_progress_bars

from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.hub.serve import running

CARD = b"---\nlicense: apache-2.0\n---\n# Tiny\n"
BIG = bytes(range(256)) * 400
OTHER = BIG[::-1]


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with running() as made:
        files = {
            "README.md": CARD,
            "tiny-Q4_K_M.gguf": BIG,
            "sub/a.gguf": OTHER,
            "sub/deep/b.txt": b"b",
            "config.json": b"{}",
        }
        repo = made.add(Repo("org/tiny", downloads=10))
        repo.commit({"README.md": CARD})
        repo.commit(files)
        repo.branches["refs/pr/1"] = next(iter(repo.commits))
        made.add(Repo("org/gated", gated="manual", granted=frozenset({"hf_reader"}), downloads=5)).commit(
            {"m.gguf": BIG}
        )
        made.add(Repo("org/private", private=True, granted=frozenset({"hf_reader"}))).commit({"m.gguf": BIG})
        made.add(Repo("org/disabled", disabled=True)).commit({"m.gguf": BIG})
        lora = made.add(Repo("org/lora", base_model="org/tiny", relation="adapter", downloads=7))
        lora.commit({"adapter.gguf": BIG})
        yield made
    close_session()  # it would do so at the end of the process, and log where nothing is written any more


@pytest.fixture
def api(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HfApi:
    disable_progress_bars()
    hub.faults.reset()
    hub.seen.clear()
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return HfApi(endpoint=hub.base, token=False)


def test_a_repository_is_described_with_commit_files_and_hashes(hub: Hub, api: HfApi) -> None:
    info = api.model_info("org/tiny", files_metadata=True)
    assert info.sha == hub.repos["org/tiny"].head
    found = {item.rfilename: item for item in info.siblings or ()}
    assert set(found) == {"README.md", "tiny-Q4_K_M.gguf", "sub/a.gguf", "sub/deep/b.txt", "config.json"}
    assert found["README.md"].size == len(CARD)
    assert found["README.md"].blob_id == hashlib.sha1(b"blob %d\0" % len(CARD) + CARD).hexdigest()
    lfs = found["tiny-Q4_K_M.gguf"].lfs
    assert lfs is not None
    assert (lfs["sha256"], lfs["size"]) == (hashlib.sha256(BIG).hexdigest(), len(BIG))
    assert "gguf" in (info.tags or [])


def test_a_tree_is_read_page_by_page(api: HfApi) -> None:
    entries = list(api.list_repo_tree("org/tiny", recursive=True))
    assert sorted(item.path for item in entries) == [
        "README.md", "config.json", "sub", "sub/a.gguf", "sub/deep", "sub/deep/b.txt", "tiny-Q4_K_M.gguf",
    ]  # fmt: skip
    assert [item.path for item in api.list_repo_tree("org/tiny")] == [
        "README.md",
        "config.json",
        "sub",
        "tiny-Q4_K_M.gguf",
    ]


def test_files_are_fetched_whole_small_and_large(hub: Hub, api: HfApi, tmp_path: Path) -> None:
    for name, content in {"README.md": CARD, "tiny-Q4_K_M.gguf": BIG, "sub/a.gguf": OTHER}.items():
        assert Path(api.hf_hub_download("org/tiny", name)).read_bytes() == content
    assert {item["token"] for item in hub.seen} == {""}


def test_a_revision_is_a_branch_a_commit_or_a_reference_with_slashes(hub: Hub, api: HfApi) -> None:
    first = next(iter(hub.repos["org/tiny"].commits))
    assert api.model_info("org/tiny", revision=first).sha == first
    assert api.model_info("org/tiny", revision="refs/pr/1").sha == first
    meta = api.get_paths_info("org/tiny", ["README.md", "nothing"], revision="main")
    assert [item.path for item in meta] == ["README.md"]


@pytest.mark.parametrize(
    ("repo", "file", "revision", "error"),
    [
        ("org/nothing", "m.gguf", "main", errors.RepositoryNotFoundError),
        ("org/private", "m.gguf", "main", errors.RepositoryNotFoundError),
        ("org/gated", "m.gguf", "main", errors.GatedRepoError),
        ("org/tiny", "nothing.gguf", "main", errors.EntryNotFoundError),
        ("org/tiny", "README.md", "no-such-branch", errors.RevisionNotFoundError),
        ("org/disabled", "m.gguf", "main", errors.DisabledRepoError),
    ],
)
def test_refusals_are_told_apart_as_the_client_tells_them(
    api: HfApi, repo: str, file: str, revision: str, error: type[Exception]
) -> None:
    # the client hides what a HEAD was refused with behind "not in the cache" where it might have a copy
    with pytest.raises((error, errors.LocalEntryNotFoundError)) as raised:
        api.hf_hub_download(repo, file, revision=revision)
    assert isinstance(raised.value, error) or isinstance(raised.value.__cause__, error)


def test_a_granted_token_opens_a_gated_repository(hub: Hub, api: HfApi) -> None:
    api.model_info("org/gated")  # anybody may read about it
    with pytest.raises(errors.GatedRepoError):
        api.auth_check("org/gated")
    with pytest.raises(errors.GatedRepoError):
        api.auth_check("org/gated", token="hf_other")
    api.auth_check("org/gated", token="hf_reader")
    assert Path(api.hf_hub_download("org/gated", "m.gguf", token="hf_reader")).read_bytes() == BIG
    assert [item["token"] for item in hub.seen if item["path"].startswith("/cdn/")] == [""]


def test_search_finds_by_text_and_tag_sorted_in_pages(api: HfApi) -> None:
    assert [item.id for item in api.list_models(search="org/", sort="downloads")] == [
        "org/tiny", "org/lora", "org/gated", "org/disabled",
    ]  # fmt: skip
    assert [item.id for item in api.list_models(filter="base_model:adapter:org/tiny")] == ["org/lora"]
    assert [item.id for item in api.list_models(filter="gguf", limit=2, sort="downloads")] == ["org/tiny", "org/lora"]
    assert [item.id for item in api.list_models(search="lora", full=True)] == ["org/lora"]


def test_a_cut_transfer_is_resumed_by_the_client(hub: Hub, api: HfApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 16_384)  # it keeps whole pieces only
    hub.faults.cut_after, hub.faults.cuts = 70_000, 1
    assert Path(api.hf_hub_download("org/tiny", "tiny-Q4_K_M.gguf")).read_bytes() == BIG
    ranges = [item["range"] for item in hub.seen if item["path"].startswith("/cdn/") and item["method"] == "GET"]
    assert ranges[0] in ("", "bytes=0-")
    assert ranges[1].startswith("bytes=")
    assert int(ranges[1].removeprefix("bytes=").partition("-")[0]) > 0


@pytest.mark.parametrize("style", ["ratelimit", "retry-after"])
def test_a_limited_client_waits_and_goes_on(hub: Hub, api: HfApi, style: str) -> None:
    hub.faults.rate_limits, hub.faults.rate_style = 1, style
    assert [item.path for item in api.list_repo_tree("org/lora")] == ["adapter.gguf"]
    assert hub.faults.rate_limits == 0
