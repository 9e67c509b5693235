"""One game at a time: what the Gymnasium and the PettingZoo environment share.

Both are faces of a `VectorBattlesnake` with a single game, so that actions, observations, masks,
rewards and truncation mean the same everywhere. Food comes from the official engine's seeded
stream: a seed gives the game that the official engine plays.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded, UnsupportedMode

from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.env.vector import Infos, VectorBattlesnake, start_states
from battlesnake_gym.rules import CAUSES, MOVES, State

RENDER_MODES = ("ansi", "rgb_array", "human")
RENDER_FPS = 8

Frame = npt.NDArray[np.uint8]


class OneGame:
    """One game of what ``options``, the fields of `EnvConfig`, say; food is ``seeded`` by default.

    ``others`` are the environment's own arguments, which an error may suggest.

    ``observations``, ``rewards``, ``terminations``, ``truncations`` and ``infos`` hold the last
    turn, with a first axis of one game, as `VectorBattlesnake.step` returns them.
    """

    def __init__(self, options: Mapping[str, Any], render_mode: str | None, *others: str) -> None:
        config = EnvConfig.from_options(
            {"food_rng": "official", **options}, ("render_mode", *others)
        )
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise UnsupportedMode(
                f"render_mode must be None or one of {', '.join(RENDER_MODES)}, got {render_mode!r}"
            )
        self.render_mode = render_mode
        self.vector = VectorBattlesnake.from_config(config, 1)
        self.infos: Infos = {}

    def reset(self, random: np.random.Generator, options: Mapping[str, Any]) -> State | None:
        """Begin a game with a seed and, where ``options`` has "states", a start from ``random``.

        Returns the position drawn, None for the map's own start.
        """
        states = start_states(options)
        start = states[random.integers(len(states))] if states else None
        self.observations, self.infos = self.vector.reset(
            seed=int(random.integers(2**63)), options={"states": [start]} if start else None
        )
        return start

    def step(self, actions: npt.NDArray[np.uint8]) -> None:
        """Play one turn with one action per seat."""
        (
            self.observations,
            self.rewards,
            self.terminations,
            self.truncations,
            self.infos,
        ) = self.vector.step(actions[None])

    def check_playing(self, seat: int | None = None) -> None:
        """Raise where there is nothing to step: closed, not begun, over (for ``seat`` or all)."""
        self.vector.check_open()
        if not self.infos:
            raise ResetNeeded("call reset() before the first step()")
        alive = self.infos["alive"][0]
        if not (alive.any() if seat is None else alive[seat]):
            raise ResetNeeded("the game is over; call reset() to begin the next")

    def board(self, seat: int | None = None) -> Board:
        """The position with the snake in ``seat`` as ``you`` (None: as an onlooker sees it).

        The board does not know the seed, so no strategy can look up the food to come.
        """
        self.vector.check_open()
        if not self.infos:
            raise ResetNeeded("there is no board before reset()")
        game = replace(self.vector.game, seed=UNKNOWN_SEED)
        board = Board.from_state(self.vector.games.state(0), game)
        if seat is not None:
            board.you_id = board.snakes[seat].id
        return board

    def observation(self, seat: int) -> npt.NDArray[np.uint8]:
        """What one seat sees, in an array of its own."""
        observation: npt.NDArray[np.uint8] = self.observations[0, seat].copy()
        return observation

    def mask(self, seat: int) -> npt.NDArray[np.int8]:
        """The action mask of one seat, 1 for allowed: what ``Discrete.sample(mask)`` takes."""
        mask: npt.NDArray[np.int8] = self.infos["action_mask"][0, seat].astype(np.int8)
        return mask

    def cause(self, seat: int) -> str:
        """Why the snake in this seat is out; ``""`` while it lives."""
        return CAUSES[self.infos["cause"][0, seat]]

    def render(self, board: Board) -> str | Frame | None:
        """``board`` in the form of ``render_mode``; "human" writes it to the terminal."""
        if self.render_mode == "ansi":
            return str(board)
        if self.render_mode == "rgb_array":
            from battlesnake_gym.draw import (
                drawing,  # pillow is only loaded where pictures are wanted
            )

            return np.asarray(drawing.image(board).convert("RGB"))
        if self.render_mode == "human":
            clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
            sys.stdout.write(f"{clear}{board}\n\n")
            sys.stdout.flush()
        return None


def action_index(action: object, whose: str) -> int:
    """``action`` as an index into `rules.MOVES`; ``whose`` names it in the error."""
    if isinstance(action, np.ndarray) and action.ndim == 0:
        action = action[()]
    if isinstance(action, bool | np.bool_) or not isinstance(action, int | np.integer):
        raise ValueError(f"{whose} must be a whole number (an index into {MOVES}), got {action!r}")
    if not 0 <= action < len(MOVES):
        raise ValueError(
            f"{whose} must be between 0 and {len(MOVES) - 1} (an index into {MOVES}), got {action}"
        )
    return int(action)
