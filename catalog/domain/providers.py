"""What may be said of an external provider: its base URL, its key, the file that holds its key. Pure texts."""

from __future__ import annotations

import re

URL = r"\Ahttps?://(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?)(:[0-9]{1,5})?(/[A-Za-z0-9._~:@+=,-]+)*\Z"
"""http or https, a host, perhaps a port and a path. No user or password, no query, no slash at the end."""
KEY_FILE = r"\A(/(?!\.\.(/|\Z))[^/\x00-\x1f\x7f]+)+\Z"
"""An absolute path that means one file: no `..`, no control characters."""
KEY = r"\A[\x21-\x7e]{1,4096}\Z"
"""What can stand in an Authorization header."""


def base_url(text: str) -> str | None:
    """A base URL without spaces around it or slashes at its end; None where it is none."""
    url = text.strip().rstrip("/")
    match = re.search(URL, url)
    port = match.group(3) if match else None
    return url if match and (port is None or 0 < int(port[1:]) < 65536) else None


def plain_key(text: str) -> str | None:
    """A key without the spaces and line ends around it; None where no header could carry it."""
    key = text.strip()
    return key if re.search(KEY, key) else None
