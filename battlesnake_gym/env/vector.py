"""Vector environment for training, which plays many games in one call.

The results are numpy arrays. For any number of games, a step consists of two calls of the engine
and a few numpy operations. The first call plays the turn and writes the observations; the second
call writes the action mask. Axes: N games, S seats, C planes, H rows, W columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.error import ClosedEnvironmentError, ResetNeeded
from gymnasium.spaces import Box, Discrete

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.extensions import unregistered_name_message
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.engine.engine import EngineGames, make_games
from battlesnake_gym.game_spec import IntPerGame
from battlesnake_gym.mdp import masks
from battlesnake_gym.mdp.observations import Observation
from battlesnake_gym.mdp.rewards import TurnBatch, get_seats, reversals
from battlesnake_gym.rules import MAPS, MOVES, RULESETS, Game, State, is_over, known_maps

Infos = dict[str, npt.NDArray[Any]]

_SEED_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
"""Difference of the seeds of consecutive episodes.

The difference is 2^64 divided by the golden ratio.
"""

_NO_TURN_LIMIT = np.iinfo(np.int32).max


class VectorBattlesnake:
    """N games of up to S snakes each, which are stepped in one call.

    The arrays have the size of the largest game. A seat without a snake is never alive, and
    observations of smaller boards are centered in their arrays. If every game has one snake, the
    games are solo games; other games with one snake would be over at the start. Games on the map
    ``hz_scatter`` end when hazards fill the board.

    Autoreset is Gymnasium's NEXT_STEP: the step that ends a game returns the last observation of
    the game. The next step starts a new game, ignores the actions of that game and returns reward
    0.

    Each game has a sequence of seeds, which depends only on ``seed`` and on the index of the game.
    The first seed is a hash of both values. Each following seed is larger by a large constant,
    because the official random number streams of neighboring seeds overlap.

    Args:
        num_games: Number of games, N.
        num_snakes: Number of snakes: one integer, or one per game.
        width: Board width in cells: one integer, or one per game.
        height: Board height in cells: one integer, or one per game.
        **options: Further fields of `config.EnvConfig`.

    Raises:
        ValueError: If an option is unknown or a value is out of range.
    """

    observations: npt.NDArray[np.uint8]
    """Current observations, uint8 [N, S, C, H, W], in the read-only array that `step` returns."""

    def __init__(
        self,
        num_games: int,
        num_snakes: IntPerGame = EnvConfig.num_snakes,
        width: IntPerGame = EnvConfig.width,
        height: IntPerGame = EnvConfig.height,
        **options: Any,
    ) -> None:
        sizes = {"num_snakes": num_snakes, "width": width, "height": height}
        config = EnvConfig.from_options(sizes | options, ["num_games"])
        start = config.start_state
        self.game = _check_game(config.game, num_snakes)
        self.max_turns = _check_max_turns(config.max_turns)
        self.observation = config.observation_encoder
        self.action_mask_kind = masks.check_kind(config.action_mask)
        self.games = make_games(
            num_games,
            width=width,
            height=height,
            num_snakes=num_snakes,
            game=self.game,
            food_rng=config.food_rng,
        )
        if isinstance(config.settings, Mapping):
            # The start positions of `reset` may have hazards on every map.
            config.check_settings({*config.settings} - {"hazard_damage_per_turn"}, "settings: ")
        self.num_games = num_games
        self.num_snakes = self.games.num_snakes
        self.rewards = get_seats(config.rewards, self.num_snakes)
        self._sides = np.broadcast_arrays(width, height, np.empty(num_games))[:2]
        self.board_sizes: frozenset[tuple[int, int]] = frozenset(
            zip(*(side.tolist() for side in self._sides), strict=True)
        )
        """Distinct board sizes (width, height) of the games, in cells."""
        largest = int(np.max(width)), int(np.max(height))
        self.single_observation_space: Box = self.observation.space(*largest)
        self.single_action_space: Discrete[np.int64] = Discrete(len(MOVES))

        # These flags select the work that Python does instead of the engine. The flags are computed
        # once, because every step reads the flags.
        self._observe_in_python = (
            isinstance(self.games, EngineGames) and not self.observation.in_engine
        )
        self._need_positions = self.rewards.needs_positions

        seats = num_games, self.num_snakes
        self._obs = np.zeros((*seats, *self.observation.shape(*largest)), np.uint8)
        self._extra_obs: dict[
            tuple[Observation, tuple[int, int, int], bool], npt.NDArray[np.uint8]
        ] = {}
        self._register_observations()
        self.last_action_mask = self._masks = np.ones((*seats, len(MOVES)), np.bool_)
        """Action mask of the last ``infos``, bool [N, S, 4]."""
        self._actions = np.zeros(seats, np.uint8)
        self.alive = np.zeros(seats, np.bool_)
        """Seats that act next, bool [N, S], including changes by `end_games`."""
        self._ended = np.ones(num_games, np.bool_)
        self._streams: npt.NDArray[np.uint64] | None = None
        self._seeds = np.zeros(num_games, np.int64)
        self._start: tuple[State, ...] = () if start is None else (start,)
        self._map_places_food = config.food_positions is None
        self._states: tuple[State, ...] = self._start
        self._starts_used = np.zeros(num_games, np.int64)
        self.episodes = np.zeros(num_games, np.int64)
        """Number of games started so far, int64 [N]; a recurrent state is valid for one of them."""
        self._ready = False
        self._closed = False
        self.last_turn: TurnBatch | None = None
        """Arrays of the last turn, which for example `rewards.count_metrics` reads."""

    @classmethod
    def from_config(cls, config: EnvConfig, num_games: int) -> VectorBattlesnake:
        """Create ``num_games`` games with ``config``; see the class for the errors."""
        return cls(num_games, **{one.name: getattr(config, one.name) for one in fields(EnvConfig)})

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[npt.NDArray[np.uint8], Infos]:
        """Start a new game in every sub-environment.

        Args:
            seed: Seed from which the sequences of seeds restart; None continues the sequences. The
                first reset without a seed uses a seed from the operating system.
            options: ``{"states": [...]}`` sets the start positions. Each position is a `State`, a
                `Board` (of a replay, for example) or the decoded JSON body of a /move request.
                Until the next `reset`, the k-th episode of game i starts from position ``(i + k) %
                len(states)``.

        Returns:
            The observations and infos, in the format of `step`.
        """
        self.check_open()
        self._ready = False
        self._states = parse_start_states(options or {}) or self._start
        for i, state in enumerate(self._states):
            self._check_start(f"states[{i}]", state)
        if seed is not None and (not isinstance(seed, int | np.integer) or seed < 0):
            raise ValueError(f"seed must be a whole number of at least 0, or None, got {seed!r}")
        if seed is not None or self._streams is None:
            words = np.random.SeedSequence(seed).generate_state(self.num_games, np.uint64)
            self._streams = words.astype(np.uint64)
        self._starts_used[:] = 0
        self._turn_limits = self._turn_limit(*self._sides)
        everything = np.ones(self.num_games, np.bool_)
        self._start_games(everything)
        self._ended = np.zeros(self.num_games, np.bool_)
        self.alive = self.games.alive.copy()
        self._ready = True
        return self.observations, self._infos(acted=np.zeros_like(self.alive), reset=everything)

    def step(
        self, actions: npt.NDArray[np.integer[Any]]
    ) -> tuple[
        npt.NDArray[np.uint8],
        npt.NDArray[np.float32],
        npt.NDArray[np.bool_],
        npt.NDArray[np.bool_],
        Infos,
    ]:
        """Play one turn of every running game.

        New games replace ended games. The environment owns the memory of the observations
        (read-only) and infos. The next step overwrites this memory, so copy arrays for later use.
        ``alive``, ``acted``, ``reset``, rewards, terminations and truncations are new arrays in
        every step.

        Infos:

        * ``action_mask``: bool [N, S, 4];
        * ``alive``: bool [N, S], the seats that act next;
        * ``acted``: bool [N, S], the seats that acted in this step;
        * ``reset``: bool [N], the games that started in this step;
        * ``cause``: uint8 [N, S], index into `rules.CAUSES`;
        * ``killer``: int8 [N, S], a seat or -1;
        * ``length``: int32 [N, S];
        * ``health``: int16 [N, S];
        * ``turn``: int32 [N];
        * ``seed``: int64 [N], the seeds of the running games.

        Args:
            actions: Integers [N, S], indices into `rules.MOVES`. Actions of seats that are not
                alive and of games that start are ignored, but must be in range.

        Returns:
            Observations uint8 [N, S, C, H, W], zero for eliminated snakes; rewards float32 [N, S];
            terminations and truncations bool [N, S]; infos. A seat terminates in the step in which
            the snake is eliminated or the game is over. The living seats of a game are truncated in
            the step that reaches ``max_turns``, unless the game is over.

        Raises:
            ValueError: If the actions have the wrong shape or dtype or are out of range.
            ResetNeeded: If `reset` was not called.
            ClosedEnvironmentError: If the environment is closed.
        """
        self.check_open()
        if not self._ready:
            raise ResetNeeded("call reset() before the first step()")
        self._store_actions(actions)
        games, reset, acted = self.games, self._ended, self.alive
        reversed_ = reversals(self._actions, games.facing)
        heads_before = games.heads.copy() if self._need_positions else None
        if reset.any():
            games.step(self._actions, ~reset)
            self._start_games(reset)
        else:
            games.step(self._actions)
        if self._observe_in_python:
            self._encode_in_python(~reset)
        alive, over = games.alive.copy(), games.over.copy()
        self.last_turn = TurnBatch(
            acted, reversed_, over, alive, games.ate, games.cause, games.killer
        )
        if heads_before is not None:
            self.last_turn = replace(
                self.last_turn,
                heads_before=heads_before,
                heads=games.heads.copy(),
                length=games.length.copy(),
                health=games.health.copy(),
            )
        rewards = self.rewards.compute(self.last_turn)

        truncated = ~over & (games.turn >= self._turn_limits)
        terminations = acted & (~alive | over[:, None])
        truncations = acted & alive & truncated[:, None]
        self._ended = over | truncated
        self.alive = alive & ~self._ended[:, None]
        infos = self._infos(acted, reset)
        return self.observations, rewards, terminations, truncations, infos

    def close(self) -> None:
        """Close the environment; later calls raise ``ClosedEnvironmentError``."""
        self._closed = True

    def end_games(self, which: npt.NDArray[np.bool_]) -> None:
        """End the games that ``which`` (bool [N]) selects, as if these games were over.

        The seats of these games no longer act, and the next `step` starts new games. Use this
        method if the learner is eliminated and does not need the rest of a game.
        """
        self._ended = self._ended | which
        self.alive = self.alive & ~self._ended[:, None]

    def reset_ended(self) -> Infos:
        """Start new games immediately in place of the games that have ended.

        Games end in `step` or by `end_games`. Gymnasium's autoreset mode SAME_STEP uses this
        method. Read the last observations of the ended games before the call, because the call
        overwrites these observations.

        Returns:
            The infos, in the format of `step`.
        """
        ended = self._ended
        if turn := self.last_turn:
            # The new games overwrite the engine's arrays.
            ate, cause, killer = turn.ate.copy(), turn.cause.copy(), turn.killer.copy()
            self.last_turn = replace(turn, ate=ate, cause=cause, killer=killer)
        self._start_games(ended)
        self._ended = np.zeros(self.num_games, np.bool_)
        self.alive = self.games.alive & (self.alive | ended[:, None])
        return self._infos(acted=np.zeros_like(self.alive), reset=ended)

    def start_state(self, game: int) -> State | None:
        """Return the start position of the current episode.

        The result is None unless the options of `reset` contain start positions.

        Args:
            game: Index of the game.
        """
        if self._states is self._start:
            return None
        return self._states[(game + int(self._starts_used[game]) - 1) % len(self._states)]

    def observe_as(
        self, observation: Observation, shape: tuple[int, int, int], complete: bool = False
    ) -> npt.NDArray[np.uint8]:
        """Return the current observations of all seats from another encoder.

        Every later change updates the array. Do not write to the array.

        Args:
            observation: Encoder of the observations.
            shape: Shape (C, H, W) of one observation.
            complete: Whether to show hidden cells too, despite a limited view.

        Returns:
            uint8 [N, S, C, H, W].

        Raises:
            ValueError: If the engine does not support the encoder, or if there are more than seven
                encoders.
        """
        complete = complete and self.games.game.settings.view_radius is not None
        if observation == self.observation and shape == self._obs.shape[2:] and not complete:
            return self._obs
        key = observation, shape, complete
        if key not in self._extra_obs:
            seen = np.zeros((self.num_games, self.num_snakes, *shape), np.uint8)
            self.games.observe(observation, seen, len(self._extra_obs) + 1, shape, complete)
            self._extra_obs[key] = seen
        return self._extra_obs[key]

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the environment without the view of the observations."""
        return {name: value for name, value in self.__dict__.items() if name != "observations"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        seen = self._obs.copy()
        self._register_observations()
        # The pickled array contains the earlier stacked turns, which the engine does not store.
        self._obs[:] = seen
        for slot, ((observation, shape, complete), other) in enumerate(self._extra_obs.items(), 1):
            seen = other.copy()
            self.games.observe(observation, other, slot, shape, complete)
            other[:] = seen

    def _register_observations(self) -> None:
        """Register the observation array if the engine supports the observation."""
        if not self._observe_in_python:
            self.games.observe(self.observation, self._obs)
        self.observations = self._obs.view()
        # The engine updates only changed bytes, so no other code may write to the array.
        self.observations.flags.writeable = False

    def _encode_in_python(self, which: npt.NDArray[np.bool_]) -> None:
        """Encode the observations of the games that ``which`` (bool [N]) selects."""
        for i in np.flatnonzero(which).tolist():
            state, view_radius = self.games.state(i), self.games.game.settings.view_radius
            for seat, snake in enumerate(state.snakes):
                self.observation.encode(
                    state, snake.id, self._obs[i, seat], view_radius=view_radius
                )

    def _start_games(self, which: npt.NDArray[np.bool_]) -> None:
        """Start new games in place of the games that ``which`` (bool [N]) selects."""
        assert self._streams is not None
        self._seeds[which] = (self._streams[which] >> np.uint64(1)) | np.uint64(1)
        self._streams[which] += _SEED_INCREMENT
        self.episodes[which] += 1
        self.games.reset(self._seeds, which)
        if self._states:
            for i in np.flatnonzero(which).tolist():
                state = self._states[(i + int(self._starts_used[i])) % len(self._states)]
                if self._states is self._start:
                    state = self._place_on_map(state, i)
                self.games.load(i, state, replace(self.game, seed=int(self._seeds[i])))
                self._turn_limits[i] = self._turn_limit(state.width, state.height)
            self._starts_used[which] += 1
        if self._observe_in_python:
            self._obs[which] = 0
            self._encode_in_python(which)

    def _place_on_map(self, start: State, game: int) -> State:
        """Return the map's position of a new game, with the snakes and fixed food of ``start``."""
        state = self.games.state(game)
        heads = [snake.head for snake in start.snakes]
        state.food = (
            [cell for cell in state.food if cell not in heads]
            if self._map_places_food
            else start.food
        )
        state.snakes = start.snakes
        return state

    def _infos(self, acted: npt.NDArray[np.bool_], reset: npt.NDArray[np.bool_]) -> Infos:
        games = self.games
        games.action_mask(self.action_mask_kind, self._masks)
        mask = self.last_action_mask = self.observation.relative_mask(self._masks, games.facing)
        return {
            "action_mask": mask,
            "alive": self.alive,
            "acted": acted,
            "reset": reset,
            "cause": games.cause,
            "killer": games.killer,
            "length": games.length,
            "health": games.health,
            "turn": games.turn,
            "seed": self._seeds,
        }

    def _store_actions(self, actions: npt.NDArray[np.integer[Any]]) -> None:
        """Check the actions and copy them into the array that the engine reads."""
        actions = np.asarray(actions)
        if actions.shape != self._actions.shape:
            raise ValueError(
                f"actions must have the shape {self._actions.shape} (games, seats), "
                f"got {actions.shape}"
            )
        if actions.dtype.kind not in "iu":
            raise ValueError(
                f"actions must be integers (indices into {MOVES}), got dtype {actions.dtype}"
            )
        # The shifted value is nonzero for every integer outside [0, 3], also for negative integers.
        if (actions >> 2).any():
            wrong = actions[(actions < 0) | (actions >= len(MOVES))][0]
            raise ValueError(
                f"actions must be between 0 and {len(MOVES) - 1} (indices into {MOVES}), "
                f"got {wrong}"
            )
        if self.observation.relative:
            actions = self.observation.absolute_actions(actions, self.games.facing)
        np.copyto(self._actions, actions, casting="unsafe")

    def _turn_limit(self, width: Any, height: Any) -> npt.NDArray[np.int64]:
        """Return the turn at which games on boards of this size or these sizes are truncated."""
        limit = np.full(np.shape(width), min(self.max_turns or _NO_TURN_LIMIT, _NO_TURN_LIMIT))
        if self.game.map == "hz_scatter":
            # The official engine crashes on the turn on which this map has no free cell.
            limit = np.minimum(limit, 2 * np.multiply(width, height, dtype=np.int64) + 1)
        return limit

    def _check_start(self, name: str, state: State) -> None:
        """Raise ``ValueError`` for a position from which the games cannot start."""
        if is_over(self.game, state):
            raise ValueError(f"{name} is a finished game (turn {state.turn}); use an earlier turn")
        if state.turn >= (limit := self._turn_limit(state.width, state.height)):
            raise ValueError(
                f"{name} is at turn {state.turn}, but the game ends at turn {limit}; "
                "use an earlier turn or a larger max_turns"
            )
        try:
            # This call only checks the state; the reset loads the state again.
            self.games.load(0, state)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error

    def check_open(self) -> None:
        """Raise ``ClosedEnvironmentError`` if the environment is closed."""
        if self._closed:
            raise ClosedEnvironmentError("this environment is closed; create a new one")


def parse_start_states(options: Mapping[str, Any]) -> tuple[State, ...]:
    """Parse the start positions in reset options: ``{}`` or ``{"states": [...]}``.

    Args:
        options: Options of `reset`. Each state is a `State`, a `Board` or the decoded JSON body of
            a /move request.

    Raises:
        ValueError: If an option is unknown or a state is invalid.
    """
    for name in options:
        if name != "states":
            raise ValueError(f"unknown option {name!r}; the only option is 'states'")
    states = options.get("states")
    if states is None:
        return ()
    if isinstance(states, State | Mapping | str) or not isinstance(states, Iterable):
        raise ValueError(f"states must be a list of positions, got {type(states).__name__}")
    positions = []
    for i, state in enumerate(states):
        if not isinstance(state, State | Mapping):
            raise ValueError(
                f"states[{i}] must be a State, a Board or the JSON body of a /move request, "
                f"got {type(state).__name__}"
            )
        try:
            positions.append(state if isinstance(state, State) else Board.from_api(state))
        except ValueError as error:
            raise ValueError(f"states[{i}]: {error}") from error
    if not positions:
        raise ValueError("states is empty; give at least one position, or omit the option")
    return tuple(positions)


def _check_game(game: Game, num_snakes: IntPerGame) -> Game:
    """Return ``game``, with ``solo`` set if every game has one snake.

    Raises:
        ValueError: If the ruleset or map is unknown, or a game would be over at the start.
    """
    if not isinstance(game.ruleset, str) or game.ruleset not in RULESETS:
        raise ValueError(unknown_name_message("ruleset", game.ruleset, RULESETS))
    if not isinstance(game.map, str) or (game.map not in MAPS and game.map not in known_maps()):
        raise ValueError(unregistered_name_message("map", game.map, MAPS, "battlesnake-gym maps"))
    alone = np.asarray(num_snakes) == 1
    if alone.all():
        return replace(game, solo=True)
    if alone.any() and game.ruleset != "solo":
        raise ValueError(
            "num_snakes mixes games of one snake with larger games, and a game of one snake "
            "would be over at the start; use 2 or more, or the ruleset solo"
        )
    return game


def _check_max_turns(max_turns: Any) -> int | None:
    """Return ``max_turns`` if it is a valid limit.

    Raises:
        ValueError: If it is neither None nor an integer of at least 1.
    """
    if max_turns is None:
        return None
    if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
        raise ValueError(
            f"max_turns must be a whole number of at least 1, or None, got {max_turns!r}"
        )
    return max_turns
