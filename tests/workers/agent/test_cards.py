"""Cards: whose memory it is, which must not be used, and a driver that hangs, fails or tells nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.wire import CardReport
from tests.fakes.nvml import GIB, Card, Nvml
from tests.processes import running
from workers.agent import cards as module
from workers.agent import patience
from workers.agent.cards import Cards, Health, Reader, driver_present, foreign_memory, problem_of
from workers.agent.kernel_log import KernelLog
from workers.agent.process import DATA, REPLICA


def quiet(tmp_path: Path) -> KernelLog:
    return KernelLog(tmp_path / "no-kmsg")


@contextmanager
def an_engine(folder: Path) -> Iterator[int]:
    """Pid of a process that carries the marks of an engine of `folder`."""
    environ = {**os.environ, DATA: str(folder), REPLICA: "rep_1"}
    argv = [sys.executable, "-c", "input()"]
    with running(argv, env=environ, stdin=subprocess.PIPE, start_new_session=True) as child:
        yield child.pid
    assert child.stdin
    child.stdin.close()


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[int]:
    with an_engine(tmp_path) as pid:
        yield pid


def test_a_card_is_read_with_all_that_the_driver_tells(tmp_path: Path) -> None:
    nvml = Nvml(Card(used=3 * GIB))
    assert Reader(tmp_path, nvml=nvml, kernel=quiet(tmp_path)).read() == (
        CardReport(
            uuid="GPU-1", name="NVIDIA H100 80GB HBM3", memory_total=80 * GIB, memory_used=3 * GIB,
            memory_foreign=3 * GIB, temperature_c=41, power_w=90.0, utilisation=0.12,
        ),
    )  # fmt: skip
    assert nvml.opened == 0  # who holds NVML open stands in the way of a reset


def test_what_the_driver_does_not_tell_is_absent_never_zero(tmp_path: Path) -> None:
    bare = Card(
        processes=None, action=None, remapped=None, uncorrected=None, temperature=None, milliwatts=None, busy=None
    )
    (found,) = Reader(tmp_path, nvml=Nvml(bare), kernel=quiet(tmp_path)).read()
    assert (found.temperature_c, found.power_w, found.utilisation) == (None, None, None)
    assert found.memory_foreign == 0  # nothing is used, and no engine of ours runs
    assert found.problem == ""


def test_f09_memory_of_a_foreign_program_is_told_at_the_next_reading_and_gone_with_it(
    tmp_path: Path, engine: int
) -> None:
    card = Card(used=20 * GIB, processes=[(engine, 20 * GIB)])
    reader = Reader(tmp_path, nvml=Nvml(card), kernel=quiet(tmp_path))
    assert [item.memory_foreign for item in reader.read()] == [0]
    card.used, card.processes = 79 * GIB, [(engine, 20 * GIB), (os.getpid(), 59 * GIB)]
    assert [item.memory_foreign for item in reader.read()] == [59 * GIB]
    assert reader.engines == {"rep_1": 20 * GIB}
    card.used, card.processes = 20 * GIB, [(engine, 20 * GIB)]
    assert [item.memory_foreign for item in reader.read()] == [0]


def test_f41_memory_of_an_engine_that_has_ended_is_nobodys_room_until_it_is_back(tmp_path: Path, engine: int) -> None:
    card = Card(used=30 * GIB, processes=[])  # the process is gone, its memory is not back yet
    reader = Reader(tmp_path, nvml=Nvml(card), kernel=quiet(tmp_path))
    assert [item.memory_foreign for item in reader.read()] == [30 * GIB]
    card.used = 0
    assert [item.memory_foreign for item in reader.read()] == [0]


def test_an_older_driver_that_mixes_in_its_own_part_is_judged_by_processes(tmp_path: Path, engine: int) -> None:
    card = Card(version_2=False, used=8 * GIB, processes=[(engine, 5 * GIB), (os.getpid(), 2 * GIB)])
    (found,) = Reader(tmp_path, nvml=Nvml(card), kernel=quiet(tmp_path)).read()
    assert found.memory_foreign == 2 * GIB


NOBODY = 1 << 22
"""More than a pid can be."""


def test_a_pid_that_nobody_here_knows_makes_it_untold_unless_no_engine_runs(tmp_path: Path) -> None:
    card = Card(used=8 * GIB, processes=[(NOBODY, 8 * GIB)])
    reader = Reader(tmp_path, nvml=Nvml(card), kernel=quiet(tmp_path))
    assert [item.memory_foreign for item in reader.read()] == [8 * GIB]
    with an_engine(tmp_path):
        assert [item.memory_foreign for item in reader.read()] == [None]


@pytest.mark.parametrize(
    ("used", "processes", "foreign"),
    [
        (None, [], None),
        (5, None, None),
        (5, [], 5),
        (5, [(1, 3)], 2),
        (5, [(1, 9)], 0),  # the sums are of different moments
        (5, [(1, None)], None),  # ours, and nobody says how much
        (5, [(2, None)], 5),  # another's
        (5, [(3, 1)], None),  # nobody here knows that pid
    ],
)
def test_foreign_memory(used: int | None, processes: list[tuple[int, int | None]] | None, foreign: int | None) -> None:
    assert foreign_memory(used, processes, {1: True, 2: False, 3: None}.__getitem__) == foreign


@pytest.mark.parametrize(
    ("health", "words"),
    [
        (Health(), ""),
        (Health(lost=True, action=0), "fallen off the bus"),
        (Health(action=1), "asks for a reset"),
        (Health(action=2, xid=79), "restart of the machine (Xid 79)"),
        (Health(action=4), "empty and reset"),
        (Health(action=3), ""),  # peer-to-peer only
        (Health(action=0, remap_failed=True), "row remap failure"),
        (Health(xid=48), "Xid 48"),
        (Health(action=0, xid=48, uncorrected=2), ""),  # the driver asks for nothing: it is over and done with
        (Health(uncorrected=2), "2 uncorrectable memory errors (ECC)"),
        (Health(uncorrected=0), ""),
    ],
)
def test_the_rules_by_which_a_card_is_out(health: Health, words: str) -> None:
    found = problem_of(health)
    assert words in found
    assert bool(found) == bool(words)


def test_f68_one_of_eight_cards_with_errors_is_out_and_the_others_are_not(tmp_path: Path) -> None:
    eight = [Card(uuid=f"GPU-{n}", bus=f"00000000:{n:02X}:00.0", action=None) for n in range(8)]
    eight[5].uncorrected = 1
    kernel = quiet(tmp_path)
    found = Reader(tmp_path, nvml=Nvml(*eight), kernel=kernel).read()
    assert [card.uuid for card in found if card.problem] == ["GPU-5"]
    eight[5].uncorrected = 0
    kernel.take("4,1,2,-;NVRM: Xid (PCI:0000:03:00): 79, pid=1, name=x, GPU has fallen off the bus.")
    kernel.take("4,1,3,-;NVRM: Xid (PCI:0000:04:00): 31, pid=1, name=x, MMU Fault")
    found = Reader(tmp_path, nvml=Nvml(*eight), kernel=kernel).read()
    assert {card.uuid: card.problem for card in found if card.problem} == {
        "GPU-3": "Xid 79 in the kernel's log: reset it, then load the driver anew"
    }


def test_rules_can_be_switched_off_and_a_card_that_is_gone_is_out_all_the_same(tmp_path: Path) -> None:
    nvml = Nvml(Card(action=1, uncorrected=3))
    reader = Reader(tmp_path, nvml=nvml, kernel=quiet(tmp_path), rules=False)
    assert [card.problem for card in reader.read()] == [""]
    nvml.cards[0].lost = True
    assert "off the bus" in reader.read()[0].problem


def test_a_card_that_fell_off_the_bus_stays_in_the_report_and_is_out(tmp_path: Path) -> None:
    nvml = Nvml(Card(uuid="GPU-0"), Card(uuid="GPU-1", bus="00000000:5E:00.0"))
    reader = Reader(tmp_path, nvml=nvml, kernel=quiet(tmp_path))
    reader.read()
    nvml.cards[0].lost = True
    found = reader.read()
    assert [(card.uuid, "off the bus" in card.problem, card.memory_total) for card in found] == [
        ("GPU-0", True, 80 * GIB),
        ("GPU-1", False, 80 * GIB),
    ]
    del nvml.cards[0]  # after the driver has counted anew
    assert {card.uuid: bool(card.problem) for card in reader.read()} == {"GPU-1": False, "GPU-0": True}


def test_cards_whose_driver_cannot_be_opened_are_known_and_out_of_use(tmp_path: Path) -> None:
    nvml = Nvml(Card())
    read = Reader(tmp_path, nvml=nvml, kernel=quiet(tmp_path)).read
    cards, by_hand = Cards(read), Cards(read, rules=False)
    first = cards.now()
    assert (by_hand.now(), cards.problem) == (first, "")
    nvml.broken = True
    assert by_hand.now() == first  # where rules are off only people put a card out
    assert cards.now() == tuple(replace(card, problem=cards.problem) for card in first)
    assert cards.problem.startswith("the GPU driver cannot be read (")
    nvml.broken = False
    assert (cards.now(), cards.problem) == (first, "")


def test_the_kernel_log_forgets_with_a_new_driver_and_reads_odd_places() -> None:
    log = KernelLog(Path("/nowhere"))
    log.read()  # not allowed: nothing is known, nothing breaks
    log.take("NVRM: Xid (PCI:0000:3b:00): 48, x\nNVRM: Xid (PCI:0001:3b:00.0): 62, y\nXid of somebody else")
    assert log.xids("00000000:3B:00.0") == [48]
    assert log.xids("00000001:3B:00.0") == [62]
    log.take("NVRM: Xid (PCI:0000:3b:00): 45, y\n" * 1000)  # what was fatal stays known, and nothing grows
    assert log.xids("00000000:3B:00.0") == [48, 45]
    log.take("NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.95.05")
    assert log.xids("00000000:3B:00.0") == []


def test_the_kernel_log_is_read_on_from_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "kmsg"
    path.write_text("NVRM: Xid (PCI:0000:3b:00): 48, x\n")
    log = KernelLog(path)
    log.read()
    log.read()
    assert log.xids("00000000:3B:00.0") == [48]


def test_without_a_driver_there_are_no_cards_and_no_error() -> None:
    if driver_present():
        pytest.skip("this machine has a driver")
    assert Cards().now() == ()


def test_a_hanging_driver_costs_fresh_figures_only_and_heals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "TIMEOUT", 60.0)
    go, card = threading.Event(), CardReport(uuid="GPU-1")
    hang = [False]

    def read() -> tuple[CardReport, ...]:
        if hang[0]:
            go.wait()
        return (card,)

    cards = Cards(read)
    assert (cards.now(), cards.problem) == ((card,), "")
    hang[0] = True
    monkeypatch.setattr(patience, "TIMEOUT", 0.05)
    assert cards.now() == (card,)  # it may be slow
    assert "does not answer" in cards.problem
    monkeypatch.setattr(module, "HANGS", 0.0)
    (out,) = cards.now()
    assert (out.uuid, out.problem) == ("GPU-1", cards.problem)
    hang[0] = False
    go.set()
    monkeypatch.setattr(patience, "TIMEOUT", 60.0)
    assert (cards.now(), cards.problem) == ((card,), "")


def test_a_driver_that_fails_is_logged_and_no_card_is_made_up() -> None:
    def read() -> tuple[CardReport, ...]:
        raise RuntimeError("driver/library version mismatch")

    assert Cards(read).now() == ()
