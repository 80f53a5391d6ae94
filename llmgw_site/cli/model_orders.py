"""Orders about one model: `llmgw model class|scale|target|restart|retry`, and `llmgw model show NAME --why`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import typer

from llmgw_site.cli.client import Api, CliError, Column, ExitCode, ago, api, show_list
from llmgw_site.cli.model_words import replicas, scaling

Ref = Annotated[str, typer.Argument(metavar="MODEL", help="Its name or id.")]
Why = Annotated[str, typer.Option(help="Reason, kept with the event.")]
CLASSES = ("critical", "standard", "opportunistic")
DEFAULT = "default"


def priority_class(
    model: Ref,
    klass: Annotated[
        str, typer.Argument(metavar="CLASS", help="critical, standard, opportunistic, or default: by its scaling.")
    ],
) -> None:
    """Say how much a model matters: room of a lower class may be taken for a higher one."""
    vet_class(klass)
    client = api()
    row = client.find("models", model, noun="model")
    client.patch(f"models/{row['id']}", {"priority_class": "" if klass == DEFAULT else klass})
    says = "goes by its scaling (always running: standard; on demand: opportunistic)"
    print(f"{row['name']} {says if klass == DEFAULT else f'is {klass}'}.")


def vet_class(klass: str) -> None:
    if klass not in (*CLASSES, DEFAULT):
        raise CliError(ExitCode.USAGE, f"there is no class {klass!r}: write {', '.join(CLASSES)} or {DEFAULT}")


def scale(
    model: Ref,
    least: Annotated[
        int | None, typer.Option("--min", min=0, help="That run whatever the load; 0: from the first request on.")
    ] = None,
    most: Annotated[str, typer.Option("--max", help="That may run under load; `none`: no more than --min.")] = "",
    rest_after: Annotated[
        str, typer.Option(help="Seconds without a request until one on demand stops; `none`: the server's setting.")
    ] = "",
    why: Why = "",
) -> None:
    """Set how many replicas a model has. A minimum that finds no place is refused with the reason."""
    body: dict[str, Any] = {"why": why}
    if least is not None:
        body["replicas"] = least
    if most:
        body["max_replicas"] = None if most == "none" else _whole("--max", most)
    if rest_after:
        body["rest_after"] = None if rest_after == "none" else _number("--rest-after", rest_after)
    if len(body) == 1:
        raise CliError(ExitCode.USAGE, "write what shall change: --min, --max or --rest-after")
    row = _post(model, "scale", body)
    print(f"{row['name']} {scaling(row)}.")


def target(
    model: Ref,
    tps: Annotated[
        float,
        typer.Option(metavar="RATE", min=0.001, help="Tokens a second that all its replicas shall give together."),
    ],
    each: Annotated[
        float | None,
        typer.Option(
            metavar="RATE",
            min=0.001,
            help="Tokens a second that one replica gives, all its requests together: written down for the profile, in place of "
            "what `llmgw bench` measured; left out: as it stands there.",
        ),
    ] = None,
    at_once: Annotated[
        float | None,
        typer.Option(
            metavar="COUNT",
            min=0.1,
            help="Requests at once up to which one replica serves well: written down likewise.",
        ),
    ] = None,
    profile: Annotated[
        str,
        typer.Option(
            help="Of which profile --each and --at-once are, by name or id; left out: the enabled one of the highest priority."
        ),
    ] = "",
    why: Why = "",
) -> None:
    """Size a model for a throughput: it gets RATE of --tps over what one replica gives, rounded up. What finds no place is refused.

    What one replica gives is known from `llmgw bench MODEL`, or is said with --each; it is refused where neither was done.
    """
    client = api()
    row = client.find("models", model, noun="model")
    measured = {"measured_tps": each, "measured_concurrency": at_once}
    measured = {name: value for name, value in measured.items() if value is not None}
    if measured:
        chosen = _profile(row, profile)
        client.patch(f"profiles/{chosen['id']}", measured)
    sized = client.post(f"models/{row['id']}/target", {"tps": tps, "why": why})
    count = sized["replicas"]
    print(f"{row['name']} has {replicas(count)} for {tps:g} tokens/s: each was measured to give {sized['each']:g}.")


def restart(
    model: Ref,
    in_place: Annotated[bool, typer.Option("--in-place", help="Stop each before its successor starts.")] = False,
    why: Why = "",
) -> None:
    """Replace each replica of a model by a new one: started beside it, then the old one drains."""
    answer = _post(model, "restart", {"in_place": in_place, "why": why})
    count = answer["replicas"]
    print(f"{replicas(count)} will be replaced{', one after the other' if count > 1 else ''}.")


def retry(model: Ref, why: Why = "") -> None:
    """Try a model again that is parked or fails to start."""
    row = _post(model, "retry", {"why": why})
    print(f"{row['name']} is tried again.")


COMMANDS: dict[str, Callable[..., None]] = {
    "class": priority_class,
    "scale": scale,
    "target": target,
    "restart": restart,
    "retry": retry,
}


def states(client: Api) -> dict[str, str]:
    """How each model stands now, by its id; none where that may not be seen."""
    try:
        rows = client.get("status")["models"]
    except CliError:
        return {}
    return {row["model_id"]: _state(row) for row in rows}


def _state(row: dict[str, Any]) -> str:
    if row["external"]:
        return row["code"] or "external"
    if not row["wanted"]:
        return str(row["code"]).removeprefix("model_").replace("_", " ")
    ready = f"{row['ready']}/{row['wanted']} ready"
    return f"{ready}, {row['code']}" if row["code"] else ready


def show_why(client: Api, row: dict[str, Any]) -> None:
    """How a model stands now, what it waits for, and what was decided about it."""
    told = client.get(f"models/{row['id']}/why")
    status, standing = told["status"], told["standing"]
    print(f"{told['name']}: {status['ready']} of {status['wanted']} replicas ready, class {told['klass']}.")
    if status["reason"]:
        print(f"{status['code']}: {status['reason']}")
    for wait in told["waits"]:
        if wait["message"] != status["reason"]:
            print(f"{wait['code']}: {wait['message']}")
    if standing["grown"]:
        print(f"{replicas(standing['grown'])} beyond its base, because of load")
    if failures := standing["failures"]:
        print("The last start failed" if failures == 1 else f"The last {failures} starts failed")
    if standing["restarting"]:
        print(f"{replicas(len(standing['restarting']))} still to be replaced")
    print()
    columns: list[Column] = [("when", lambda item: ago(item["at"])), "kind", "message", "why", ("by", _actor)]
    show_list(told["decisions"], columns, as_json=False, empty="Nothing was decided about it yet.")


def _actor(item: dict[str, Any]) -> str:
    return str(item["actor"])


def _post(model: str, order: str, body: dict[str, Any]) -> dict[str, Any]:
    client = api()
    row = client.find("models", model, noun="model")
    answer: dict[str, Any] = client.post(f"models/{row['id']}/{order}", body)
    return answer


def _number(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise CliError(ExitCode.USAGE, f"{option}: {text!r} is no number: write one, or `none`")
    return value


def _whole(option: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise CliError(ExitCode.USAGE, f"{option}: {text!r} is no whole number from 0 on: write one, or `none`")
    return int(text)


def _profile(row: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] | None
    if name:
        found = next((item for item in row["profiles"] if name in (item["name"], item["id"])), None)
    else:
        enabled = [item for item in row["profiles"] if item["enabled"]]
        found = max(enabled, key=lambda item: int(item["priority"]), default=None)
    if found is None:
        raise CliError(
            ExitCode.NOT_FOUND, f"{row['name']} has no profile {name!r}" if name else f"{row['name']} has none"
        )
    return dict(found)
