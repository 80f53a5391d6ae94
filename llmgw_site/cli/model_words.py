"""What `llmgw model show` says of a model: in words, with units, and only what there is to say. Machines read `--json`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llmgw_site.cli.client import Column, ago
from llmgw_site.cli.quotas import KINDS
from llmgw_site.lib.units import format_bytes, format_seconds

Row = dict[str, Any]


def size(row: Row) -> str:
    return "-" if row["weights_size"] is None else format_bytes(row["weights_size"])


def version_words(version: Row | None) -> str:
    """Fetched weights: where they are from, at which commit, in which quantization."""
    if version is None:
        return "-"
    words = (version["repository"] or version["first"] or version["id"], version["commit"][:8], version["quantization"])
    return " ".join(word for word in words if word)


def engines(row: Row) -> list[str]:
    """What answers for it: engines, or a provider."""
    if row["provider"]:
        return [f"provider {row['provider_name']}"]
    return sorted({profile["engine"] for profile in row["profiles"] if profile["enabled"]})


def replicas(count: int) -> str:
    return "1 replica" if count == 1 else f"{count} replicas"


def scaling(row: Row) -> str:
    least, most = row["replicas"], row["max_replicas"]
    if not least and not most:
        return "has no replicas"
    if not least:
        idle = f"{row['rest_after']:g} s" if row["rest_after"] else "the server's setting"
        return f"runs on demand, with at most {replicas(most)}, and rests after {idle} without a request"
    if most is None or most == least:
        return f"has {replicas(least)}"
    return f"has {least} to {most} replicas, by its load"


def fields(row: Row, now: str) -> list[Column]:
    """The lines of a model, those that say nothing left out. `now`: how it stands, empty: not known."""
    local = not row["provider"]
    lines = [
        ("name", row["name"]),
        ("description", row["description"]),
        ("id", row["id"]),
        ("now", now),
        ("enabled", row["enabled"]),
    ]
    lines.append(
        (
            "answered by",
            ", ".join(engines(row)) + (f", there called {row['provider_model']}" if row["provider"] else ""),
        )
    )
    if local:
        lines += [("scaling", scaling(row)), ("class", row["priority_class"] or "by its scaling")]
    lines += [("owner", owner(row)), *_files(row), *_shape(row["facts"]), *_requests(row), ("price", price(row))]
    lines += [("added", ago(row["created_at"])), ("changed", ago(row["updated_at"]))]
    return [(title, _said(value)) for title, value in lines if value not in (None, "", [])]


def _said(value: Any) -> Callable[[Row], Any]:
    return lambda _: value


def owner(row: Row) -> str:
    kind = next((name for name in KINDS if row[name]), "")
    return f"{kind} {row[f'{kind}_name']}" if kind else "nobody"


def price(row: Row) -> str:
    """Of a million tokens, in the server's currency; empty: it has none."""
    if row["price_input"] is None:
        return ""
    told = f"{_plain(row['price_input'])} sent, {_plain(row['price_output'])} answered"
    told += f", {_plain(row['price_cached'])} from the cache" if row["price_cached"] else ""
    return f"{told}, of a million tokens"


def _files(row: Row) -> list[tuple[str, Any]]:
    version, weighs = row["version"], None if row["weights_size"] is None else format_bytes(row["weights_size"])
    lines: list[tuple[str, Any]] = [("file", row["weights_path"]), ("size", weighs), ("SHA-256", row["weights_sha256"])]
    if version:
        lines = [("version", version_words(version)), ("sees or hears by", version["projector"]), *lines[1:]]
    return [*lines, ("previous", version_words(row["previous"]) if row["previous"] else "")]


def _shape(facts: Row) -> list[tuple[str, Any]]:
    """What the file says of itself."""
    parts, fact = facts.get("split"), facts.get
    wide = [
        f"{fact('layers'):,} layers" if fact("layers") else "",
        f"{fact('embedding'):,} wide" if fact("embedding") else "",
    ]
    heads = f"{fact('heads'):,}" if fact("heads") else ""
    if heads and fact("heads_kv") and fact("heads_kv") != fact("heads"):
        heads += f", {fact('heads_kv'):,} of keys and values"
    if heads and fact("key_length"):
        heads += f", keys of {fact('key_length'):,} values"
    experts = f"{fact('experts'):,}" if fact("experts") else ""
    experts += f", {fact('experts_used'):,} for each token" if experts and fact("experts_used") else ""
    answers = "vectors" if fact("embeddings") else "text"
    return [
        ("architecture", ", ".join(part for part in (fact("architecture", ""), *wide) if part)),
        ("calls itself", fact("name")),
        ("parameters", _many(fact("parameters") or 0)),
        ("quantization", fact("quantization")),
        ("trained for", f"{fact('context'):,} tokens" if fact("context") else ""),
        ("looks back", f"{fact('sliding_window'):,} tokens, in some of its layers" if fact("sliding_window") else ""),
        ("heads", heads),
        ("experts", experts),
        ("vocabulary", f"{fact('vocabulary'):,} tokens" if fact("vocabulary") else ""),
        ("answers with", answers + (f", by {fact('pooling')} pooling" if fact("pooling") else "") if facts else ""),
        ("chat template", bool(fact("chat_template")) if facts and not fact("embeddings") else ""),
        ("files", f"{parts['count']} parts" if parts else ""),
    ]


def _requests(row: Row) -> list[tuple[str, Any]]:
    """What becomes of its requests, where that is not as set for all."""
    waits = [
        "" if row["queue_length"] is None else f"at most {row['queue_length']:,} at a node",
        "" if row["queue_wait"] is None else f"for {format_seconds(row['queue_wait'])} at most",
    ]
    spans = [("first byte within", row["first_byte_timeout"]), ("silent for at most", row["idle_timeout"])]
    return [
        ("waiting", ", ".join(part for part in waits if part)),
        ("answer instead", ", then ".join(row["fallbacks"])),
        *((title, "" if span is None else format_seconds(span)) for title, span in spans),
    ]


def _many(count: int) -> str:
    """`8030261248` as `8.03 billion`."""
    for factor, word in ((1_000_000_000, "billion"), (1_000_000, "million")):
        if count >= factor:
            return f"{count / factor:.3g} {word}"
    return f"{count:,}" if count else ""


def _plain(amount: str) -> str:
    """A price without zeros that say nothing."""
    return amount.rstrip("0").rstrip(".") if "." in amount else amount


PROFILES: list[Column] = [
    "name", "engine", "enabled", "priority",
    ("context", lambda row: f"{row['context']:,} tokens" if row["context"] else "4,096 or fewer"),
    ("at once", lambda row: row["slots"]), ("threads", lambda row: row["threads"] or "the node's"),
    ("memory", lambda row: format_bytes(row["memory"]) if row["memory"] else "estimated"),
    ("cards", lambda row: cards(row)),
    ("of cards", lambda row: None if cards(row) == "none" else format_bytes(row["card_memory"]) if row["card_memory"] else "estimated"),
    ("only on", lambda row: [*row["nodes"], *row["card_classes"], *(f"{name}={value}" for name, value in row["labels"].items())]),
    ("arguments", lambda row: " ".join(row["args"])), ("environment", lambda row: row["env"]),
]  # fmt: skip
"""Ways to run it, as a table."""


def cards(row: Row) -> str:
    """Of a profile: of each node, and over how many nodes."""
    count = row["tp"] or row["gpus_per_node"]
    told = f"{count}, each layer divided" if row["tp"] > 1 else str(count or "none")
    return f"{told}, on each of {row['pp']} nodes" if row["pp"] > 1 else told
