"""The spool is shipped in order, each closed record at least once, and nothing is deleted that is still needed."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.services.calls import MAX_BODY
from cluster.wire import UsageBatch, to_dict
from workers.agent.usage import LONGEST_RECORD, REFUSALS_TO_GIVE_UP, Closed, Spool, read_lines


def line(op: str, number: int) -> bytes:
    record = {"record_id": f"rec_{number}", "request_id": f"req_{number}"}
    return b'{"op":"%s","record":' % op.encode() + orjson.dumps(record) + b"}\n"


def segment(folder: Path, start: int, *lines: bytes) -> Path:
    path = folder / f"spool-{start:020d}-boot.jsonl"
    with path.open("ab") as file:
        file.writelines(lines)
    return path


def ids(spool: Spool) -> list[str]:
    batch = spool.next_batch()
    return [item.record_id for item in batch.closed] if batch else []


def ship_all(spool: Spool) -> list[str]:
    shipped = []
    while batch := spool.next_batch():
        shipped += [item.record_id for item in batch.closed]
        assert spool.committed(batch, {item.record_id for item in batch.closed})
    return shipped


def test_closed_records_go_in_order_over_segments_and_finished_segments_go(tmp_path: Path) -> None:
    old = segment(tmp_path, 1, line("open", 1), line("open", 2), line("close", 2))
    new = segment(tmp_path, 2, line("close", 1), line("open", 3), line("close", 3))
    spool = Spool(tmp_path)
    assert spool.waiting() == 3
    assert ship_all(spool) == ["rec_2", "rec_1", "rec_3"]
    assert not old.exists()
    assert new.exists()  # the newest stays: the gateway still writes it
    assert spool.waiting() == 0


def test_a_segment_stays_while_a_record_of_it_is_open_and_so_do_those_behind_it(tmp_path: Path) -> None:
    first = segment(tmp_path, 1, line("open", 1), line("open", 2), line("close", 2))
    second = segment(tmp_path, 2, line("open", 3), line("close", 3))
    third = segment(tmp_path, 3, line("open", 4), line("close", 4))
    spool = Spool(tmp_path)
    ship_all(spool)
    assert first.exists()
    assert second.exists()
    segment(tmp_path, 3, line("close", 1))
    assert ship_all(spool) == ["rec_1"]
    assert not first.exists()
    assert not second.exists()
    assert third.exists()


def test_a_new_agent_goes_on_where_the_last_one_was_and_knows_what_is_open(tmp_path: Path) -> None:
    first = segment(tmp_path, 1, line("open", 1), line("open", 2), line("close", 2))
    segment(tmp_path, 2, line("open", 3))
    ship_all(Spool(tmp_path))
    again = Spool(tmp_path)
    assert ids(again) == []
    assert first.exists()  # rec_1 is open in it
    segment(tmp_path, 2, line("close", 3), line("close", 1))
    assert ship_all(again) == ["rec_3", "rec_1"]
    assert not first.exists()


def test_a_new_agent_knows_what_was_left_open_in_one_segment_and_closed_in_the_next(tmp_path: Path) -> None:
    first = segment(tmp_path, 1, line("open", 1), line("close", 1))
    spool = Spool(tmp_path)
    for name in ("rec_1", "rec_2"):
        batch = spool.next_batch()
        assert batch is not None
        assert spool.committed(batch, {name})
        if name == "rec_1":
            segment(tmp_path, 1, line("open", 2))
            segment(tmp_path, 2, line("close", 2))
    segment(tmp_path, 2, line("open", 3), line("close", 3))  # the gateway writes on, and the agent starts anew
    assert ship_all(Spool(tmp_path)) == ["rec_3"]
    assert not first.exists()


def test_losing_the_place_ships_again_and_nothing_else(tmp_path: Path) -> None:
    segment(tmp_path, 1, line("open", 1), line("close", 1))
    ship_all(Spool(tmp_path))
    (tmp_path / "shipped.json").write_text("torn {")
    assert ship_all(Spool(tmp_path)) == ["rec_1"]


def test_what_is_not_committed_is_offered_again(tmp_path: Path) -> None:
    segment(tmp_path, 1, line("open", 1), line("close", 1))
    spool = Spool(tmp_path)
    assert ids(spool) == ids(spool) == ["rec_1"]
    batch = spool.next_batch()
    assert batch
    assert not spool.committed(batch, set())
    assert ids(spool) == ["rec_1"]


def test_a_record_that_is_refused_again_and_again_is_put_aside_and_the_next_gets_through(tmp_path: Path) -> None:
    segment(tmp_path, 1, line("close", 1), line("close", 2))
    spool = Spool(tmp_path)
    for _ in range(REFUSALS_TO_GIVE_UP):
        batch = spool.next_batch()
        assert batch
        spool.committed(batch, {"rec_2"})
    assert spool.next_batch() is None
    assert b"rec_1" in (tmp_path / "refused.jsonl").read_bytes()
    segment(tmp_path, 1, line("close", 3))
    assert ids(spool) == ["rec_3"]


def test_a_record_that_the_controllers_refuse_is_put_aside_at_once(tmp_path: Path) -> None:
    segment(tmp_path, 1, line("close", 1), line("close", 2))
    spool = Spool(tmp_path)
    batch = spool.next_batch()
    assert batch
    assert spool.committed(batch, {"rec_1"}, {"rec_2"})
    assert spool.next_batch() is None
    aside = tmp_path / "refused.jsonl"
    assert [orjson.loads(text)["record_id"] for text in aside.read_bytes().splitlines()] == ["rec_2"]
    assert aside.stat().st_mode & 0o777 == 0o600


def test_a_record_that_no_controller_takes_for_its_length_is_put_aside_and_holds_up_none(tmp_path: Path) -> None:
    def long(number: int, size: int) -> bytes:
        return line("close", number).replace(b'"req_', b'"' + b"x" * size + b"req_")

    segment(tmp_path, 1, line("close", 1), long(2, 3 << 20), line("close", 3), long(4, LONGEST_RECORD))
    segment(tmp_path, 1, *(long(number, LONGEST_RECORD - 200) for number in range(5, 40)))
    spool = Spool(tmp_path)
    shipped = []
    while batch := spool.next_batch():
        assert len(orjson.dumps(to_dict(UsageBatch(node_id="node_1", records=batch.records)))) < MAX_BODY
        shipped += [record["record_id"] for record in batch.records]
        assert spool.committed(batch, {record["record_id"] for record in batch.records})
    assert shipped == [f"rec_{number}" for number in (1, 3, *range(5, 40))]
    aside = (tmp_path / "refused.jsonl").read_bytes().splitlines()
    assert [orjson.loads(record)["record_id"] for record in aside] == ["rec_2", "rec_4"]


@pytest.mark.parametrize(
    "torn", [b'{"op":"close","rec', b"\n", b"null\n", b'{"op":"close","record":{"record_id":7}}\n', b"\xff\xfe\n"]
)
def test_torn_lines_are_skipped_and_an_unfinished_last_line_waits(tmp_path: Path, torn: bytes) -> None:
    segment(tmp_path, 1, line("close", 1), torn)
    spool = Spool(tmp_path)
    assert ship_all(spool) == ["rec_1"]
    if not torn.endswith(b"\n"):
        segment(tmp_path, 1, b"\n", line("close", 2))
        assert ship_all(spool) == ["rec_2"]


def test_batches_are_bounded(tmp_path: Path) -> None:
    segment(tmp_path, 1, *(line("close", number) for number in range(1201)))
    spool = Spool(tmp_path)
    sizes = []
    while batch := spool.next_batch():
        sizes.append(len(batch.closed))
        spool.committed(batch, {item.record_id for item in batch.closed})
    assert sum(sizes) == 1201
    assert max(sizes) <= 500


@given(
    st.lists(st.tuples(st.sampled_from(["open", "close"]), st.integers(0, 20)), max_size=30),
    st.lists(st.tuples(st.integers(1, 900), st.integers(1, 5)), min_size=1, max_size=8),
)
def test_however_a_segment_is_cut_into_reads_the_same_lines_come_out(
    items: list[tuple[str, int]], cuts: list[tuple[int, int]]
) -> None:
    text = b"".join(line(op, number) for op, number in items)
    whole = read_lines(text, 0, most=1000)
    opened: list[str] = []
    closed: list[Closed] = []
    at = 0
    for length, most in [*cuts, *[(len(text), 3)] * len(items)]:  # reads of any length, then enough of them
        part = read_lines(text[at : at + length], at, most=most)
        opened += part.opened
        closed += part.closed
        at = part.end
    assert (tuple(opened), tuple(closed), at) == (whole.opened, whole.closed, len(text))
