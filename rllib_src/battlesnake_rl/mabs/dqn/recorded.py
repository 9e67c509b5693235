"""Recorded games to learn from: the moves of the snakes that won, in a replay of their own.

The positions are those of the records, and what a move led to is played again by the rules, so
that observations, masks and rewards are the environment's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.boards.board import Board
from battlesnake_gym.records.replay import SUFFIXES
from battlesnake_gym.records.replay import Replay as Game
from battlesnake_gym.rules import MOVES
from battlesnake_rl.mabs.dqn.replay_buffer import Fragment, ReplayBuffer
from battlesnake_rl.mabs.dqn.transitions import Turns, build_fragment
from battlesnake_rl.mabs.play.environment import env_options, make_vector


def learn(
    folder: Path,
    env_config: Mapping[str, Any],
    *,
    n_step: int,
    gamma: float,
    reward_scale: float,
    seed: int,
) -> ReplayBuffer:
    """All that snakes did which won one of the games in ``folder`` (and in folders of it).

    Raises:
        ValueError: there is none, one is of other games than ``env_config`` describes, or what a
            snake sees there cannot be made of positions alone.
    """
    check(env_config)
    fragments = [
        fragment
        for path in _files(folder)
        if (fragment := _of_winner(path, env_config, n_step, gamma, reward_scale)) is not None
    ]
    if not fragments:
        raise ValueError(f"no snake has won any of the games in {folder}; give others")
    capacity = sum(map(len, fragments))
    replay = ReplayBuffer(capacity, fragments[0].frames.shape[1:], alpha=0.0, seed=seed)
    for fragment in fragments:
        replay.add(fragment)
    return replay


def check(env_config: Mapping[str, Any]) -> None:
    """Refuse observations that a position does not give.

    Raises:
        ValueError: they are of several turns, or depend on where a snake faces.
    """
    seen = env_options(env_config).encoder
    if seen.frames > 1 or seen.relative:
        raise ValueError(
            "demonstrations.games needs observations of one position and moves that do not depend "
            f"on where a snake faces, got {seen.to_dict()}"
        )


def _files(folder: Path) -> Iterator[Path]:
    if not folder.is_dir():
        raise ValueError(f"demonstrations.games: there is no folder {folder}")
    found = sorted(path for path in folder.rglob("*") if path.name.endswith(SUFFIXES))
    if not found:
        raise ValueError(
            f"demonstrations.games: there is no recorded game in {folder}; their names end in "
            f"{' or '.join(SUFFIXES)}"
        )
    yield from found


def _of_winner(
    path: Path, env_config: Mapping[str, Any], n_step: int, gamma: float, reward_scale: float
) -> Fragment | None:
    """What the snake saw and did that won a game; None if none did."""
    game = Game.load(path)
    *boards, last = game.boards()
    if len(last.living) != 1 or not boards:
        return None
    winner = last.living[0].id
    _check_same(path, boards[0], env_config)
    # Each turn of the game is on a board of its own, however long the game was.
    vector = make_vector(len(boards), dict(env_config) | {"max_turns": None})
    each = np.arange(len(boards))
    seats = [[snake.id for snake in board.snakes].index(winner) for board in boards]
    turns = Turns.empty(len(boards), 1, 1, vector.single_observation_space.shape)
    seen, infos = vector.reset(seed=1, options={"states": boards})
    turns.frames[:-1, 0, 0] = seen[each, seats]
    turns.action_mask[:-1, 0, 0] = infos["action_mask"][each, seats]
    actions = _actions(game, boards, vector.num_snakes)
    seen, rewards, terminations, truncations, infos = vector.step(actions)
    turns.frames[-1, 0, 0] = seen[-1, seats[-1]]
    turns.action_mask[-1, 0, 0] = infos["action_mask"][-1, seats[-1]]
    turns.actions[:, 0, 0] = actions[each, seats]
    turns.rewards[:, 0, 0] = rewards[each, seats] * reward_scale
    turns.acted[:, 0, 0] = infos["acted"][each, seats]
    turns.terminateds[:, 0, 0] = terminations[each, seats]
    turns.truncateds[:, 0, 0] = truncations[each, seats]
    return build_fragment(turns, n_step=n_step, gamma=gamma)


def _actions(game: Game, boards: Sequence[Board], seats: int) -> NDArray[np.uint8]:
    """The moves of each turn (T, S); those of the dead say nothing."""
    words = list(MOVES)
    actions = np.zeros((len(boards), seats), dtype=np.uint8)
    for number, (board, turn) in enumerate(zip(boards, game.turns, strict=True)):
        for seat, snake in enumerate(board.snakes):
            actions[number, seat] = words.index(turn.moves.get(snake.id, words[0]))
    return actions


def _check_same(path: Path, board: Board, env_config: Mapping[str, Any]) -> None:
    wanted = env_options(env_config)
    most = int(np.max(wanted.num_snakes))
    size = (wanted.width, wanted.height)
    if (board.width, board.height) != size or len(board.snakes) > most:
        raise ValueError(
            f"{path} is a game of {len(board.snakes)} snakes on {board.width}x{board.height}, but "
            f"training is for {most} on {size[0]}x{size[1]}; give other games, or set map_size and "
            "num_agents"
        )
