"""`llmgw`: the one command. Exit codes: 0 ok, 1 refused, 2 usage or settings, 3 cannot reach the server, 4 not found."""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from llmgw_site.cli.client import CliError, ExitCode

NOUNS = {
    "model": "llmgw_site.cli.models",
    "alias": "llmgw_site.cli.aliases",
    "provider": "llmgw_site.cli.providers",
    "quota": "llmgw_site.cli.quotas",
    "limit": "llmgw_site.cli.limits",
    "budget": "llmgw_site.cli.budgets",
    "headroom": "llmgw_site.cli.headroom",
    "scope": "llmgw_site.cli.scopes",
    "role": "llmgw_site.cli.roles",
    "key": "llmgw_site.cli.keys",
    "token": "llmgw_site.cli.tokens",
    "jobs": "llmgw_site.cli.jobs",
    "node": "llmgw_site.cli.nodes",
    "setup": "llmgw_site.cli.setup",
    "strategy": "llmgw_site.cli.strategy",
    "peers": "llmgw_site.cli.peers",
    "status": "llmgw_site.cli.status",
    "usage": "llmgw_site.cli.usage",
    "request": "llmgw_site.cli.requests",
    "simulate": "llmgw_site.cli.simulate",
    "mirror": "llmgw_site.cli.mirror",
    "bench": "llmgw_site.cli.updates",
}
"""A command, and the module whose `app` (a Typer) answers it. Imported when it is asked for, not before."""


class Commands(TyperGroup):
    """The service commands below, and the nouns."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.commands, *NOUNS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in NOUNS:
            return super().get_command(ctx, cmd_name)
        command = typer.main.get_command(import_module(NOUNS[cmd_name]).app)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, known = args[0], self.list_commands(ctx)
        if name not in known:
            near = get_close_matches(name, known, n=1)
            ctx.fail(f"There is no command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich's help costs 0.4 s a call
    context_settings={"help_option_names": ["-h", "--help"]},
    help="A self-hosted LLM cluster: one OpenAI-compatible endpoint over the machines you have.",
)


@app.command()
def up(
    keep_engines: Annotated[
        bool, typer.Option("--keep-engines", help="Leave engines running at the end; the next `up` adopts them.")
    ] = False,
) -> None:
    """Start all of llmgw on this machine, with a small real model, and say how to use it."""
    _become("llmgw_site.up.main", *(["--keep-engines"] if keep_engines else []))


@app.command()
def gateway(
    api_client: Annotated[
        list[str] | None,
        typer.Option(
            help="A node, by name or id, that may fetch weights from here; may be repeated. Without: every node."
        ),
    ] = None,
) -> None:
    """The data path: /v1/* and the listeners of this node."""
    if api_client:
        os.environ["LLMGW_WEIGHTS_CLIENTS"] = ",".join(api_client)
    _become("llmgw_site.cli.services", "gateway")


@app.command()
def web() -> None:
    """Console and admin API, behind the gateway."""
    _become("llmgw_site.cli.services", "web")


@app.command()
def agent() -> None:
    """This node's hands: heartbeats, engines, usage."""
    _become("llmgw_site.cli.services", "agent")


@app.command()
def worker() -> None:
    """Celery worker and its beat: jobs and the reconciler."""
    _become("llmgw_site.cli.services", "worker")


@app.command()
def check() -> None:
    """Say what is wrong with the settings and this machine, and how to mend it."""
    from llmgw_site.cli.check import run

    raise SystemExit(run(os.environ))


def _become(module: str, *args: str) -> None:
    """Run `python -m module` in place of this process: a service need not carry the command line's own modules along."""
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", module, *args])  # noqa: S606 - no shell wanted


def main() -> None:
    """Entry point. What people did wrong is one line on standard error; a defect of ours is a traceback only if asked for."""
    try:
        app(prog_name="llmgw")
    except CliError as error:
        print(f"llmgw: {error}", file=sys.stderr)
        raise SystemExit(int(error.code)) from None
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left: nothing more to say
        raise SystemExit(0) from None
    except Exception as error:
        if os.environ.get("LLMGW_DEBUG", "0") not in ("", "0"):
            raise
        print(f"llmgw: a defect of llmgw: {type(error).__name__}: {error} (LLMGW_DEBUG=1 shows where)", file=sys.stderr)
        raise SystemExit(int(ExitCode.REFUSED)) from None
