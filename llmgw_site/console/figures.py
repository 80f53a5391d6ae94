"""From numbers to what is drawn: sparklines, medians, shares. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

WIDTH, HEIGHT = 100.0, 32.0
"""Of a sparkline's view box; the page stretches it."""


@dataclass(frozen=True)
class Spark:
    """SVG path data. `line` has a gap where nothing was measured, `fill` the area below it, `dots` the lone points."""

    line: str = ""
    fill: str = ""
    dots: str = ""


def spark(values: Sequence[float | None], *, top: float | None = None) -> Spark:
    """A sparkline of evenly spaced values, from zero to `top` (default: the largest). None is a gap, not a zero."""
    known = [value for value in values if value is not None]
    if not known:
        return Spark()
    ceiling = max(known) if top is None else top
    step = WIDTH / max(1, len(values) - 1)
    points = [
        None if value is None else (n * step, HEIGHT - (value / ceiling * HEIGHT if ceiling else 0.0))
        for n, value in enumerate(values)
    ]
    line, fill, dots = [], [], []
    for run in _runs(points):
        if len(run) == 1:
            dots.append(f"M{_pair(run[0])}h0.01")
            continue
        joined = "L".join(_pair(point) for point in run)
        line.append(f"M{joined}")
        fill.append(f"M{run[0][0]:.2f},{HEIGHT:g}L{joined}L{run[-1][0]:.2f},{HEIGHT:g}Z")
    return Spark("".join(line), "".join(fill), "".join(dots))


def _runs(points: Iterable[tuple[float, float] | None]) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    for point in points:
        if point is not None:
            runs[-1].append(point)
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _pair(point: tuple[float, float]) -> str:
    return f"{point[0]:.2f},{point[1]:.2f}"


def middle(values: Iterable[float | None]) -> float | None:
    """The median of what was measured; None where nothing was."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def percent(part: float | None, whole: float | None) -> float | None:
    """`part` of `whole` in percent, 0 to 100; None where either is not known."""
    if part is None or not whole:
        return None
    return min(100.0, max(0.0, 100.0 * part / whole))
