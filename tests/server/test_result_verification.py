"""Results from another machine: correct ones pass, and any changed field is detected."""

import functools
from collections.abc import Callable
from dataclasses import replace

import pytest

from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.rules import Settings
from battlesnake_server.arena.result_verification import verify_result
from battlesnake_server.arena.tournament import (
    GameResult,
    TournamentSettings,
    play_scheduled_game,
)

SNAKES = ("hungry", "cautious", "hunter", "safe-random")
SETUPS = [
    TournamentSettings(SNAKES, GameSpec(2, 7, 7, max_turns=60), move_time_ms=5),
    TournamentSettings(SNAKES, GameSpec(4, max_turns=60), seed=2, move_time_ms=5),
    TournamentSettings(SNAKES, GameSpec(2, 9, 7, "wrapped"), seed=3, timeout=2000),
    TournamentSettings(
        SNAKES,
        GameSpec(4, 11, 11, "royale", "royale", Settings(shrink_every_n_turns=5)),
        timeout=2000,
    ),
    TournamentSettings(
        SNAKES, GameSpec(2, 7, 7, "wrapped-constrictor", "sinkholes"), seed=5, move_time_ms=5
    ),
]
"""With and without referee, two and four snakes, ended by the rules and by the turn limit."""


@functools.cache
def correct() -> list[tuple[TournamentSettings, GameResult]]:
    """Play 40 games."""
    return [
        (setup, play_scheduled_game(setup, scheduled))
        for setup in SETUPS
        for scheduled in setup.missing_games(20)[:8]
    ]


def seat(**changes: Callable[..., object]) -> Callable[[GameResult], GameResult]:
    """Return a function that changes fields of the first snake."""

    def change_result(result: GameResult) -> GameResult:
        first, *others = result.seats
        new = {name: change(getattr(first, name)) for name, change in changes.items()}
        return replace(result, seats=[replace(first, **new), *others])  # type: ignore[arg-type]

    return change_result


CHANGES: dict[str, Callable[[GameResult], GameResult]] = {
    "the winner": lambda one: replace(one, winner=1 if one.winner is None else None),
    "who won": lambda one: replace(one, winner=(one.winner or 0) + 1),
    "a draw": lambda one: replace(one, finished=not one.finished, winner=None),
    "the turns": lambda one: replace(one, turns=one.turns + 1),
    "a missing last turn": lambda one: replace(
        one, turns=one.turns - 1, finished=False, winner=None, moves=[m[:-1] for m in one.moves]
    ),
    "a turn of elimination": seat(eliminated_on=lambda turn: turn + 1),
    "a cause": seat(cause=lambda cause: "" if cause else "wall-collision"),
    "a killer": seat(killer=lambda killer: 1 if killer is None else None),
    "a length": seat(length=lambda length: length + 1),
    "an opening": seat(opening=lambda letters: letters[::-1] + "x"),
}


def test_correct_results_pass() -> None:
    assert len(correct()) == 40
    assert {result.finished for _, result in correct()} == {False, True}
    for setup, result in correct():
        verify_result(setup, result)


@pytest.mark.parametrize("what", CHANGES)
def test_a_changed_result_is_detected(what: str) -> None:
    for setup, result in correct():
        with pytest.raises(ValueError, match=rf"game {result.scheduled.number}\b"):
            verify_result(setup, CHANGES[what](result))
