"""What became of one request, in the order of its time: drawn by the console and `llmgw request`. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Span:
    """Seconds from the request's head."""

    name: str
    start_s: float
    length_s: float


def spans(
    *,
    queue_s: float | None,
    first_token_s: float | None,
    total_s: float | None,
    forwarded: bool,
    schedule_s: float | None = None,
) -> tuple[Span, ...]:
    """Its time in parts that follow each other without a gap; none where no end is known (the gateway died with it).

    1. never forwarded: all of it is the gateway's
    2. `queue`: until it was sent to an engine, a provider or another node, the wait at nodes behind this one included; of that
       `schedule`: in which its place was looked for, where that was measured. Each is a sum: a request may be scheduled,
       wait, and be scheduled anew
    3. `first_token`: until the first token came, of a stream that had one; `answer`: until its end
    4. `upstream`: of any other, until its end
    """
    if total_s is None:
        return ()
    if not forwarded or queue_s is None:  # 1
        return (Span(name="gateway", start_s=0.0, length_s=total_s),)
    sent = min(queue_s, total_s)
    placed = min(schedule_s or 0.0, sent)
    found = [Span(name="queue", start_s=0.0, length_s=sent - placed)]  # 2
    if schedule_s is not None:
        found.append(Span(name="schedule", start_s=sent - placed, length_s=placed))
    if first_token_s is None:  # 4
        return (*found, Span(name="upstream", start_s=sent, length_s=total_s - sent))
    first = min(max(first_token_s, sent), total_s)  # 3: clocks of several nodes measured these
    found.append(Span(name="first_token", start_s=sent, length_s=first - sent))
    return (*found, Span(name="answer", start_s=first, length_s=total_s - first))
