"""Short sample games of a trained policy, as replays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from battlesnake_gym.boards.board import Board
from battlesnake_gym.env.seat_memory import ScoreFn, SeatMemory
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import MOVES, Game
from battlesnake_heuristics.search.evaluation import Evaluation
from battlesnake_heuristics.search.search import Search
from battlesnake_rl.mabs.envs.env_factory import make_vector_env

_MAX_SAMPLE_GAME_TURNS = 150
"""Maximum length of a sample game, in turns."""

_NODES_PER_MOVE = 100
"""Number of nodes per move of a search in a sample game."""


def play_sample_game(values: ScoreFn, env_config: Mapping[str, Any], seed: int) -> Replay:
    """Play a game in which a policy plays all seats greedily.

    The games' action mask applies.
    """
    vector = make_vector_env(1, {**env_config, "max_turns": _MAX_SAMPLE_GAME_TURNS})
    observations, infos = vector.reset(seed=seed)
    board = Board.from_state(vector.games.state(0), vector.game)
    replay, memory = Replay(board), SeatMemory(vector)
    for _ in range(_MAX_SAMPLE_GAME_TURNS):
        alive = infos["alive"][0]
        if not alive.any():
            break
        said = memory.call(values, infos["alive"], observations[0][alive])
        actions = np.zeros((1, len(alive)), dtype=np.uint8)
        actions[0, alive] = np.where(infos["action_mask"][0][alive], said, -np.inf).argmax(-1)
        facing = vector.games.facing[0]
        chosen = vector.observation.absolute_actions(actions[0].astype(np.int64), facing)
        moves = {
            snake.id: MOVES[action]
            for snake, action in zip(replay.first.snakes, chosen, strict=True)
        }
        observations, _, _, _, infos = vector.step(actions)
        replay.append(moves, after=vector.games.state(0))
    return replay


def play_search_duel(evaluation: Evaluation | None, seed: int) -> Replay:
    """Play a duel on an 11x11 board between two snakes that use the same search.

    The search uses the handcrafted evaluation if ``evaluation`` is None.
    """
    board = Board.new(11, 11, 2, game=Game(seed=seed))
    search = Search(evaluation=evaluation, nodes=_NODES_PER_MOVE)
    snakes = {snake.id: search for snake in board.snakes}
    return Replay.from_play(board, snakes, max_turns=_MAX_SAMPLE_GAME_TURNS)
