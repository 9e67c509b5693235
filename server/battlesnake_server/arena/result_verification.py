"""Verification of results from other machines.

A verification replays the moves of a game from the seed.
"""

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
    """Error raised if a result does not follow from the recorded moves."""


def verify_result(setup: TournamentSettings, result: GameResult) -> None:
    """Verify that ``result`` follows from its start position and its moves.

    Latencies and problems cannot be verified. It is also impossible to verify whether the snakes
    would choose these moves.

    Raises:
        ResultMismatchError: If the result does not follow.
    """
    last, finished = play_moves(setup, result.scheduled, result.moves)
    expected = replace(
        result,
        turns=last.turn,
        finished=finished,
        winner=winner_of(last, finished),
        seats=[
            replace(
                seat,
                latencies=received.latencies,
                problems=received.problems,
                error=received.error,
            )
            for seat, received in zip(seat_records(last, result.moves), result.seats, strict=True)
        ],
    )
    if result != expected or not (finished or last.turn == setup.max_turns):
        raise ResultMismatchError(
            f"game {result.scheduled.number} of a machine at --ray-address does not follow from "
            "its moves; install the same version on all machines"
        )


def play_moves(
    setup: TournamentSettings, scheduled: ScheduledGame, moves: Sequence[str]
) -> tuple[State, bool]:
    """Replay a game from its moves.

    Args:
        setup: The tournament's settings.
        scheduled: The game's seed and seats.
        moves: First letters of each seat's moves.

    Returns:
        The last position, and whether the rules ended the game.
    """
    snakes = len(scheduled.seats)
    games = make_games(
        1,
        width=setup.width,
        height=setup.height,
        num_snakes=snakes,
        game=Game(setup.ruleset, setup.map, setup.settings, solo=snakes < 2),
        food_rng="official",
    )
    games.reset(np.array([scheduled.seed]))
    actions = np.full((max(map(len, moves)), 1, snakes), NO_MOVE, np.uint8)
    for seat, letters in enumerate(moves):
        actions[: len(letters), 0, seat] = [_CODES[letter] for letter in letters]
    for action in actions[: setup.max_turns]:
        if games.over[0]:
            break
        games.step(action)
    return games.state(0), bool(games.over[0])
