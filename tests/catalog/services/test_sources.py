"""catalog.services.sources: a repository and plain addresses are looked at the same way."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from catalog.domain import sources as words
from catalog.services import sources
from llmgw_site.lib.errors import Refused
from tests.hub.app import Hub
from tests.hub.repos import Repo
from tests.tiny import tiny_gguf
from tests.tiny_vision import projector_bytes


def address(hub: Hub, name: str = "tiny-F16.gguf", repo: str = "org/tiny-GGUF") -> str:
    return f"{hub.base}/{repo}/resolve/{hub.repos[repo].head}/{name}"


def named(*urls: str, sums: list[str] | None = None) -> Any:
    return words.source(urls, sums or ["a" * 64] * len(urls))


def test_a_repository_is_pinned_and_its_sets_are_those_that_words_leave(stocked_hub: Hub) -> None:
    seen, found = sources.look(words.source(["org/tiny-GGUF"]), quantization="f16")
    assert seen.card.commit == stocked_hub.repos["org/tiny-GGUF"].head
    assert [item.first.path for item in found] == ["tiny-F16.gguf"]
    with pytest.raises(Refused, match="it has F16, Q8_0"):
        sources.look(words.source(["org/tiny-GGUF"]), quantization="Q2_K")


def test_a_gated_repository_is_refused_with_how_to_get_access(stocked_hub: Hub) -> None:
    with pytest.raises(Refused, match="ask for access at") as refused:
        sources.look(words.source(["org/gated"]))
    assert refused.value.code == "repository_gated"


def test_plain_addresses_have_sizes_shapes_and_the_checksums_that_were_given(stocked_hub: Hub) -> None:
    content = tiny_gguf().read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    given = named(address(stocked_hub), sums=[digest])
    seen, found = sources.look(given)
    assert (seen.card.commit, len(found)) == ("", 1)
    assert (found[0].first.size, found[0].first.sha256) == (len(content), digest)
    _, shapes = sources.shapes(given)
    assert shapes[0][1].architecture == "llama"
    assert shapes[0][1].quantization == "F16"


def test_an_address_where_nothing_lies_is_refused(stocked_hub: Hub) -> None:
    with pytest.raises(Refused, match="there is no file at") as refused:
        sources.look(named(address(stocked_hub, "no.gguf")))
    assert refused.value.code == "address_failed"


def test_a_server_that_does_not_answer_is_asked_again_and_one_on_this_machine_needs_leave(
    stocked_hub: Hub, settings: Any
) -> None:
    with pytest.raises(Refused, match="cannot be reached") as refused:
        sources.look(named("http://127.0.0.1:1/m.gguf"))
    assert refused.value.retry_after
    settings.CONFIG = replace(settings.CONFIG, private_addresses=False)
    with pytest.raises(Refused) as refused:
        sources.look(named(address(stocked_hub)))
    assert refused.value.code == "address_refused"


@pytest.mark.parametrize(
    ("wanted", "path"), [("auto", "mmproj-F16.gguf"), ("", "mmproj-F16.gguf"), ("mmproj-F16.gguf", "mmproj-F16.gguf"), ("none", None)]
)  # fmt: skip
def test_the_projector_is_the_best_the_one_that_is_named_or_none(
    stocked_hub: Hub, wanted: str, path: str | None
) -> None:
    seen, found = sources.look(words.source(["org/tiny-GGUF"]))
    chosen = sources.projector(seen, found[0], wanted)
    assert (chosen.path if chosen else None) == path


def test_a_projector_that_there_is_not_is_refused_with_those_that_there_are(stocked_hub: Hub) -> None:
    seen, found = sources.look(words.source(["org/tiny-GGUF"]))
    with pytest.raises(Refused, match=r"there are mmproj-F16\.gguf") as refused:
        sources.projector(seen, found[0], "mmproj-Q4.gguf")
    assert refused.value.code == "projector_not_in_repository"
    seen, folder = sources.look(words.source(["org/tiny"]))
    assert sources.projector(seen, folder[0], "auto") is None


def test_what_the_projector_takes_is_read_from_its_header_wherever_it_lies(stocked_hub: Hub) -> None:
    size = len(projector_bytes())
    both = named(address(stocked_hub), address(stocked_hub, "mmproj-F16.gguf"))
    for source in (words.source(["org/tiny-GGUF"]), both):
        _, sees = sources.shapes(source)
        assert {item[1].projector for item in sees} == {size}
        assert sees[0][1].projector_compute
        _, blind = sources.shapes(source, projector="none")
        assert {(item[1].projector, item[1].projector_compute) for item in blind} == {(None, None)}


def test_a_file_that_is_no_projector_is_refused_before_it_is_fetched(stocked_hub: Hub) -> None:
    repo = stocked_hub.add(Repo("org/half-blind"))
    for content, code in ((tiny_gguf().read_bytes(), "projector_not_a_projector"), (b"x" * 5000, "gguf_not_gguf")):
        repo.commit({"m-F16.gguf": tiny_gguf().read_bytes(), "mmproj-F16.gguf": content})
        with pytest.raises(Refused) as refused:
            sources.shapes(words.source([repo.id]))
        assert (refused.value.code, refused.value.param) == (code, "projector")
        assert sources.shapes(words.source([repo.id]), projector="none")
