"""Print what the reconciler would do now, and why models wait. Changes nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson
from django.core.management.base import BaseCommand, CommandParser

from cluster import selectors
from cluster.domain.plan import Op
from cluster.domain.types import World


class Command(BaseCommand):
    help = __doc__ or ""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="Print JSON, for scripts.")

    def handle(self, *args: Any, **options: Any) -> None:
        now = selectors.database_now()
        world = selectors.world(now)
        plan, statuses = selectors.statuses(world, now)
        if options["json"]:
            ops = [{"op": type(op).__name__.lower(), **asdict(op)} for op in plan.ops]
            waits = [asdict(wait) for wait in plan.waits]
            self.stdout.write(orjson.dumps({"ops": ops, "waits": waits}, option=orjson.OPT_INDENT_2).decode())
            return
        for op in plan.ops:
            self.stdout.write(f"{type(op).__name__.lower():7} {_what(op, world)}: {op.reason}")
        for wait in plan.waits:
            self.stdout.write(f"wait    {statuses[wait.model_id].name} ({wait.code}): {wait.message}")
        if not plan.ops and not plan.waits:
            self.stdout.write("nothing to do")


def _what(op: Op, world: World) -> str:
    """What an operation is about, by names."""
    replica = world.replica(op.subject)
    model = world.model(replica.model_id if replica else op.subject)
    name = model.name if model else op.subject
    return f"{name} {replica.id}" if replica else name
