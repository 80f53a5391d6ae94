"""`llmgw node join`: one command that makes this machine a node of a cluster and starts it."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from llmgw_site.cli.client import CliError, ExitCode
from llmgw_site.lib.config import Config, ConfigError, load
from llmgw_site.lib.errors import Refused
from llmgw_site.up import ports, processes
from llmgw_site.up.lock import Lock


def join(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="What `llmgw node token` printed.")],
    controller: Annotated[
        str, typer.Option("--controller", metavar="URL", help="A controller's node address, http://HOST:8880.")
    ] = "",
    name: Annotated[str, typer.Option("--name", help="Name of this node; else the host name.")] = "",
    address: Annotated[
        str, typer.Option("--address", metavar="URL", help="How other nodes reach this one; else found by itself.")
    ] = "",
    no_start: Annotated[bool, typer.Option("--no-start", help="Join only; `llmgw up` starts the node later.")] = False,
) -> None:
    """Make this machine a node of the token's cluster, and start it."""
    from workers.agent.identity import NoIdentity
    from workers.agent.join import Wish
    from workers.agent.join import join as enter

    os.umask(0o077)
    try:
        config = load()
        if not no_start:
            _could_start(config)
        wish = Wish(
            token=token, controller=controller, name=name, address=address, host=os.environ.get("LLMGW_NODE_HOST", "")
        )
        enter(config, wish, lambda text: print(text, flush=True))
    except ConfigError as error:
        raise CliError(ExitCode.USAGE, "\n".join(error.problems)) from None
    except Refused as refused:
        code = ExitCode.UNREACHABLE if refused.code == "controller_unreachable" else ExitCode.REFUSED
        raise CliError(code, refused.message) from None
    except (NoIdentity, OSError) as error:
        raise CliError(ExitCode.REFUSED, str(error)) from None
    if no_start:
        print("`llmgw up` starts it")
        return
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-P", "-m", "llmgw_site.up.main"])  # noqa: S606 - no shell wanted


def _could_start(config: Config) -> None:
    """Refuse before the token is spent what `llmgw up` would refuse after: a folder or a port in use."""
    lock = Lock(config)
    lock.take()
    lock.release()
    if processes.services_of(config.data):
        return  # of an `up` that was killed: the next one ends them, and has their ports
    problems = ports.problems(config)
    if problems:
        raise CliError(ExitCode.REFUSED, "\nllmgw: ".join(problems))
