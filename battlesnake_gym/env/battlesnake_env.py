"""Gymnasium environment ``battlesnake_gym:Battlesnake-v0`` for one learner.

>>> import gymnasium
>>> env = gymnasium.make("battlesnake_gym:Battlesnake-v0", opponents=[], width=7, height=7)
>>> observation, info = env.reset(seed=1)
>>> observation.shape, info["board"].you.id
((10, 7, 7), 'snake_0')
>>> observation, reward, terminated, truncated, info = env.step(info["action_mask"].argmax())
>>> info["board"].turn
1
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium.spaces import Discrete

from battlesnake_gym.boards.board import Board
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.env.seat_memory import ActFn
from battlesnake_gym.env.seated_opponents import Opponent, check_opponents, num_seats
from battlesnake_gym.env.single_game import (
    RENDER_FPS,
    RENDER_MODES,
    Frame,
    SingleGame,
    action_index,
)
from battlesnake_gym.game_spec import IntPerGame
from battlesnake_gym.rules import CAUSES, MOVES, State


class BattlesnakeEnv(gymnasium.Env[npt.NDArray[np.uint8], np.int64]):
    """Environment with one game, in which one learner plays against opponents.

    An episode ends (``terminated``) when the learner's snake is eliminated or the game is over.
    In every game, all snakes are assigned to random seats. Without opponents, the game is ``solo``.

    Each ``info`` contains:

    * ``action_mask``: int8 [4], 1 for allowed moves;
    * ``board``: the `Board` with the learner as ``you``;
    * ``seat``: the learner's seat;
    * ``seed``: the seed of the game, from which a policy could predict future food;
    * ``cause``: the cause of the learner's elimination, one of `rules.CAUSES`; ``""`` for a living
      learner.

    Args:
        opponents: Opponents, as registered names, policy files, run directories, "shipped" for the
            default policy, "past" for the policies from `add_past_self`, or strategies. Strategies
            receive a board without the seed, and their time is unlimited.
        width: Board width in cells, as in `config.EnvConfig`.
        height: Board height in cells, as in `config.EnvConfig`.
        num_snakes: Number of snakes; each game draws ``num_snakes - 1`` opponents with replacement.
            None means that all opponents play.
        render_mode: "ansi" (text), "rgb_array" (uint8 [height, width, 3]) or "human" (writes each
            position to the terminal).
        **options: Further fields of `config.EnvConfig`; ``food_rng`` is "official" by default.

    Raises:
        ValueError: If an argument is invalid.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": RENDER_FPS}  # noqa: RUF012

    def __init__(
        self,
        opponents: Sequence[Opponent] = ("hungry",),
        width: IntPerGame = EnvConfig.width,
        height: IntPerGame = EnvConfig.height,
        *,
        num_snakes: int | None = None,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.opponents = check_opponents(opponents)
        self._draw = num_snakes is not None
        seats = num_seats(self.opponents, num_snakes, options)
        sizes = {"num_snakes": seats, "width": width, "height": height}
        self._game = SingleGame(sizes | options, self.opponents, render_mode)
        self.render_mode = render_mode
        self.observation = self._game.vector.observation
        self.observation_space = self._game.vector.single_observation_space
        self.action_space = Discrete(len(MOVES))
        self.seat = 0

    def add_past_self(self, policy: ActFn) -> None:
        """Add an opponent "past"; see `vector_env.BattlesnakeVectorEnv.add_past_self`.

        Environments from ``gymnasium.make`` provide this method as ``env.unwrapped.add_past_self``.

        Args:
            policy: Function from observations and action masks to actions.

        Raises:
            ValueError: If "past" is not an opponent.
        """
        self._game.add_past_self(policy)

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        """Start a new game.

        Args:
            seed: Seed of this game and of the following games; None continues the previous
                sequence.
            options: ``{"states": [...]}`` selects a random start position from a list. Each
                position is a `State`, a `Board` or the JSON body of a /move request. The learner
                plays the snake ``you`` of a `Board` if this snake is living.

        Returns:
            The learner's observation and info.
        """
        super().reset(seed=seed)
        self._assign_seats(self._game.reset(self.np_random, options or {}))
        return self._observe()

    def step(
        self, action: int | np.integer[Any]
    ) -> tuple[npt.NDArray[np.uint8], float, bool, bool, dict[str, Any]]:
        """Play one turn of the game.

        Args:
            action: The learner's move, an index into `rules.MOVES`.

        Returns:
            The observation, the reward, ``terminated``, ``truncated`` and the info.

        Raises:
            ValueError: If the action is invalid.
            ResetNeeded: If no game is running.
            ClosedEnvironmentError: If the environment is closed.
        """
        self._game.check_playing(self.seat)
        self._game.step({self.seat: action_index(action, "action")})
        reward = float(self._game.rewards[0, self.seat])
        terminated = bool(self._game.terminations[0, self.seat])
        truncated = bool(self._game.truncations[0, self.seat])
        self._game.seated_opponents.record_results(np.array([terminated or truncated]))
        observation, info = self._observe()
        return observation, reward, terminated, truncated, info

    def action_masks(self) -> npt.NDArray[np.bool_]:
        """Return the learner's action mask, bool [4], for sb3-contrib."""
        masks: npt.NDArray[np.bool_] = self._game.mask(self.seat).astype(np.bool_)
        return masks

    def render(self) -> str | Frame | None:  # type: ignore[override]
        """Return the position in the format of ``render_mode``."""
        return self._game.render(self._game.board(self.seat))

    def close(self) -> None:
        """Close the environment; later calls raise ``ClosedEnvironmentError``."""
        self._game.vector.close()

    def _assign_seats(self, start: State | None) -> None:
        """Assign the living seats to the learner and to the opponents."""
        living = np.flatnonzero(self._game.infos["alive"][0]).tolist()
        you = start.you_id if isinstance(start, Board) else None
        ids = [] if start is None else [snake.id for snake in start.snakes]
        if you in ids and ids.index(you) in living:
            self.seat = ids.index(you)
        else:
            self.seat = int(self.np_random.choice(living))
        living.remove(self.seat)
        for seat, opponent in zip(living, self._draw_opponents(), strict=False):
            seed = int(self.np_random.integers(2**31))
            self._game.seated_opponents.assign(0, seat, opponent, seed)

    def _draw_opponents(self) -> list[Opponent]:
        if not self.opponents:
            return []
        count = len(self.opponents)
        drawn = (
            self.np_random.integers(count, size=self._game.vector.num_snakes - 1)
            if self._draw
            else self.np_random.permutation(count)
        )
        return [self.opponents[i] for i in drawn]

    def _observe(self) -> tuple[npt.NDArray[np.uint8], dict[str, Any]]:
        """Return the learner's observation and info.

        If ``render_mode`` is "human", the position is also printed.
        """
        board = self._game.board(self.seat)
        if self.render_mode == "human":
            self._game.render(board)
        return self._game.observation(self.seat), {
            "action_mask": self._game.mask(self.seat),
            "board": board,
            "seat": self.seat,
            "seed": int(self._game.infos["seed"][0]),
            "cause": CAUSES[self._game.infos["cause"][0, self.seat]],
        }
