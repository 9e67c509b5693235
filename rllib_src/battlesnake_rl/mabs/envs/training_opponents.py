"""Opponents in training games: past selves, frozen policies and built-in snakes."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import snakes
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.env.past_selves import PastSelves
from battlesnake_gym.env.seated_opponents import SeatedOpponents
from battlesnake_gym.env.seated_policy import PAST_SELF
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_rl.mabs.policy import policy_loader
from battlesnake_rl.mabs.policy.policy_loader import ScoreFn

_POLICY_PREFIX = "policy:"
"""Prefix of the name of a frozen policy.

The path of a ``.onnx`` file, a checkpoint or a run follows the prefix.
"""

_LEARNER_INDEX = 0
"""Index of the learner in `TrainingOpponents.names`."""


class TrainingOpponents:
    """Assignment of opponents to the seats of N games with S seats.

    The class draws new opponents for each game. All `PAST_SELF` seats of a game have the same past
    self until the game ends. Before the first past self exists, the learner plays these seats. The
    learner has at least one seat in every game.

    Args:
        fractions: Fraction of seats by opponent: `PAST_SELF`, a name for
            `battlesnake_gym.snakes.make`, or `_POLICY_PREFIX` and the path of a policy with the
            learner's observation. The learner has the remaining seats.
        vector: The games.
        random: Random generator for opponents and seats.
        past: Past selves of the learner.

    Raises:
        ValueError: If the fractions are invalid (see `check_opponents`) or a frozen policy does not
            fit the games.
    """

    def __init__(
        self,
        fractions: Mapping[str, float],
        vector: VectorBattlesnake,
        random: np.random.Generator,
        past: PastSelves,
    ) -> None:
        check_opponents(fractions)
        self.names = ("", *fractions)
        """Names of the opponents by index; the learner has index 0 and an empty name."""
        self._frozen = {
            name: _load_frozen_policy(name, vector)
            for name in fractions
            if name.startswith(_POLICY_PREFIX)
        }
        self._probabilities = [1 - sum(fractions.values()), *fractions.values()]
        self._vector = vector
        self._random = random
        self._players = np.full((vector.num_games, vector.num_snakes), _LEARNER_INDEX)
        self._past = past
        self._past_self = np.zeros(vector.num_games, dtype=np.int64)
        self._eliminated_on = np.full(self._players.shape, np.inf)
        self._seated = SeatedOpponents(vector)
        self._seated.load_policies(
            [one for one in fractions if one != PAST_SELF and one not in self._frozen]
        )

    @property
    def learner_seats(self) -> NDArray[np.bool_]:
        """Return the seats of the learner, bool (N, S)."""
        learning: NDArray[np.bool_] = self._players == _LEARNER_INDEX
        return learning

    def draw_seats(self, games: NDArray[np.bool_]) -> None:
        """Draw the opponents of new games.

        Args:
            games: bool (N,), True for each new game.
        """
        if len(self.names) == 1 or not games.any():
            return
        seats = self._players.shape[1]
        self._seated.remove_opponents(games)
        for game in np.flatnonzero(games):
            who = self._random.choice(len(self.names), size=seats, p=self._probabilities)
            if (who != _LEARNER_INDEX).all():
                who[self._random.integers(seats)] = _LEARNER_INDEX
            self._players[game] = _LEARNER_INDEX  # The finished game has no active past self.
            if self._is_past_self(who).any():
                if len(self._past):
                    self._past_self[game] = self._past.draw(
                        self._random, self._active_past_selves()
                    )
                else:
                    who[self._is_past_self(who)] = _LEARNER_INDEX
            self._players[game] = who
            for seat in np.flatnonzero(who != _LEARNER_INDEX).tolist():
                name = self.names[who[seat]]
                if name not in (PAST_SELF, *self._frozen):
                    self._seated.assign(int(game), seat, name, int(self._random.integers(2**31)))

    def after_step(self, infos: Mapping[str, NDArray[Any]]) -> None:
        """Record eliminations and draw the opponents of new games, after one step."""
        if len(self.names) == 1:
            return
        begun = infos["reset"]
        for game in np.flatnonzero(begun & self._is_past_self(self._players).any(-1)):
            self._record_result(game)
        self._eliminated_on[begun] = np.inf
        self.draw_seats(begun)
        out = (infos["cause"] > 0) & np.isinf(self._eliminated_on)
        self._eliminated_on[out] = np.broadcast_to(infos["turn"][:, None], out.shape)[out]

    def _record_result(self, game: np.intp) -> None:
        """Record the learner's score against the past self of a finished game."""
        out_on, past = self._eliminated_on[game], self._is_past_self(self._players[game])
        ours = out_on[self._players[game] == _LEARNER_INDEX][:, None]
        outlived = np.where(ours == out_on[past], 0.5, ours > out_on[past])
        self._past.record_result(int(self._past_self[game]), float(outlived.mean()))

    def _is_past_self(self, who: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each opponent index in ``who`` is a past self, bool."""
        past: NDArray[np.bool_] = who == (
            self.names.index(PAST_SELF) if PAST_SELF in self.names else -1
        )
        return past

    def _active_past_selves(self) -> set[int]:
        """Return the indices of the past selves in running games."""
        return set(self._past_self[self._is_past_self(self._players).any(-1)].tolist())

    def move(
        self,
        frames: NDArray[np.uint8],
        action_mask: NDArray[np.bool_],
        alive: NDArray[np.bool_],
        actions: NDArray[np.uint8],
    ) -> None:
        """Write the moves of all opponents into ``actions``, uint8 (N, S).

        Args:
            frames: uint8 (N, S, C, H, W), observations.
            action_mask: bool (N, S, 4).
            alive: bool (N, S), whether the snake in the seat is alive.
            actions: Array to change; the learner's moves remain.
        """
        if len(self.names) == 1:
            return
        for name, values in self._frozen.items():
            seats = alive & (self._players == self.names.index(name))
            _fill_moves(values, seats, frames, action_mask, actions)
        for index in self._active_past_selves():
            seats = alive & self._is_past_self(self._players) & (self._past_self == index)[:, None]
            _fill_moves(
                functools.partial(self._past.act, index), seats, frames, action_mask, actions
            )
        self._seated.move(actions, alive)


def _fill_moves(
    values: ScoreFn,
    seats: NDArray[np.bool_],
    frames: NDArray[np.uint8],
    action_mask: NDArray[np.bool_],
    actions: NDArray[np.uint8],
) -> None:
    """Write the unmasked moves with the highest scores into ``actions`` for ``seats``."""
    if seats.any():
        preference = np.where(action_mask[seats], values(frames[seats]), -np.inf)
        actions[seats] = preference.argmax(-1)


def _load_frozen_policy(name: str, vector: VectorBattlesnake) -> ScoreFn:
    """Load the score function of a frozen policy.

    Raises:
        ValueError: If the policy's observation does not fit the games.
    """
    path = Path(opponent_path(name))
    values, games = policy_loader.load_score_fn(path)
    observation = EnvConfig(
        observation=games["observation"], frame_stack=games.get("frame_stack")
    ).observation_encoder
    shape = observation.shape(games["width"], games["height"])
    if (
        observation.to_dict() != vector.observation.to_dict()
        or shape != vector.single_observation_space.shape
    ):
        raise ValueError(
            f"the opponent {name!r} has the observation {observation.to_dict()} of shape {shape}, "
            f"but the games have {vector.observation.to_dict()} "
            f"of shape {vector.single_observation_space.shape}; "
            "use a policy with the same observation and board size"
        )
    return values


def is_file(name: str) -> bool:
    """Return whether the name of an opponent refers to a file.

    >>> is_file("policy:runs/first"), is_file("mine.zip"), is_file("hungry"), is_file("shipped")
    (True, True, False, False)
    """
    return name.startswith(_POLICY_PREFIX) or snakes.resolve_file(name) not in (
        None,
        snakes.BUILTIN_POLICY_NAME,
    )


def opponent_path(name: str) -> str:
    """Return the path in the name of an opponent for which `is_file` is True."""
    return name.removeprefix(_POLICY_PREFIX)


def with_absolute_paths(
    fractions: Mapping[str, float], directory: Path | None = None
) -> dict[str, float]:
    """Return ``fractions`` with absolute paths.

    Paths must be absolute, because env runners have other working directories. Files in
    ``directory`` have precedence over files in the working directory. The name of a policy in
    ``directory`` may omit the suffix ``.onnx``.
    """
    return {
        (_POLICY_PREFIX if name.startswith(_POLICY_PREFIX) else "")
        + _absolute_path(opponent_path(name), directory)
        if is_file(name)
        else name: fraction
        for name, fraction in fractions.items()
    }


def _absolute_path(path: str, directory: Path | None) -> str:
    """Return the absolute path of a file, which may be in ``directory``."""
    if directory is not None:
        for found in (directory / path, directory / f"{path}.onnx"):
            if found.exists():
                return str(found.absolute())
    return str(Path(path).absolute())


def seat_fractions(opponents: Any) -> Any:
    """Convert a list of opponents to a fraction of seats by opponent.

    Each opponent in a list has as many seats as the learner. The function returns other values
    unchanged.

    >>> seat_fractions(["shipped", "past"])
    {'shipped': 0.3333333333333333, 'past': 0.3333333333333333}
    """
    if isinstance(opponents, list) and all(isinstance(name, str) for name in opponents):
        return dict.fromkeys(opponents, 1 / (len(opponents) + 1))
    return opponents


def check_opponents(fractions: Any) -> None:
    """Check the names and the seat fractions of opponents.

    Raises:
        ValueError: If a name is unknown, a fraction is invalid, or no seats remain for the learner.
    """
    if not isinstance(fractions, Mapping):
        raise ValueError(
            'opponents must be a dictionary such as {"past": 0.3, "hungry": 0.1}, or a list such '
            f'as ["past"], got {fractions!r}'
        )
    for name, fraction in fractions.items():
        # `snakes.make` loads a built-in snake only when a game needs the snake. An unknown name
        # must be rejected earlier.
        known = [PAST_SELF, snakes.BUILTIN_POLICY_NAME, *snakes.names()]
        if name not in known and not is_file(name):
            raise ValueError(
                unknown_name_message("opponent", name, known, "battlesnake-gym snakes")
            )
        if (
            isinstance(fraction, bool)
            or not isinstance(fraction, int | float)
            or not 0 < fraction < 1
        ):
            raise ValueError(f"the fraction of {name!r} must be between 0 and 1, got {fraction!r}")
    if sum(fractions.values()) >= 1:
        raise ValueError(f"the opponents' fractions must sum to less than 1, got {dict(fractions)}")
