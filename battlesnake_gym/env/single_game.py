"""Common code of the Gymnasium environment and the PettingZoo environment.

Both environments use a `VectorBattlesnake` with one game, so actions, observations, masks, rewards
and truncation have the same meaning in all environments. By default, food uses the official random
number stream, so a seed reproduces the game of the official engine.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import ResetNeeded, UnsupportedMode

from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.env.seat_memory import ActFn
from battlesnake_gym.env.seated_opponents import Opponent, SeatedOpponents, check_past_opponent
from battlesnake_gym.env.vector import Infos, VectorBattlesnake, parse_start_states
from battlesnake_gym.rules import MOVES, State

RENDER_MODES = ("ansi", "rgb_array", "human")
RENDER_FPS = 8

Frame = npt.NDArray[np.uint8]


class SingleGame:
    """Vector environment with one game, and the options of `EnvConfig`.

    ``food_rng`` is "official" by default. ``seated_opponents`` assigns the opponents to seats. The
    attributes ``observations``, ``rewards``, ``terminations``, ``truncations`` and ``infos`` are
    the last result of `VectorBattlesnake.step`, so their first axis has length 1.

    Args:
        options: Fields of `EnvConfig`.
        opponents: Result of `seated_opponents.check_opponents`.
        render_mode: None or one of `RENDER_MODES`.
    """

    def __init__(
        self, options: Mapping[str, Any], opponents: Sequence[Opponent], render_mode: str | None
    ) -> None:
        self.opponents = opponents
        config = EnvConfig.from_options(
            {"food_rng": "official", **options}, ("render_mode", "opponents")
        )
        if render_mode is not None and render_mode not in RENDER_MODES:
            raise UnsupportedMode(
                f"render_mode must be None or one of {', '.join(RENDER_MODES)}, got {render_mode!r}"
            )
        self.render_mode = render_mode
        self.vector = VectorBattlesnake.from_config(config, 1)
        self.infos: Infos = {}
        self.seated_opponents = SeatedOpponents(self.vector)
        self.seated_opponents.load_policies(self.opponents)

    def add_past_self(self, policy: ActFn) -> None:
        """Add an opponent "past"; see `vector_env.BattlesnakeVectorEnv.add_past_self`."""
        check_past_opponent(self.opponents)
        self.seated_opponents.add_past_self(policy)

    def reset(self, random: np.random.Generator, options: Mapping[str, Any]) -> State | None:
        """Start a new game without opponents, with a seed from ``random``.

        Args:
            random: Random generator.
            options: May contain "states", a list of positions from which the start position is
                drawn.

        Returns:
            The start position, or None if the map chooses the position.
        """
        states = parse_start_states(options)
        start = states[random.integers(len(states))] if states else None
        self.observations, self.infos = self.vector.reset(
            seed=int(random.integers(2**63)), options={"states": [start]} if start else None
        )
        self.seated_opponents.remove_opponents(np.ones(1, np.bool_))
        return start

    def step(self, actions: Mapping[int, int]) -> None:
        """Play one turn with the actions by seat, and with the opponents' moves."""
        taken = np.zeros((1, self.vector.num_snakes), np.uint8)
        self.seated_opponents.move(taken, self.infos["alive"])
        for seat, action in actions.items():
            taken[0, seat] = action
        (
            self.observations,
            self.rewards,
            self.terminations,
            self.truncations,
            self.infos,
        ) = self.vector.step(taken)
        self.seated_opponents.after_step(self.infos)

    def check_playing(self, seat: int | None = None) -> None:
        """Raise an error if the environment is closed or no game is running.

        Args:
            seat: Seat that must be alive; None means any seat.
        """
        self._check_started()
        alive = self.infos["alive"][0]
        if not (alive.any() if seat is None else alive[seat]):
            raise ResetNeeded("the game is over; call reset() to start another")

    def _check_started(self) -> None:
        """Raise an error if the environment is closed or was never reset."""
        self.vector.check_open()
        if not self.infos:
            raise ResetNeeded("no game has started; call reset() first")

    def board(self, seat: int | None = None) -> Board:
        """Return the position that the snake at ``seat`` sees, or the complete position.

        A strategy could predict future food from the seed, so the board does not contain the seed.
        """
        self._check_started()
        game = replace(self.vector.game, seed=UNKNOWN_SEED)
        board = Board.from_state(self.vector.games.state(0), game)
        if seat is not None:
            board.you_id = board.snakes[seat].id
        return board.limited() if board.you_id else board

    def observation(self, seat: int) -> npt.NDArray[np.uint8]:
        """Return a copy of the observation of ``seat``."""
        observation: npt.NDArray[np.uint8] = self.observations[0, seat].copy()
        return observation

    def mask(self, seat: int) -> npt.NDArray[np.int8]:
        """Return the action mask of ``seat``, int8 [4].

        The value 1 marks allowed moves. ``Discrete.sample`` accepts this format.
        """
        self._check_started()
        mask: npt.NDArray[np.int8] = self.infos["action_mask"][0, seat].astype(np.int8)
        return mask

    def render(self, board: Board) -> str | Frame | None:
        """Render ``board`` in the format of ``render_mode``.

        The mode "human" prints the board.
        """
        if self.render_mode == "ansi":
            return str(board)
        if self.render_mode == "rgb_array":
            # The module imports Pillow, which only images need.
            from battlesnake_gym.draw import drawing

            return np.asarray(drawing.image(board).convert("RGB"))
        if self.render_mode == "human":
            clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
            sys.stdout.write(f"{clear}{board}\n\n")
            sys.stdout.flush()
        return None


def action_index(action: object, whose: str) -> int:
    """Check an action, and return the action as an index into `rules.MOVES`.

    Args:
        action: An integer or a numpy scalar.
        whose: Name of the action in error messages.

    Raises:
        ValueError: If the action is not an integer or out of range.
    """
    if isinstance(action, np.ndarray) and action.ndim == 0:
        action = action[()]
    if isinstance(action, bool | np.bool_) or not isinstance(action, int | np.integer):
        raise ValueError(f"{whose} must be a whole number (an index into {MOVES}), got {action!r}")
    if not 0 <= action < len(MOVES):
        raise ValueError(
            f"{whose} must be between 0 and {len(MOVES) - 1} (an index into {MOVES}), got {action}"
        )
    return int(action)
