from __future__ import annotations

from cluster.domain.simulation.dice import Dice


def test_the_dice_are_splitmix64() -> None:
    dice = Dice(0)
    assert [dice.bits() for _ in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_the_dice_stay_within_their_bounds() -> None:
    dice = Dice(7)
    for _ in range(500):
        assert 0 <= dice.fraction() < 1
        assert 3 <= dice.whole(3, 5) <= 5
        assert 1.5 <= dice.between(1.5, 2.5) < 2.5
        assert dice.wait(10) >= 0
        assert len(set(dice.some("abcde", 3))) == 3
    assert not dice.chance(0.0)
    assert dice.chance(1.0)


def test_the_mean_of_waits_is_what_was_asked_for() -> None:
    dice = Dice(1)
    assert 9 < sum(dice.wait(10) for _ in range(5000)) / 5000 < 11
