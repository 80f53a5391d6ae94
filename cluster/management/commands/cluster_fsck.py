"""Check that what must always hold of the cluster's tables holds now. Exit status 1 if something does not."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from cluster import selectors
from cluster.domain import invariants


class Command(BaseCommand):
    help = __doc__ or ""

    def handle(self, *args: Any, **options: Any) -> None:
        world = selectors.world()
        broken = invariants.check(world)
        for text in broken:
            self.stdout.write(text)
        counts = f"{len(world.models)} models, {len(world.nodes)} nodes, {len(world.replicas)} replicas"
        self.stdout.write(f"{counts}: {len(broken)} broken truths" if broken else f"{counts}: all as it must be")
        if broken:
            raise SystemExit(1)
