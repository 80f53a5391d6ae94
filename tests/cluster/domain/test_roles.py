"""Which modules a node runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.domain.modules import DEFAULT_ROLES, Module, ModuleReport, ModulesFile
from cluster.domain.roles import decide

NAMES = [module.value for module in Module]


def file(**states: str) -> ModulesFile:
    return ModulesFile(modules=tuple(ModuleReport(name=name, state=state) for name, state in states.items()))


def states(
    own: Sequence[str] = (),
    *,
    assigned: Sequence[str] | None = None,
    switches: Mapping[str, bool] | None = None,
    before: ModulesFile | None = None,
    problems: Mapping[str, tuple[str, str]] | None = None,
) -> dict[str, str]:
    found = decide(own=own, assigned=assigned, switches=switches or {}, before=before, problems=problems or {})
    return {item.name: item.state for item in found.modules}


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, dict.fromkeys(("controller", "edge", "router", "inference", "data"), "running")),
        ({"own": ["inference"]}, {"inference": "running"}),
        ({"own": ["inference"], "assigned": ["cloud", "edge"]}, {"edge": "running", "cloud": "running"}),
        ({"own": ["inference"], "assigned": []}, {}),
        ({"own": ["inference"], "switches": {"cloud": True}}, {"inference": "running", "cloud": "running"}),
        ({"own": ["edge", "inference"], "switches": {"edge": False}}, {"inference": "running"}),
        (
            {"own": ["edge", "inference"], "switches": {"edge": False}, "before": file(edge="running")},
            {"edge": "stopped", "inference": "running"},
        ),
        ({"own": ["inference"], "before": file(edge="stopped")}, {"edge": "stopped", "inference": "running"}),
        ({"own": ["edge"], "before": file(edge="stopped")}, {"edge": "running"}),
        ({"own": ["edge"], "before": file(cloud="unavailable")}, {"edge": "running"}),
        ({"own": ["edge"], "assigned": ["edge"], "switches": {"edge": False, "cloud": True}}, {"edge": "running"}),
        ({"own": ["data"], "problems": {"data": ("a", "b"), "cloud": ("c", "d")}}, {"data": "unavailable"}),
        ({"own": ["edge", "quantum"], "switches": {"warp": True}}, {"edge": "running"}),
    ],
)
def test_modules_follow_from_the_setup_or_from_own_roles_and_switches(
    asked: dict[str, object], expected: dict[str, str]
) -> None:
    assert states(**asked) == expected  # type: ignore[arg-type]


def test_what_keeps_a_module_from_running_is_told() -> None:
    problems = {"controller": ("store_not_shared", "Set DATABASE_URL.")}
    found = decide(own=["controller"], assigned=None, switches={}, before=None, problems=problems)
    assert found.modules == (
        ModuleReport(name="controller", state="unavailable", code="store_not_shared", message="Set DATABASE_URL."),
    )


def test_only_the_cluster_setup_makes_a_node_managed() -> None:
    assert decide(own=[], assigned=[], switches={}, before=None, problems={}).managed
    assert not decide(own=[], assigned=None, switches={"edge": True}, before=None, problems={}).managed


def test_the_roles_that_count_are_told() -> None:
    assert decide(own=[], assigned=None, switches={}, before=None, problems={}).roles == tuple(
        module for module in Module if module in DEFAULT_ROLES
    )
    assert decide(own=[], assigned=["edge", "cloud"], switches={}, before=None, problems={}).roles == ("edge", "cloud")


a_file = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["running", "stopped", "unavailable"])).map(
    lambda found: file(**found)
)


@given(
    own=st.lists(st.sampled_from(NAMES)),
    assigned=st.none() | st.lists(st.sampled_from(NAMES)),
    switches=st.dictionaries(st.sampled_from(NAMES), st.booleans()),
    before=st.none() | a_file,
    problems=st.dictionaries(st.sampled_from(NAMES), st.just(("code", "message"))),
)
def test_deciding_again_changes_nothing_and_lists_each_module_once(
    own: list[str],
    assigned: list[str] | None,
    switches: dict[str, bool],
    before: ModulesFile | None,
    problems: dict[str, tuple[str, str]],
) -> None:
    asked = {"own": own, "assigned": assigned, "switches": switches, "problems": problems}
    first = decide(**asked, before=before)  # type: ignore[arg-type]
    names = [item.name for item in first.modules]
    assert len(names) == len(set(names))
    assert decide(**asked, before=first) == first  # type: ignore[arg-type]
    for item in first.modules:
        assert (item.state == "unavailable") == (item.name in problems and item.name in first.roles)
        assert (item.state == "stopped") == (item.name not in first.roles)
    restarted = decide(**asked, before=None)  # type: ignore[arg-type]
    assert "stopped" not in {item.state for item in restarted.modules}
