"""Gymnasium vector environments with a learner in each game or at every seat.

>>> import gymnasium
>>> envs = gymnasium.make_vec("battlesnake_gym:Battlesnake-v0", num_envs=64, opponents=["hungry"])
>>> observations, infos = envs.reset(seed=1)
>>> observations.shape
(64, 10, 11, 11)
>>> actions = infos["action_mask"].argmax(axis=1)
>>> observations, rewards, terminations, truncations, infos = envs.step(actions)
>>> rewards.shape
(64,)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import UnsupportedMode
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from battlesnake_gym.boards.board import Board
from battlesnake_gym.config import TRAINING_DEFAULTS, EnvConfig
from battlesnake_gym.env.seat_memory import ActFn
from battlesnake_gym.env.seated_opponents import (
    Opponent,
    SeatedOpponents,
    check_opponents,
    check_past_opponent,
    engine_code,
    num_seats,
)
from battlesnake_gym.env.vector import VectorBattlesnake

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float32]
Infos = dict[str, Any]
StepReturn = tuple[Bytes, Floats, Flags, Flags, Infos]

_RENDER_MODES: list[str] = []


class _BaseVectorEnv(VectorEnv[Bytes, npt.NDArray[np.integer[Any]], Any]):
    """Base class of both vector environments: spaces, infos and autoreset."""

    metadata = {  # noqa: RUF012
        "render_modes": _RENDER_MODES,
        "autoreset_mode": AutoresetMode.NEXT_STEP,
    }

    # The constructor sets this attribute to False after all checks, so a rejected environment
    # counts as closed.
    closed = True

    def __init__(
        self,
        games: VectorBattlesnake,
        env_games: npt.NDArray[np.intp],
        seats: npt.NDArray[np.intp],
        autoreset_mode: AutoresetMode | str,
        render_mode: str | None,
    ) -> None:
        """Create the sub-environments; number i controls ``seats[i]`` of ``env_games[i]``."""
        if render_mode is not None:
            raise UnsupportedMode(
                f"render_mode must be None for many games at once, got {render_mode!r}; "
                "create one game with gymnasium.make to render it"
            )
        self.autoreset_mode = _parse_autoreset_mode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.games = games
        """The `VectorBattlesnake` that plays all seats of all games."""
        self.num_envs = num_envs = len(env_games)
        self.single_observation_space = games.single_observation_space
        self.single_action_space = games.single_action_space
        self.observation_space = batch_space(games.single_observation_space, num_envs)
        self.action_space = batch_space(games.single_action_space, num_envs)
        self._env_games, self._seats = env_games, seats
        self._all_envs = np.ones(num_envs, np.bool_)
        self.closed = False

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Bytes, Infos]:
        """Start a new game in every sub-environment; see `VectorBattlesnake.reset`."""
        _, infos = self.games.reset(seed=seed, options=options)
        self._assign_seats(infos)
        return self._observations(), self._infos(infos)

    def close_extras(self, **kwargs: Any) -> None:
        """Close the games."""
        self.games.close()

    def _step_result(
        self, rewards: Floats, terminations: Flags, truncations: Flags, ended: Flags, infos: Infos
    ) -> StepReturn:
        """Return the results of a step in Gymnasium's format.

        With the autoreset mode SAME_STEP, new games replace the ended games first.
        """
        if self.autoreset_mode is AutoresetMode.NEXT_STEP or not ended.any():
            return self._observations(), rewards, terminations, truncations, self._infos(infos)
        last, last_infos = self._observations(), self._infos(infos)
        over = ended[self._env_games]
        final = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(over).tolist():
            final[i] = last[i]
        acted = infos["acted"]
        reset_infos = self.games.reset_ended()
        self._after_reset(reset_infos)
        infos = self._infos({**reset_infos, "acted": acted})
        infos |= {"final_obs": final, "_final_obs": over}
        infos |= {"final_info": last_infos, "_final_info": over}
        return self._observations(), rewards, terminations, truncations, infos

    def _infos(self, infos: Infos) -> Infos:
        """Return copies of the infos per sub-environment, with masks of valid entries."""
        picked = {name: self._select_seats(infos[name]) for name in ("action_mask", *_SEAT_INFOS)}
        picked |= {name: infos[name][self._env_games] for name in ("turn", "seed", "reset")}
        return picked | {f"_{name}": self._all_envs for name in picked}

    def _observations(self) -> Bytes:
        """Return a copy of the observations, uint8 [num_envs, C, H, W]."""
        observed: Bytes = self._select_seats(self.games.observations)
        return observed

    def _select_seats(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Convert an array [N, S, ...] to a new array [num_envs, ...]."""
        return array[self._env_games, self._seats]

    def _check_actions(self, actions: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
        actions = np.asarray(actions)
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in "iu":
            raise ValueError(
                f"actions must be {self.num_envs} integers, one for each environment, "
                f"got {actions.dtype} of shape {actions.shape}"
            )
        return actions

    def _assign_seats(self, infos: Infos) -> None:
        """Assign the seats of the games that start."""

    def _after_reset(self, infos: Infos) -> None:
        """Process the infos of games that started in place of ended games."""


_MODE_OPTIONS = ("autoreset_mode", "render_mode")
_SEAT_INFOS = ("acted", "alive", "cause", "killer", "length", "health")


class BattlesnakeVectorEnv(_BaseVectorEnv):
    """Vector environment of ``num_envs`` games with one learner each.

    All other snakes of a game are opponents. ``gymnasium.make_vec("battlesnake_gym:Battlesnake-v0",
    ...)`` creates this class. The compiled engine plays the opponents in `snakes.ENGINE_SNAKES`.
    One network call per turn evaluates each policy for all its seats. Other strategies are called
    board by board in Python. The seats and opponents of a game depend only on the seed of the game.

    An episode ends when the learner's snake is eliminated or the game is over. Observations and
    infos are copies that belong to the caller. In a game that starts from a `Board`, the learner
    plays the snake ``you`` if this snake is living.

    Infos: ``action_mask`` bool [num_envs, 4]; ``seat``; ``acted``, whether the action was played;
        ``alive``; ``cause`` (index into `rules.CAUSES`); ``killer`` (a seat or -1); ``length``;
        ``health``; ``turn``; ``seed``; ``reset``, whether a game started in this step.

    Args:
        num_envs: Number of games.
        opponents: Opponents, as in `battlesnake_env.BattlesnakeEnv`.
        num_snakes: Number of snakes; each game draws ``num_snakes - 1`` opponents with replacement.
            None means that all opponents play.
        autoreset_mode: With NEXT_STEP, the step that ends an episode returns the last observation,
            and the next step starts a new game and ignores the action. With SAME_STEP, the step
            that ends an episode returns the first observation of the new game. The last observation
            of the old game is in ``infos["final_obs"]``, and its infos are in
            ``infos["final_info"]``.
        render_mode: Must be None.
        **options: Fields of `config.EnvConfig`.

    Raises:
        ValueError: If an argument is invalid.
    """

    def __init__(
        self,
        num_envs: int = 1,
        opponents: Sequence[Opponent] = ("hungry",),
        *,
        num_snakes: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        self.opponents = check_opponents(opponents)
        self._draw = num_snakes is not None
        num_snakes = num_seats(self.opponents, num_snakes, options)
        others = ("num_envs", "opponents", *_MODE_OPTIONS)
        config = EnvConfig.from_options({"num_snakes": num_snakes, **options}, others)
        games = VectorBattlesnake.from_config(config, num_envs)
        env_games, seats = np.arange(num_envs), np.zeros(num_envs, np.intp)
        super().__init__(games, env_games, seats, autoreset_mode, render_mode)
        self._seated_opponents = SeatedOpponents(self.games)
        codes = [engine_code(one, self.games) for one in self.opponents]
        self._engine_codes = np.array(codes, np.uint8)
        self._seated_opponents.load_policies(self.opponents)
        self._actions = np.zeros((num_envs, num_snakes), np.uint8)

    def add_past_self(self, policy: ActFn) -> None:
        """Add a past self, which plays as "past" in some of the following games.

        The environment stores at most ten past selves, which are spread over the whole training.

        Args:
            policy: Function from observations uint8 [B, C, H, W] and masks bool [B, 4] to actions
                [B]. Pass a copy of a network that training changes.

        Raises:
            ValueError: If "past" is not an opponent.
        """
        check_past_opponent(self.opponents)
        self._seated_opponents.add_past_self(policy)

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> StepReturn:
        """Play one turn of all games.

        Args:
            actions: Integers [num_envs], the learners' moves.

        Returns:
            Observations, rewards, terminations, truncations and infos.

        Raises:
            ValueError: If the actions have the wrong shape or are out of range.
        """
        actions = self._check_actions(actions)
        if (actions >> 2).any():
            wrong = actions[(actions >> 2) != 0][0]
            raise ValueError(f"actions must be between 0 and 3, got {wrong}")
        self._seated_opponents.move(self._actions, self.games.alive)
        self._actions[self._env_games, self._seats] = actions
        _, rewards, terminations, truncations, infos = self.games.step(self._actions)
        self._seated_opponents.after_step(infos)
        if infos["reset"].any():
            self._assign_seats(infos)
        rewards, terminated, truncated = map(
            self._select_seats, (rewards, terminations, truncations)
        )
        ended = terminated | truncated
        self.games.end_games(ended)
        return self._step_result(rewards, terminated, truncated, ended, infos)

    def _assign_seats(self, infos: Infos) -> None:
        """Assign the learner and its opponents to seats of the games that start."""
        started: Flags = infos["reset"]
        games = np.flatnonzero(started)
        self._seated_opponents.remove_opponents(started)
        alive = infos["alive"][games]
        # The living seats of each game are sorted in random order. The learner plays the first seat
        # in this order.
        order = _hash_uniform(infos["seed"][games], alive.shape[1], 1)
        order[~alive] = 1.0
        for row, game in enumerate(games.tolist()):
            start = self.games.start_state(game)
            if isinstance(start, Board) and start.you_id is not None:
                ids = [snake.id for snake in start.snakes]
                if start.you_id in ids and alive[row, ids.index(start.you_id)]:
                    order[row, ids.index(start.you_id)] = -1.0
            elif start is None:
                # If one game has no start position, no game has a start position.
                break
        seats = order.argsort(axis=1)
        self._seats[games] = seats[:, 0]
        self._seat_opponents(games, seats[:, 1:], alive.sum(axis=1) - 1, infos["seed"][games])

    def _seat_opponents(
        self,
        games: npt.NDArray[np.intp],
        seats: npt.NDArray[np.intp],
        counts: npt.NDArray[np.intp],
        seeds: npt.NDArray[np.int64],
    ) -> None:
        if not len(self.opponents) or not seats.shape[1]:
            return
        draws = _hash_uniform(seeds, max(seats.shape[1], len(self.opponents)), 2)
        if self._draw:
            drawn = (draws * len(self.opponents)).astype(np.intp)[:, : seats.shape[1]]
        else:
            drawn = draws[:, : len(self.opponents)].argsort(axis=1)[:, : seats.shape[1]]
        occupied = np.arange(seats.shape[1]) < counts[:, None]
        in_engine = occupied & (self._engine_codes[drawn] > 0)
        rows, columns = np.nonzero(in_engine)
        self._seated_opponents.assign_engine_snakes(
            games[rows], seats[rows, columns], self._engine_codes[drawn[rows, columns]]
        )
        for row, column in np.argwhere(occupied & ~in_engine).tolist():
            opponent = self.opponents[drawn[row, column]]
            seed = int(draws[row, column] * 2**31)
            self._seated_opponents.assign(int(games[row]), int(seats[row, column]), opponent, seed)

    def _after_reset(self, infos: Infos) -> None:
        self._seated_opponents.after_step(infos)
        self._assign_seats(infos)

    def _infos(self, infos: Infos) -> Infos:
        return super()._infos(infos) | {"seat": self._seats.copy(), "_seat": self._all_envs}


class SelfPlayVectorEnv(_BaseVectorEnv):
    """Vector environment in which every seat of every game is a sub-environment.

    This class suits trainers of one shared policy. The sub-environment with index ``game *
    num_snakes + seat`` is one seat. A seat's episode ends when its snake is eliminated or the game
    is over. After an elimination until the end of the game, observations and rewards of the seat
    are zero, and actions are ignored. ``infos["acted"]`` is False in these steps. Do not train on
    these steps. Otherwise, the class is equivalent to `BattlesnakeVectorEnv` without the info
    ``seat``.

    Args:
        num_games: Number of games.
        autoreset_mode: As in `BattlesnakeVectorEnv`.
        render_mode: Must be None.
        **options: Fields of `config.EnvConfig`.
    """

    def __init__(
        self,
        num_games: int = 1,
        *,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
        **options: Any,
    ) -> None:
        games = VectorBattlesnake.from_config(
            EnvConfig.from_options(options, ("num_games", *_MODE_OPTIONS)), num_games
        )
        env_games, seats = map(np.ravel, np.indices((num_games, games.num_snakes)))
        super().__init__(games, env_games, seats, autoreset_mode, render_mode)

    def _select_seats(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        # The seats are in order. A copy of the whole array is faster than the base class, which
        # indexes the array.
        return array.reshape(self.num_envs, *array.shape[2:]).copy()

    def step(self, actions: npt.NDArray[np.integer[Any]]) -> StepReturn:
        """Play one turn of all games with ``actions``, integers [num_envs]."""
        seats = self._check_actions(actions).reshape(self.games.num_games, self.games.num_snakes)
        _, rewards, terminations, truncations, infos = self.games.step(seats)
        ended = np.logical_not(np.logical_or.reduce(infos["alive"], axis=1))
        return self._step_result(
            rewards.reshape(-1), terminations.reshape(-1), truncations.reshape(-1), ended, infos
        )


def _parse_autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    known = (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP)
    for one in known:
        if mode in (one, one.value, one.name):
            return one
    names = " or ".join(one.value for one in known)
    raise ValueError(f"autoreset_mode must be {names}, got {mode!r}")


def _hash_uniform(
    seeds: npt.NDArray[np.int64], count: int, purpose: int
) -> npt.NDArray[np.float64]:
    """Hash each seed to ``count`` uniform values in [0, 1).

    Returns:
        float64 [len(seeds), count].
    """
    words = seeds.astype(np.uint64)[:, None] * np.uint64(0xD1342543DE82EF95)
    words = words + (np.arange(count, dtype=np.uint64) * np.uint64(4) + np.uint64(purpose)) * (
        np.uint64(0x9E3779B97F4A7C15)
    )
    for _ in range(2):
        words = (words ^ (words >> np.uint64(32))) * np.uint64(0xE9846AF9B1A615D)
    return ((words ^ (words >> np.uint64(28))) >> np.uint64(11)).astype(np.float64) / 2.0**53


def win_rate(
    policy: ActFn,
    opponents: Sequence[Opponent] = ("safe-random",),
    *,
    past_self: ActFn | None = None,
    games: int = 200,
    seed: int = 0,
    **options: Any,
) -> float:
    """Play games and return the fraction that ``policy`` wins, in [0, 1].

    The policy wins a game if the learner is living when all opponents are eliminated.

    Args:
        policy: Function from the observations uint8 [games, C, H, W] and action masks bool [games,
            4] of all games to actions [games].
        opponents: Opponents, as in `BattlesnakeVectorEnv`.
        past_self: Policy of the opponent "past".
        games: Number of games.
        seed: Seed of the games.
        **options: Options of `BattlesnakeVectorEnv`. The default of ``max_turns`` is 500
            (`config.TRAINING_DEFAULTS`).
    """
    # The infos of ended games must not come from new games.
    options = {"max_turns": TRAINING_DEFAULTS.max_turns, **options, "autoreset_mode": "NextStep"}
    envs = BattlesnakeVectorEnv(games, opponents, **options)
    if past_self is not None:
        envs.add_past_self(past_self)
    observations, infos = envs.reset(seed=seed)
    won, playing = np.zeros(games, np.bool_), np.ones(games, np.bool_)
    while playing.any():
        actions = np.asarray(policy(observations, infos["action_mask"]))
        observations, _, terminated, truncated, infos = envs.step(actions)
        won |= playing & terminated & (infos["cause"] == 0)
        playing &= ~(terminated | truncated)
    return float(won.mean())
