"""What an address tells of itself."""

from __future__ import annotations

import pytest

from llmgw_site.lib.addresses import is_loopback, unreachable_controller


@pytest.mark.parametrize(
    ("url", "only_here"),
    [
        ("http://127.0.0.1:8880", True),
        ("http://127.9.9.9", True),
        ("https://localhost:8880", True),
        ("http://gateway.localhost", True),
        ("http://[::1]:8880", True),
        ("http://10.0.0.5:8880", False),
        ("https://node.example:8880", False),
        ("http://localhost.example", False),
        ("nonsense", False),
    ],
)
def test_loopback_addresses_are_told_from_others(url: str, only_here: bool) -> None:
    assert is_loopback(url) is only_here


def test_a_command_is_of_no_use_elsewhere_only_if_all_its_controllers_are_here() -> None:
    command = "llmgw node join WORD --controller http://127.0.0.1:8880"
    assert unreachable_controller(command) == "http://127.0.0.1:8880"
    assert unreachable_controller(f"{command} --controller http://10.0.0.5:8880") == ""
    assert unreachable_controller("llmgw node join WORD") == ""
