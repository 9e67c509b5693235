"""Verification of game results from other machines.

The verification replays the recorded moves from the seed of the game.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from battlesnake_gym.engine.engine import NO_MOVE, make_games
from battlesnake_gym.rules import MOVES, State
from battlesnake_server.arena.referee import add_outcomes
from battlesnake_server.arena.tournament import GameResult, ScheduledGame, TournamentSettings

_ACTION_BY_LETTER = {move[0]: code for code, move in enumerate(MOVES)}


def verify_result(settings: TournamentSettings, result: GameResult) -> None:
    """Verify that ``result`` follows from its start position and its moves.

    Latencies, problems and the snakes' choice of moves cannot be verified.

    Raises:
        ValueError: If the result contradicts the moves.
    """
    last, finished = _replay_moves(settings, result.scheduled, result.moves)
    seats, winner = add_outcomes(result.seats, last, result.moves, finished)
    expected = replace(result, turns=last.turn, finished=finished, winner=winner, seats=seats)
    if result != expected or not (finished or last.turn == settings.game_spec.max_turns):
        raise ValueError(
            f"game {result.scheduled.number} of a machine at --ray-address does not follow from "
            "its moves; install the same version on all machines"
        )


def _replay_moves(
    settings: TournamentSettings, scheduled: ScheduledGame, moves: Sequence[str]
) -> tuple[State, bool]:
    """Replay a game from its moves.

    Args:
        settings: The tournament's settings.
        scheduled: The game's seed and seats.
        moves: Moves of each seat as letters (`referee.move_letters`).

    Returns:
        The last position, and whether the rules ended the game.
    """
    snakes, spec = len(scheduled.seats), settings.game_spec
    games = make_games(
        1,
        width=spec.width,
        height=spec.height,
        num_snakes=snakes,
        game=replace(spec.game, solo=snakes < 2),
        food_rng="official",
    )
    games.reset(np.array([scheduled.seed]))
    actions = np.full((max(map(len, moves)), 1, snakes), NO_MOVE, np.uint8)
    for seat, letters in enumerate(moves):
        actions[: len(letters), 0, seat] = [_ACTION_BY_LETTER[letter] for letter in letters]
    for action in actions[: spec.max_turns]:
        if games.over[0]:
            break
        games.step(action)
    return games.state(0), bool(games.over[0])
