"""A run in words, for a terminal."""

from __future__ import annotations

from collections import Counter

from cluster.domain.simulation.figures import Figures, chart, rates
from cluster.domain.simulation.run import EPOCH, Outcome
from llmgw_site.lib.units import format_seconds

SHOWN = 10
"""Violations that are told one by one."""


def report(outcome: Outcome) -> str:
    case, figures = outcome.case, outcome.figures
    cards = sum(len(node.cards) for node in case.nodes)
    classes = {card.klass for node in case.nodes for card in node.cards}
    lines = [
        f"{case.name}: {len(case.nodes)} nodes, {cards} cards of {len(classes)} class{'' if len(classes) == 1 else 'es'}, {len(case.models)} models, "
        f"{len(case.happenings)} happenings; {format_seconds(case.hours * 3600)} in steps of {format_seconds(case.tick)}",
        "",
        *_charts(figures, cards),
        "",
        f"decided     {_counts(figures.ops)}"
        + (f"; {figures.refused} refused on second look" if figures.refused else ""),
        f"waiting     {_waiting(figures)}",
    ]
    if figures.waits:
        lines.append(f"  because   {_counts(figures.waits)} (models × steps)")
    lines += ["", *_violations(outcome)]
    return "\n".join(lines)


def _charts(figures: Figures, cards: int) -> list[str]:
    rows = [("cores", figures.cores), ("memory", figures.memory)] + ([("card memory", figures.cards)] if cards else [])
    lines = [
        f"{name:<12}{chart(values, most=1.0)}  mean {_mean(values):.0%}, highest {max(values, default=0.0):.0%}"
        for name, values in rows
    ]
    ready, wanted = figures.ready, figures.wanted
    lines.append(
        f"{'ready':<12}{chart(ready, most=max(wanted, default=0))}  {ready[-1] if ready else 0} of {wanted[-1] if wanted else 0} at the end"
    )
    lines.append(f"{'short':<12}{chart(figures.short)}  {max(figures.short, default=0)} models at the most")
    lines.append(f"{'requests':<12}{chart(figures.backlog)}  {max(figures.backlog, default=0)} waited at the most")
    lines.append(f"{'preempted':<12}{chart(rates(figures.preempted))}  {figures.ops['preempted']} replicas")
    return lines


def _waiting(figures: Figures) -> str:
    told = [f"{klass} {format_seconds(seconds)}" for klass, seconds in sorted(figures.longest.items()) if seconds]
    return "the longest that a model was short, by class: " + ", ".join(told) if told else "nobody"


def _violations(outcome: Outcome) -> list[str]:
    found = outcome.violations
    if not found:
        return ["violations  none"]
    rules = Counter(item.rule for item in found)
    lines = [f"violations  {_counts(rules)}"]
    lines += [f"  after {format_seconds(item.at - EPOCH)}, {item.rule}: {item.text}" for item in found[:SHOWN]]
    if len(found) > SHOWN:
        lines.append(f"  and {len(found) - SHOWN} more")
    return lines


def _counts(counts: Counter[str]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "nothing"


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
