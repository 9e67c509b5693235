"""Snakes that take seats in training games and are not learned from: past selves, frozen policies
and named snakes."""

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
from battlesnake_gym.env.seated_policy import PAST
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_rl.mabs.policy import policy_loader
from battlesnake_rl.mabs.policy.policy_loader import ScoreFn

_POLICY_PREFIX = "policy:"
"""Before the path of a policy (a ``.onnx`` file, a checkpoint or a run) that plays as it is."""

_LEARNER = 0


class TrainingOpponents:
    """Who sits where in N games with S seats; drawn anew for each game.

    ``shares``: name of an opponent (`PAST`, what `battlesnake_gym.snakes.make` knows, or `_POLICY_PREFIX`
    with a path, whose policy sees what the learner sees) to the part of the seats it takes; the
    learner has the rest, and at least one seat of every game.
    All seats of `PAST` in a game have the same one of the ``past`` selves, until the game is over;
    as long as there is none, they are the learner's.

    Raises:
        ValueError: impossible shares (`check`), or a frozen policy that cannot play these games.
    """

    def __init__(
        self,
        shares: Mapping[str, float],
        vector: VectorBattlesnake,
        random: np.random.Generator,
        past: PastSelves,
    ) -> None:
        check(shares)
        self.names = ("", *shares)
        """Who may sit somewhere, the learner ("") first."""
        self._frozen = {
            name: _frozen(name, vector) for name in shares if name.startswith(_POLICY_PREFIX)
        }
        self._chances = [1 - sum(shares.values()), *shares.values()]
        self._vector = vector
        self._random = random
        self._who = np.full((vector.num_games, vector.num_snakes), _LEARNER)
        self._past = past
        self._self = np.zeros(vector.num_games, dtype=np.int64)
        self._out_on = np.full(self._who.shape, np.inf)
        self._rivals = SeatedOpponents(vector)
        self._rivals.load_policies(
            [one for one in shares if one != PAST and one not in self._frozen]
        )

    @property
    def learner_seats(self) -> NDArray[np.bool_]:
        """Which seats are the learner's, bool (N, S)."""
        learning: NDArray[np.bool_] = self._who == _LEARNER
        return learning

    def draw_seats(self, games: NDArray[np.bool_]) -> None:
        """Draw who plays in ``games``, which begin now."""
        if len(self.names) == 1 or not games.any():
            return
        seats = self._who.shape[1]
        self._rivals.clear(games)
        for game in np.flatnonzero(games):
            who = self._random.choice(len(self.names), size=seats, p=self._chances)
            if (who != _LEARNER).all():
                who[self._random.integers(seats)] = _LEARNER
            self._who[game] = _LEARNER  # no other snake plays there while others are drawn
            if self._is_past(who).any():
                if len(self._past):
                    self._self[game] = self._past.draw(self._random, self._playing())
                else:
                    who[self._is_past(who)] = _LEARNER
            self._who[game] = who
            for seat in np.flatnonzero(who != _LEARNER).tolist():
                name = self.names[who[seat]]
                if name not in (PAST, *self._frozen):
                    self._rivals.assign(int(game), seat, name, int(self._random.integers(2**31)))

    def after_step(self, infos: Mapping[str, NDArray[Any]]) -> None:
        """Take in a step of the games: which snakes are out, and, in new games, who plays."""
        if len(self.names) == 1:
            return
        begun = infos["reset"]
        for game in np.flatnonzero(begun & self._is_past(self._who).any(-1)):
            self._note(game)
        self._out_on[begun] = np.inf
        self.draw_seats(begun)
        out = (infos["cause"] > 0) & np.isinf(self._out_on)
        self._out_on[out] = np.broadcast_to(infos["turn"][:, None], out.shape)[out]

    def _note(self, game: np.intp) -> None:
        """Note for the past self of a game that is over how often the learner outlived it."""
        out_on, past = self._out_on[game], self._is_past(self._who[game])
        ours = out_on[self._who[game] == _LEARNER][:, None]
        outlived = np.where(ours == out_on[past], 0.5, ours > out_on[past])
        self._past.record_result(int(self._self[game]), float(outlived.mean()))

    def _is_past(self, who: NDArray[np.int64]) -> NDArray[np.bool_]:
        past: NDArray[np.bool_] = who == (self.names.index(PAST) if PAST in self.names else -1)
        return past

    def _playing(self) -> set[int]:
        """The past selves that sit somewhere."""
        return set(self._self[self._is_past(self._who).any(-1)].tolist())

    def move(
        self,
        frames: NDArray[np.uint8],
        action_mask: NDArray[np.bool_],
        alive: NDArray[np.bool_],
        actions: NDArray[np.uint8],
    ) -> None:
        """Fill in the opponents' moves in ``actions`` (N, S)."""
        if len(self.names) == 1:
            return
        for name, values in self._frozen.items():
            seats = alive & (self._who == self.names.index(name))
            _move_by(values, seats, frames, action_mask, actions)
        for number in self._playing():
            seats = alive & self._is_past(self._who) & (self._self == number)[:, None]
            _move_by(functools.partial(self._past.act, number), seats, frames, action_mask, actions)
        self._rivals.move(actions, alive)


def _move_by(
    values: ScoreFn,
    seats: NDArray[np.bool_],
    frames: NDArray[np.uint8],
    action_mask: NDArray[np.bool_],
    actions: NDArray[np.uint8],
) -> None:
    """Fill in the moves of the highest value for ``seats``."""
    if seats.any():
        preference = np.where(action_mask[seats], values(frames[seats]), -np.inf)
        actions[seats] = preference.argmax(-1)


def _frozen(name: str, vector: VectorBattlesnake) -> ScoreFn:
    """The policy that ``name`` says, if it sees what the games of ``vector`` show."""
    path = Path(path_of(name))
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
            f"the opponent {name!r} sees {observation.to_dict()} of shape {shape}, the games show "
            f"{vector.observation.to_dict()} of shape {vector.single_observation_space.shape}; "
            "take a policy that was trained on the same observation and board size"
        )
    return values


def is_file(name: str) -> bool:
    """Whether an opponent is a file, and not a name.

    >>> is_file("policy:runs/first"), is_file("mine.zip"), is_file("hungry"), is_file("shipped")
    (True, True, False, False)
    """
    return name.startswith(_POLICY_PREFIX) or snakes.resolve_file(name) not in (
        None,
        snakes.BUILTIN_POLICY,
    )


def path_of(name: str) -> str:
    """The path in the name of an opponent that `is_file`."""
    return name.removeprefix(_POLICY_PREFIX)


def with_absolute_paths(
    shares: Mapping[str, float], folder: Path | None = None
) -> dict[str, float]:
    """``shares`` with the whole paths of policies and bundles: runners work in other folders.

    What is in ``folder`` goes first; a policy may be named there without its ending.
    """
    return {
        (_POLICY_PREFIX if name.startswith(_POLICY_PREFIX) else "") + _whole(path_of(name), folder)
        if is_file(name)
        else name: share
        for name, share in shares.items()
    }


def _whole(path: str, folder: Path | None) -> str:
    if folder is not None:
        for found in (folder / path, folder / f"{path}.onnx"):
            if found.exists():
                return str(found.absolute())
    return str(Path(path).absolute())


def seat_fractions(opponents: Any) -> Any:
    """The parts of the seats: of a list all as much as the learner.

    >>> shares_of(["shipped", "past"])
    {'shipped': 0.3333333333333333, 'past': 0.3333333333333333}
    """
    if isinstance(opponents, list) and all(isinstance(name, str) for name in opponents):
        return dict.fromkeys(opponents, 1 / (len(opponents) + 1))
    return opponents


def check(shares: Any) -> None:
    """Refuse opponents that there are not, and shares that leave the learner no seat.

    Raises:
        ValueError: saying which.
    """
    if not isinstance(shares, Mapping):
        raise ValueError(
            f'opponents must be like {{"past": 0.3, "hungry": 0.1}} or ["past"], got {shares!r}'
        )
    for name, share in shares.items():
        # Named snakes are loaded where they are asked for, not wherever games are made.
        known = [PAST, snakes.BUILTIN_POLICY, *snakes.names()]
        if name not in known and not is_file(name):
            raise ValueError(
                unknown_name_message("opponent", name, known, "battlesnake-gym snakes")
            )
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 < share < 1:
            raise ValueError(f"the share of {name!r} must be between 0 and 1, got {share!r}")
    if sum(shares.values()) >= 1:
        raise ValueError(
            f"the opponents' shares must leave the learner some seats, got {dict(shares)}"
        )
