"""Verification of game results from other machines.

The verification replays the recorded moves from the seed of the game.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from battlesnake_gym.engine.engine import NO_MOVE, make_games
from battlesnake_gym.rules import MOVES
from battlesnake_server.arena.referee import add_outcomes
from battlesnake_server.arena.tournament import GameResult, TournamentSettings

_ACTION_BY_LETTER = {move[0]: code for code, move in enumerate(MOVES)}


def verify_result(settings: TournamentSettings, result: GameResult) -> None:
    """Verify that ``result`` follows from its start position and its moves.

    Latencies, problems and the snakes' choice of moves cannot be verified.

    Raises:
        ValueError: If the result contradicts the moves.
    """
    spec, num_snakes = settings.game_spec, len(result.scheduled.seats)
    games = make_games(
        1,
        width=spec.width,
        height=spec.height,
        num_snakes=num_snakes,
        game=replace(spec.game, solo=num_snakes < 2),
        food_rng="official",
    )
    games.reset(np.array([result.scheduled.seed]))
    actions = np.full((max(map(len, result.moves)), 1, num_snakes), NO_MOVE, np.uint8)
    for seat, letters in enumerate(result.moves):
        actions[: len(letters), 0, seat] = [_ACTION_BY_LETTER[letter] for letter in letters]
    for action in actions[: spec.max_turns]:
        if games.over[0]:
            break
        games.step(action)
    last, finished = games.state(0), bool(games.over[0])
    seats, winner = add_outcomes(result.seats, last, result.moves, finished)
    expected = replace(result, turns=last.turn, finished=finished, winner=winner, seats=seats)
    if result != expected or not (finished or last.turn == spec.max_turns):
        raise ValueError(
            f"game {result.scheduled.number} of a machine at --ray-address does not follow from "
            "its moves; install the same version on all machines"
        )
