"""What people name as the source of a model, and what they are told where it is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.domain.sources import FromAddresses, FromPath, FromRepository, source
from llmgw_site.lib.errors import Refused

SUM, OTHER = "a" * 64, "B" * 64
PARTS = [f"https://x.test/m-0000{number}-of-00002.gguf" for number in (1, 2)]


def test_a_repository_with_or_without_a_revision() -> None:
    assert source(["org/model-GGUF"]) == FromRepository(repository="org/model-GGUF")
    assert source([" org/model@refs/pr/1 "]) == FromRepository(repository="org/model", revision="refs/pr/1")


def test_a_path_of_this_machine() -> None:
    assert source(["/models/a b.gguf"], [SUM]) == FromPath(path="/models/a b.gguf")


def test_addresses_of_files_that_make_one_model() -> None:
    found = source([PARTS[1], PARTS[0]], [SUM, OTHER])
    assert isinstance(found, FromAddresses)
    assert [(file.name, file.sha256) for file in found.files] == [
        ("m-00001-of-00002.gguf", "b" * 64),
        ("m-00002-of-00002.gguf", SUM),
    ]
    named = source(["https://x.test/dir/my%20model.gguf?download=true"], [SUM])
    assert isinstance(named, FromAddresses)
    assert named.files[0].name == "my model.gguf"


def test_a_file_of_a_repository_can_be_named_by_its_address() -> None:
    url = "https://huggingface.co/org/m/resolve/main/m.gguf"
    found = source([url], [SUM])
    assert isinstance(found, FromAddresses)
    assert found.files[0].url == url


def test_another_port_of_the_registry_s_host_has_plain_files() -> None:
    found = source(["http://hub.test:81/m.gguf"], [SUM], registry="http://hub.test:80")
    assert isinstance(found, FromAddresses)
    with pytest.raises(Refused, match="write org/m"):
        source(["http://hub.test:80/org/m"], [SUM], registry="http://hub.test:80")


@pytest.mark.parametrize(
    ("words", "checksums", "code", "text"),
    [
        ([], [], "source_missing", "name one repository"),
        (["  "], [], "source_missing", "name one repository"),
        (["org/a", "org/b"], [], "source_missing", "name one repository"),
        (["org/a", "https://x.test/m.gguf"], [SUM], "source_missing", "name one repository"),
        (["model"], [], "source_refused", "write OWNER/REPOSITORY"),
        (["org/../x"], [], "source_refused", "write OWNER/REPOSITORY"),
        (["org/m@../../x"], [], "source_refused", "write OWNER/REPOSITORY"),
        (["org/m@"], [SUM], "checksum_refused", "from the registry"),
        (["https://huggingface.co/org/m"], [SUM], "source_is_a_page", "write org/m"),
        (["https://huggingface.co/org/m/tree/v2"], [SUM], "source_is_a_page", "write org/m@v2"),
        (
            ["https://huggingface.co/org/m/blob/main/q/m.gguf"],
            [SUM],
            "source_is_a_page",
            "write org/m and --file q/m.gguf",
        ),
        (["https://hub.test/org/m"], [SUM], "source_is_a_page", "write org/m"),
        (["https://huggingface.co/"], [SUM], "source_is_a_page", "write OWNER/REPOSITORY"),
        (["http://[::1/m.gguf"], [SUM], "source_refused", "http or https"),
        (["ftp://x.test/m.gguf"], [SUM], "source_refused", "http or https"),
        (["https://me:pw@x.test/m.gguf"], [SUM], "source_refused", "without a user"),
        (["https://x.test/"], [SUM], "source_refused", "the address of the file itself"),
        (["https://x.test/model.py"], [SUM], "source_refused", "the address of the file itself"),
        (["https://x.test/a%2f..%2fm.gguf"], [SUM], "source_refused", "the address of the file itself"),
        (["https://x.test/m.gguf"], [], "checksum_missing", "1 address and no checksums"),
        (["https://x.test/m.gguf"], ["xyz"], "checksum_refused", "is no SHA-256"),
        (
            ["https://x.test/m.gguf", "https://y.test/m.gguf"],
            [SUM, SUM],
            "source_refused",
            "two addresses end in one name",
        ),
        (PARTS[:1], [SUM], "weights_incomplete", "m-00002-of-00002.gguf are missing"),
    ],
)
def test_what_is_no_source_is_refused_with_what_to_write(
    words: list[str], checksums: list[str], code: str, text: str
) -> None:
    with pytest.raises(Refused) as refused:
        source(words, checksums, registry="https://hub.test")
    assert refused.value.code == code
    assert text in refused.value.message


@given(
    words=st.lists(
        st.text(max_size=60)
        | st.text(max_size=30).map("https://x.test/{}".format)
        | st.text("[]:/@.%x", max_size=9).map("http://{}".format),
        max_size=4,
    )
)
def test_any_words_are_a_source_or_are_refused(words: list[str]) -> None:
    try:
        found = source(words, [SUM] * len(words))
    except Refused as refused:
        assert refused.code  # noqa: PT017 - nothing else may be raised
    else:
        assert isinstance(found, FromRepository | FromAddresses | FromPath)


@pytest.mark.parametrize(
    "url",
    [
        "https://x.test/model?X-Amz-Signature=secret",
        "https://huggingface.co/org/m?token=secret",
        "https://u:secret@x.test/m.gguf",
    ],
)
def test_a_refusal_does_not_repeat_what_may_be_a_signature(url: str) -> None:
    with pytest.raises(Refused) as refused:
        source([url], [SUM])
    assert "secret" not in refused.value.message
    assert "https://" in refused.value.message
