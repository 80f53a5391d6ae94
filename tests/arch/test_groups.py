"""Tests that share something that runs stay on one worker, whatever pytest-xdist and pytest make of its marks."""

from __future__ import annotations

import pytest

from tests.groups import ByGroup, group_of


@pytest.mark.parametrize(
    ("file", "group"),
    [
        ("tests/e2e/test_kills.py", "stack"),
        ("tests/e2e/test_browser.py", "stack"),
        ("tests/e2e/test_up.py", "up"),
        ("tests/cluster/live/test_chat.py", "cluster"),
        ("tests/cluster/services/test_apply.py", ""),
        ("tests/arch/test_groups.py", ""),
        ("tests/none.py", ""),
    ],
)
def test_a_file_is_of_the_group_that_it_names_or_its_folder(file: str, group: str) -> None:
    assert group_of(file) == group


def test_a_group_is_one_unit_and_every_other_test_one_of_its_own() -> None:
    split = ByGroup._split_scope
    assert split(None, "tests/e2e/test_kills.py::test_a[x]") == "stack"  # type: ignore[arg-type]
    assert split(None, "tests/e2e/test_cli.py::test_b") == "stack"  # type: ignore[arg-type]
    alone = "tests/arch/test_groups.py::test_c[a::b]"
    assert split(None, alone) == alone  # type: ignore[arg-type]


def test_the_run_really_goes_by_them(pytestconfig: pytest.Config) -> None:
    """The hook stands in tests/conftest.py under the name that pytest-xdist asks for."""
    assert any(
        plugin.__name__.endswith("conftest") and hasattr(plugin, "pytest_xdist_make_scheduler")
        for plugin in pytestconfig.pluginmanager.get_plugins()
        if hasattr(plugin, "__name__")
    )
