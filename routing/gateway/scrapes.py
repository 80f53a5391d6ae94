"""What this node's engines say of themselves as series of ours: `llmgw_engine_*`, by model and replica.

Read from the last scrape when asked, so a replica that went has no series, and what an engine does not tell has none either.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from routing.domain.figures import Figures, Scraped, Span

_LABELS = ["model", "replica"]
_GAUGES: tuple[tuple[str, str, Callable[[Figures], float | None]], ...] = (
    ("requests_running", "Requests that an engine computes", lambda it: it.running),
    ("requests_waiting", "Requests in an engine's own queue", lambda it: it.waiting),
    ("kv_cache_used_ratio", "Part of an engine's KV cache that is in use", lambda it: it.kv_used),
)
_COUNTERS: tuple[tuple[str, str, Callable[[Figures], float | None]], ...] = (
    ("prompt_tokens", "Tokens of prompts, as the engine counts", lambda it: it.prompt_tokens),
    ("generated_tokens", "Tokens that it generated, as the engine counts", lambda it: it.generated_tokens),
    ("steps", "Forward passes of an engine", lambda it: it.steps),
    ("prefix_cache_queries", "Tokens that were looked up in an engine's prefix cache", lambda it: it.prefix_queries),
    ("prefix_cache_hits", "Tokens that were found in an engine's prefix cache", lambda it: it.prefix_hits),
    ("preemptions", "Requests that an engine put back for want of cache", lambda it: it.preemptions),
)
_SPANS: tuple[tuple[str, str, Callable[[Figures], Span | None]], ...] = (
    ("first_token_seconds", "Time to the first token, as the engine measures it", lambda it: it.first_token),
    ("token_seconds", "Time from one token to the next, as the engine measures it", lambda it: it.token),
    ("queue_seconds", "Time in an engine's own queue", lambda it: it.queue),
)


class EngineFigures(Collector):
    """`told`: each replica of this node with its model's name and what is known of its engine."""

    def __init__(self, told: Callable[[], Mapping[str, tuple[str, Scraped]]]) -> None:
        self._told = told

    def collect(self) -> Iterable[Metric]:
        told = [(model, name, scraped) for name, (model, scraped) in self._told().items()]
        answers = GaugeMetricFamily(
            "llmgw_engine_metrics_up", "Whether an engine's own metrics were read in the last scrapes", labels=_LABELS
        )
        for model, name, scraped in told:
            answers.add_metric([model, name], float(scraped.figures is not None))
        yield answers
        known = [(model, name, item.figures) for model, name, item in told if item.figures is not None]
        for series, words, read in _GAUGES:
            gauge = GaugeMetricFamily(f"llmgw_engine_{series}", words, labels=_LABELS)
            for model, name, figures in known:
                if (value := read(figures)) is not None:
                    gauge.add_metric([model, name], value)
            yield gauge
        for series, words, read in _COUNTERS:
            counter = CounterMetricFamily(f"llmgw_engine_{series}", words, labels=_LABELS)
            for model, name, figures in known:
                if (value := read(figures)) is not None:
                    counter.add_metric([model, name], value)
            yield counter
        for series, words, span in _SPANS:
            summary = SummaryMetricFamily(f"llmgw_engine_{series}", words, labels=_LABELS)
            for model, name, figures in known:
                if (spent := span(figures)) is not None:
                    summary.add_metric([model, name], count_value=spent.count, sum_value=spent.seconds)
            yield summary
