"""Results from other machines, held to their moves: the rules play these again from the seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from battlesnake_gym.engine.engine import NO_MOVE, make_games
from battlesnake_gym.rules import MOVES, Game, State
from battlesnake_server.arena.referee import seat_records, winner_of
from battlesnake_server.arena.tournament import GameResult, ScheduledGame, TournamentSettings

_CODES = {move[0]: code for code, move in enumerate(MOVES)}


class ResultMismatchError(OSError):
    """A machine sent a result that is not what its moves lead to."""


def verify_result(setup: TournamentSettings, result: GameResult) -> None:
    """Raise `ResultMismatchError` where ``result`` is not what its moves lead to in its fixture.

    Latencies and problems follow from no rule; whether the snakes would make these moves is not
    asked.
    """
    last, finished = play_moves(setup, result.scheduled, result.moves)
    expected = replace(
        result,
        turns=last.turn,
        finished=finished,
        winner=winner_of(last, finished),
        seats=[
            replace(seat, latencies=asked.latencies, problems=asked.problems)
            for seat, asked in zip(seat_records(last, result.moves), result.seats, strict=True)
        ],
    )
    if result != expected or not (finished or last.turn == setup.max_turns):
        raise ResultMismatchError(
            f"game {result.scheduled.number} of a machine at --address does not follow from its "
            "moves; install one version everywhere"
        )


def play_moves(
    setup: TournamentSettings, fixture: ScheduledGame, moves: Sequence[str]
) -> tuple[State, bool]:
    """The last position of the game that begins as ``fixture``, and whether the rules ended it.

    ``moves`` are the first letters of each seat's moves.
    """
    snakes = len(fixture.seats)
    games = make_games(
        1,
        width=setup.width,
        height=setup.height,
        num_snakes=snakes,
        game=Game(setup.ruleset, setup.map, setup.settings, solo=snakes < 2),
        food="seeded",
    )
    games.reset(np.array([fixture.seed]))
    actions = np.full((max(map(len, moves)), 1, snakes), NO_MOVE, np.uint8)
    for seat, letters in enumerate(moves):
        actions[: len(letters), 0, seat] = [_CODES[letter] for letter in letters]
    for action in actions[: setup.max_turns]:
        if games.over[0]:
            break
        games.step(action)
    return games.state(0), bool(games.over[0])
