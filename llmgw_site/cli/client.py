"""What every noun of the CLI shares: where the admin API is, calls to it, printing, and exit codes.

A command asks `api()` for a connected client, calls it with paths below `/api/v1/`, and prints with `show_list` or
`show_item`; a refusal, a missing thing or a silent server raises `CliError`, which `main` turns into one line and an
exit code. Where the server is: LLMGW_URL and LLMGW_ADMIN_TOKEN, else `<LLMGW_DATA>/quickstart.env` of a running `llmgw up`.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlsplit

import typer

from llmgw_site.lib.units import format_seconds

if TYPE_CHECKING:
    import httpx

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
"""The type of every `as_json: AsJson = False` option."""


class ExitCode(IntEnum):
    """What `llmgw` ends with."""

    OK = 0
    REFUSED = 1  # the server, or this machine, said no
    USAGE = 2  # the command line or a setting is wrong
    UNREACHABLE = 3  # no answer from the server
    NOT_FOUND = 4  # there is no such thing


class CliError(Exception):
    """Ends the command with a line for people and an exit code."""

    def __init__(self, code: ExitCode, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Target:
    """The server a command talks to, and where that was found."""

    url: str
    token: str
    source: str

    def __repr__(self) -> str:
        return f"Target({self.url} from {self.source})"


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of a shell-sourceable file; empty where it is missing. Lines that assign nothing are skipped."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        for word in shlex.split(line, comments=True):
            name, equals, value = word.partition("=")
            if equals and name.isidentifier():
                found[name] = value
    return found


def find_target(environ: Mapping[str, str] | None = None) -> Target:
    """Where the admin API is. Raises CliError that says how to name it.

    A token of the file goes only to the server of the file: `LLMGW_URL` alone may name somebody else's.
    """
    environ = os.environ if environ is None else environ
    file = Path(environ.get("LLMGW_DATA") or "var") / "quickstart.env"
    kept = read_env_file(file)
    url = environ.get("LLMGW_URL") or kept.get("LLMGW_URL")
    lack = "has no value for it"
    elsewhere = (url or "").rstrip("/") != kept.get("LLMGW_URL", "").rstrip("/")
    if elsewhere and kept.pop("LLMGW_ADMIN_TOKEN", ""):
        lack = "has the token of another server"
    token = environ.get("LLMGW_ADMIN_TOKEN") or kept.get("LLMGW_ADMIN_TOKEN")
    if not url or not token:
        missing = " and ".join(name for name, value in (("LLMGW_URL", url), ("LLMGW_ADMIN_TOKEN", token)) if not value)
        raise CliError(
            ExitCode.USAGE,
            f"{missing} not set, and {file} {lack}: set it, or start `llmgw up` and run this command where "
            "it runs (or with its LLMGW_DATA)",
        )
    if not _is_address(url):
        raise CliError(ExitCode.USAGE, f"LLMGW_URL={url!r} is no address: write for example http://127.0.0.1:8800")
    return Target(url.rstrip("/"), token, "the environment" if environ.get("LLMGW_URL") else str(file))


def _is_address(url: str) -> bool:
    """Whether this is http or https with a host and, if any, a port that there is."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


CONNECT, LOOK, ANSWER = 5.0, 30.0, 130.0
"""Seconds: to reach the server, for what it shows, and for what it does: it may ask a registry first, and says itself after 120 s that
it was too slow."""


class Api:
    """The admin API. Paths are relative to `/api/v1/`; answers are decoded JSON, None for an empty one."""

    def __init__(self, target: Target) -> None:
        import httpx  # heavy; only commands that call the server pay for it

        self.target = target
        try:
            self._http = httpx.Client(
                base_url=f"{target.url}/api/v1/",
                headers={"authorization": f"Bearer {target.token}", "accept": "application/json"},
                timeout=httpx.Timeout(LOOK, connect=CONNECT),
                trust_env=False,
                verify=not target.url.lower().startswith("http:"),  # certificates would be read for nothing
            )
        except httpx.InvalidURL as error:
            raise CliError(ExitCode.USAGE, f"LLMGW_URL={target.url!r} is no address ({error})") from None
        except UnicodeEncodeError:
            raise CliError(ExitCode.USAGE, "LLMGW_ADMIN_TOKEN is no token: it has letters that no token has") from None

    def get(self, path: str, **params: Any) -> Any:
        """GET; parameters that are None are left out."""
        return self._call("GET", path, params=params)

    def post(self, path: str, body: Any = None) -> Any:
        return self._call("POST", path, body=body)

    def put(self, path: str, body: Any) -> Any:
        return self._call("PUT", path, body=body)

    def patch(self, path: str, body: Any) -> Any:
        return self._call("PATCH", path, body=body)

    def delete(self, path: str) -> Any:
        return self._call("DELETE", path)

    def all(self, path: str, **params: Any) -> list[dict[str, Any]]:
        """Every row of a list, over all its pages."""
        answer = self.get(path, **params)
        rows: list[dict[str, Any]] = list(answer["results"])
        while answer.get("next"):
            answer = self._call("GET", self._own(answer["next"]))
            rows += answer["results"]
        return rows

    def find(self, path: str, ref: str, *, noun: str) -> dict[str, Any]:
        """The one row whose id or name is `ref`. Raises CliError NOT_FOUND, or REFUSED if several carry the name."""
        rows = self.all(path)
        found = [row for row in rows if row.get("id") == ref] or [row for row in rows if row.get("name") == ref]
        if not found:
            names = sorted(str(row.get("name") or row["id"]) for row in rows)
            known = (", ".join(names[:10]) or "none") + (f" and {len(names) - 10} more" if len(names) > 10 else "")
            raise CliError(ExitCode.NOT_FOUND, f"there is no {noun} {ref!r}; there are: {known}")
        if len(found) > 1:
            raise CliError(ExitCode.REFUSED, f"{len(found)} {noun}s are named {ref!r}: give the id instead")
        return found[0]

    def _own(self, link: str) -> str:
        """A `next` link as a path of the server we talk to, whatever name the server has for itself."""
        return link.split("/api/v1/", 1)[-1]

    def text(self, path: str, **params: Any) -> str:
        """GET of what is no JSON."""
        return str(self._answer("GET", path, params=params).text)

    def _call(self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None) -> Any:
        response = self._answer(method, path, params=params, body=body)
        try:
            return response.json() if response.content else None
        except ValueError:
            text = f"{self.target.url} answers, but not as llmgw does: is that address right? It came from "
            raise CliError(ExitCode.UNREACHABLE, text + self.target.source) from None

    def _answer(
        self, method: str, path: str, *, params: Mapping[str, Any] | None = None, body: Any = None
    ) -> httpx.Response:
        import httpx

        kept = {key: value for key, value in (params or {}).items() if value is not None}
        patience = LOOK if method == "GET" else ANSWER
        try:
            response = self._http.request(
                method,
                path.lstrip("/"),
                params=kept or None,
                json=body,
                timeout=httpx.Timeout(patience, connect=CONNECT),
            )
        except httpx.ReadTimeout:
            text = f"{self.target.url} took the request and gave no answer within {patience:g} s"
            more = "" if method == "GET" else "; it may have been carried out, so look before sending it again"
            raise CliError(ExitCode.UNREACHABLE, f"{text}{more}: the log of `web` may say why") from None
        except httpx.HTTPError as error:
            raise CliError(
                ExitCode.UNREACHABLE,
                f"{self.target.url} does not answer ({str(error) or type(error).__name__}): is `llmgw up` running? "
                f"The address came from {self.target.source}",
            ) from None
        except ValueError as error:  # what JSON and UTF-8 cannot say: infinite numbers, bytes of another encoding
            raise CliError(ExitCode.USAGE, f"this cannot be sent: {_unsent(error)}") from None
        if not response.is_success:
            raise refusal(response)
        return response


def part(text: str) -> str:
    """An id or a name as one part of a path, whatever characters it has. Raises CliError where they are none."""
    try:
        return quote(text, safe="")
    except UnicodeEncodeError as error:
        raise CliError(ExitCode.USAGE, f"{text!r} cannot be sent: {_unsent(error)}") from None


def _unsent(error: ValueError) -> str:
    if isinstance(error, UnicodeEncodeError):
        return "it has bytes that are no text; this terminal, or a file that it was read from, is not in UTF-8"
    return "a number in it is none, or has no end; write a plain one"


def refusal(response: httpx.Response) -> CliError:
    """A server's refusal as what the CLI says and ends with."""
    try:
        error = response.json()["error"]
        message, code = str(error["message"]), str(error.get("code") or "")
    except (ValueError, KeyError, TypeError):
        message, code = f"the server answered {response.status_code} {response.reason_phrase}", ""
    if code == "web_unavailable":
        return CliError(ExitCode.UNREACHABLE, message)
    return CliError(ExitCode.NOT_FOUND if response.status_code == 404 else ExitCode.REFUSED, message)


def api() -> Api:
    """The client of this command, from the environment or quickstart.env."""
    return Api(find_target())


# --- printing

Column = tuple[str, Callable[[dict[str, Any]], Any]] | str
"""A key of the row, or a title with the function that makes the cell."""


def cell(value: Any) -> str:
    """A value as a table shows it: nothing for what is not known, never zero for it."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value) or "-"
    if isinstance(value, dict):
        if not any(isinstance(item, dict | list) for item in value.values()):
            return ", ".join(f"{name}={item}" for name, item in value.items()) or "-"
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def print_json(value: Any) -> None:
    """JSON on standard output, readable and stable."""
    print(json.dumps(value, indent=2, ensure_ascii=False))


def show_list(rows: Sequence[dict[str, Any]], columns: Iterable[Column], *, as_json: bool, empty: str) -> None:
    """Rows as a table, or as a JSON list; `empty` is what is said when there are none."""
    if as_json:
        print_json(list(rows))
        return
    if not rows:
        print(empty)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    makers: list[Callable[[dict[str, Any]], Any]] = []
    for column in columns:
        title, make = (column, _getter(column)) if isinstance(column, str) else column
        table.add_column(title.replace("_", " "), overflow="fold")
        makers.append(make)
    for row in rows:
        table.add_row(*(cell(make(row)) for make in makers))
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, emoji=False, width=200)  # a pipe has no width to keep to
    console.print(table)


def show_item(item: dict[str, Any], *, as_json: bool, fields: Iterable[Column] | None = None) -> None:
    """One thing as `name  value` lines, or as a JSON object."""
    if as_json:
        print_json(item)
        return
    lines = []
    for field in fields if fields is not None else list(item):
        title, make = (field, _getter(field)) if isinstance(field, str) else field
        lines.append((title.replace("_", " "), cell(make(item))))
    width = max((len(title) for title, _ in lines), default=0)
    for title, text in lines:
        print(f"{title:<{width}}  {text}")


def ago(stamp: str | float | None) -> str:
    """How long ago an ISO time or Unix time was: `12 s ago`."""
    if stamp is None or stamp == "":
        return "-"
    if isinstance(stamp, str):
        from datetime import datetime

        stamp = datetime.fromisoformat(stamp).timestamp()
    return f"{format_seconds(max(0.0, time.time() - stamp))} ago"


def _getter(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda row: row.get(key)
