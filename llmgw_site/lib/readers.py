"""How the text of a setting becomes its value. Each raises ValueError that says what to write instead."""

from __future__ import annotations

import re
from collections.abc import Callable
from ipaddress import IPv4Network, IPv6Network, ip_network
from urllib.parse import urlsplit


def text(value: str) -> str:
    return value


def currency(value: str) -> str:
    if len(value) == 3 and value.isascii() and value.isalpha() and value.isupper():
        return value
    raise ValueError("write the three letters of a currency, such as USD or EUR")


def flag(value: str) -> bool:
    low = value.strip().lower()
    if low in ("1", "true", "yes", "on"):
        return True
    if low in ("0", "false", "no", "off", ""):
        return False
    raise ValueError("write 1 or 0")


def port(value: str) -> int:
    if not value.isdecimal() or not 0 < int(value) < 65536:
        raise ValueError("write a port number from 1 to 65535")
    return int(value)


def count(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise ValueError("write a whole number of 1 or more")
    return int(value)


def seconds(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 < number < 10**7:
        raise ValueError("write a number of seconds above 0, for example 30 or 0.5")
    return number


def span(value: str) -> float:
    """Seconds, or 0 for never."""
    return 0.0 if value.strip() in ("0", "0.0") else seconds(value)


def period(value: str) -> float:
    """Seconds, or 0 for never."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if number != 0 and not 60 <= number < 10**8:
        raise ValueError("write a number of seconds, 60 or more, or 0 for never")
    return number


def days(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number < 10**5:
        raise ValueError("write a number of days, or 0 for ever")
    return number


def one_of(*allowed: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"write one of {', '.join(allowed)}")
        return value

    return read


def names(value: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",") if part.strip())


def oidc_roles(value: str) -> tuple[tuple[str, str, str], ...]:
    """(value of the claim, role, scope or ""), from `VALUE=ROLE[@SCOPE]; ...`; a value may have `=` and `,` in it."""
    found = []
    for part in filter(None, map(str.strip, value.split(";"))):
        text, _, role = part.rpartition("=")
        role, _, scope = role.partition("@")
        if not text.strip() or role.strip() not in ("viewer", "operator", "admin"):
            raise ValueError("write GROUP=ROLE or GROUP=ROLE@SCOPE, with viewer, operator or admin, separated by `;`")
        found.append((text.strip(), role.strip(), scope.strip()))
    return tuple(found)


def url(*schemes: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value and value.partition(":")[0].lower() not in schemes:
            raise ValueError(f"write an address that begins with {' or '.join(s + '://' for s in schemes)}")
        if not _is_url(value):
            raise ValueError("write an address with a port from 1 to 65535 or none, and `/` in a password as %2F")
        return value

    return read


def addresses(value: str) -> tuple[str, ...]:
    """Base URLs of node listeners; `http://` may be left out."""
    found = []
    for given in names(value):
        whole = given if "://" in given else f"http://{given}"
        if not _is_url(whole) or urlsplit(whole).scheme not in ("http", "https") or not urlsplit(whole).hostname:
            raise ValueError("write node addresses such as http://10.0.0.5:8880, separated by commas")
        found.append(whole.rstrip("/"))
    return tuple(found)


_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/?#@\s*]+|\*")


def networks(value: str) -> tuple[IPv4Network | IPv6Network, ...]:
    try:
        return tuple(ip_network(item) for item in names(value))
    except ValueError:
        raise ValueError("write addresses or networks such as 10.0.0.1 or 10.0.0.0/8, separated by commas") from None


def origins(value: str) -> tuple[str, ...]:
    """As browsers name them: scheme, host and port in lower case, and no path; `*` for all."""
    found = tuple(given.lower() for given in names(value))
    if not all(_ORIGIN.fullmatch(origin) for origin in found):
        raise ValueError("write origins such as https://chat.example.com, separated by commas, or * for all")
    return found


def _is_url(text: str) -> bool:
    try:
        return urlsplit(text).port != 0
    except ValueError:
        return False


ROLES = ("controller", "edge", "router", "inference", "cloud", "data")


def roles(value: str) -> tuple[str, ...]:
    given = names(value)
    for name in given:
        if name not in ROLES:
            raise ValueError(f"write roles of {', '.join(ROLES)}")
    return given
