"""What benches found of the files of a repository that models are served from."""

from __future__ import annotations

from catalog import selectors as catalog
from catalog.domain.needs import cards_of
from cluster.domain.offers import Speed
from cluster.models import Throughput
from cluster.selectors.ways import digest_of, serve_of


def speeds(repository: str) -> tuple[Speed, ...]:
    """Of whichever commit: other weights of one file's shape are as fast. One query where nothing is served from it, else five."""
    held = set(catalog.versions().filter(repository=repository).values_list("id", flat=True))
    runs = {
        digest_of(serve_of(model, profile), profile): (model.first, profile)
        for model in (catalog.model_views() if held else ())
        if model.version_id in held
        for profile in model.profiles
    }
    rows = Throughput.objects.filter(digest__in=list(runs)).order_by("id") if runs else ()
    found = []
    for row in rows:
        first, profile = runs[row.digest]
        found.append(
            Speed(
                file=first, engine=profile.engine, cards=cards_of(profile), hardware=row.hardware, tps=row.tps,
                at_once=row.at_once,
            )
        )  # fmt: skip
    return tuple(found)
