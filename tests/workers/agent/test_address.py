"""The address that is advertised: usable by others, and followed when it changes."""

from __future__ import annotations

import pytest

from workers.agent import address
from workers.agent.address import Source, advertised, bind_host, find


def ways(**known: str) -> Source:
    """Facing host A_B_C_D (dots as underlines) is this address."""
    return lambda host, port: known.get("to_" + host.replace(".", "_").replace(":", "_"))


OUTSIDE = {"to_192_0_2_1": "203.0.113.5"}


@pytest.mark.parametrize(
    ("controllers", "known", "found"),
    [
        (["http://10.0.0.1:8880"], {"to_10_0_0_1": "10.0.0.7", **OUTSIDE}, "10.0.0.7"),
        (["http://127.0.0.1:8880"], {"to_127_0_0_1": "127.0.0.1", **OUTSIDE}, "127.0.0.1"),
        (["http://10.0.0.1:8880"], {"to_10_0_0_1": "169.254.3.4", **OUTSIDE}, "203.0.113.5"),
        (["http://10.0.0.1:8880"], {"to_10_0_0_1": "0.0.0.0", **OUTSIDE}, "203.0.113.5"),
        (["http://10.0.0.1:8880"], {"to_10_0_0_1": "fe80::1%eth0", **OUTSIDE}, "203.0.113.5"),
        (["http://10.0.0.1:8880", "http://10.9.9.9:8880"], {"to_10_9_9_9": "10.9.9.7", **OUTSIDE}, "10.9.9.7"),
        ([], OUTSIDE, "203.0.113.5"),
        ([], {"to_192_0_2_1": "127.0.0.1", "to_2001_db8__1": "2001:db8::7"}, "2001:db8::7"),
        ([], {"to_192_0_2_1": "169.254.3.4", "to_2001_db8__1": "fe80::1"}, None),
        (["http://10.0.0.1:8880"], {}, None),
    ],
)  # fmt: skip
def test_f67_of_several_addresses_a_usable_one_is_found(
    controllers: list[str], known: dict[str, str], found: str | None
) -> None:
    assert find(controllers, source=ways(**known)) == found


def test_f67_a_change_of_the_address_is_followed() -> None:
    def now(found: str) -> str | None:
        return advertised(
            setting="", bound="0.0.0.0", port=8880, controllers=["http://10.0.0.1:8880"], local=False,
            source=ways(to_10_0_0_1=found),
        )  # fmt: skip

    assert (now("10.0.0.7"), now("10.0.0.8")) == ("http://10.0.0.7:8880", "http://10.0.0.8:8880")


@pytest.mark.parametrize(
    ("setting", "bound", "local", "expected"),
    [
        ("https://n1.example:9443/", "0.0.0.0", False, "https://n1.example:9443"),
        ("", "10.0.0.7", False, "http://10.0.0.7:8880"),
        ("", "127.0.0.3", False, "http://127.0.0.3:8880"),
        ("", "n1.example", False, "http://n1.example:8880"),
        ("", "::1", False, "http://[::1]:8880"),
        ("", "0.0.0.0", False, "http://10.0.0.7:8880"),
        ("", "0.0.0.0", True, "http://203.0.113.5:8880"),
        ("", "169.254.3.4", False, "http://10.0.0.7:8880"),
    ],
)  # fmt: skip
def test_a_setting_goes_first_then_what_the_listener_binds_then_what_faces_the_controllers(
    setting: str, bound: str, local: bool, expected: str
) -> None:
    found = advertised(
        setting=setting, bound=bound, port=8880, controllers=["http://10.0.0.1:8880"], local=local,
        source=ways(to_10_0_0_1="10.0.0.7", **OUTSIDE),
    )  # fmt: skip
    assert found == expected


def test_a_joining_machine_binds_loopback_for_a_controller_on_loopback_else_all_of_the_family() -> None:
    assert [bind_host(found) for found in ("127.0.0.1", "10.0.0.7", "2001:db8::7", "::1")] == [
        "127.0.0.1", "0.0.0.0", "::", "::1",
    ]  # fmt: skip


def test_the_kernel_is_asked_and_nothing_is_sent() -> None:
    assert address.source("127.0.0.1", 9) == "127.0.0.1"
    assert address.source("no-such-host.invalid", 9) is None
    assert address.source("a" * 70, 9) is None


def test_a_controller_whose_address_is_none_is_passed_over() -> None:
    known = ways(to_10_0_0_1="10.0.0.7", **OUTSIDE)
    assert find(["http://c:99999", "http://[::1", "http://10.0.0.1:8880"], source=known) == "10.0.0.7"


def test_the_interface_of_an_address_is_found_and_none_of_a_foreign_one() -> None:
    assert address.interface_of("127.0.0.1") == "lo"
    assert address.interface_of("203.0.113.77") == ""
    assert address.interface_of("2001:db8::7") == ""
