"""Results of another machine: honest ones pass, and whatever is changed in one is found."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from battlesnake_gym.rules import Settings
from battlesnake_server.arena.result_verification import WrongResultError, check
from battlesnake_server.arena.tournament import Result, Setup, play_fixture, schedule

SNAKES = ("hungry", "cautious", "hunter", "safe-random")
SETUPS = [
    Setup(SNAKES, 2, 7, 7, milliseconds=5, max_turns=60),
    Setup(SNAKES, 4, seed=2, milliseconds=5, max_turns=60),
    Setup(SNAKES, 2, 9, 7, "wrapped", seed=3, timeout=2000),
    Setup(SNAKES, 4, 11, 11, "royale", "royale", Settings(shrink_every_n_turns=5), timeout=2000),
    Setup(SNAKES, 2, 7, 7, "wrapped-constrictor", "sinkholes", seed=5, milliseconds=5),
]
"""With the referee and without, of two and four, ended by the rules and by the limit."""


@functools.cache
def honest() -> list[tuple[Setup, Result]]:
    """A hundred games."""
    return [
        (setup, play_fixture(setup, fixture))
        for setup in SETUPS
        for fixture in itertools.islice(schedule(4, setup.per_game, 20, setup.seed), 20)
    ]


def seat(**changes: Callable[..., object]) -> Callable[[Result], Result]:
    """Changes fields of the first snake."""

    def doctor(result: Result) -> Result:
        first, *others = result.seats
        new = {name: change(getattr(first, name)) for name, change in changes.items()}
        return replace(result, seats=[replace(first, **new), *others])  # type: ignore[arg-type]

    return doctor


DOCTORS: dict[str, Callable[[Result], Result]] = {
    "the winner": lambda one: replace(one, winner=1 if one.winner is None else None),
    "who won": lambda one: replace(one, winner=(one.winner or 0) + 1),
    "a draw": lambda one: replace(one, finished=not one.finished, winner=None),
    "the turns": lambda one: replace(one, turns=one.turns + 1),
    "an end left out": lambda one: replace(
        one, turns=one.turns - 1, finished=False, winner=None, moves=[m[:-1] for m in one.moves]
    ),
    "a place": seat(eliminated_on=lambda turn: turn + 1),
    "an escape": seat(cause=lambda cause: "" if cause else "wall-collision"),
    "a killer": seat(killer=lambda killer: 1 if killer is None else None),
    "a length": seat(length=lambda length: length + 1),
    "an opening": seat(opening=lambda letters: letters[::-1] + "x"),
}


def test_honest_results_pass() -> None:
    assert len(honest()) == 100
    assert {result.finished for _, result in honest()} == {False, True}
    for setup, result in honest():
        check(setup, result)


@pytest.mark.parametrize("what", DOCTORS)
def test_a_doctored_result_is_found(what: str) -> None:
    for setup, result in honest():
        with pytest.raises(WrongResultError, match=f"game {result.fixture.number} of a machine"):
            check(setup, DOCTORS[what](result))
