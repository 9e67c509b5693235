"""Python engine for systems without the compiled module.

The Python engine has the same methods as the compiled engine, and is a few hundred times slower.
Food always uses the random number stream of the official engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.config import EnvConfig
from battlesnake_gym.engine import argument_checks
from battlesnake_gym.engine.argument_checks import GAME_ARRAYS, NO_MOVE, SEAT_ARRAYS, GameArrays
from battlesnake_gym.game_spec import STANDARD_GAME, IntPerGame
from battlesnake_gym.mdp import masks
from battlesnake_gym.mdp.observations import Observation
from battlesnake_gym.rules import CAUSES, MOVES, Game, State, is_over, start, step
from battlesnake_gym.rules.stages import default_move, move_snakes


class PythonGames(GameArrays):
    """Batch of games that uses the Python rules; see `engine.EngineGames`."""

    def __init__(
        self,
        num_games: int,
        *,
        game: Game = STANDARD_GAME,
        food_rng: str = EnvConfig.food_rng,
        **sizes: IntPerGame,
    ) -> None:
        checked, _ = argument_checks.check_game_arguments(
            num_games, game=game, food_rng=food_rng, **sizes
        )
        self._set_attributes(checked, game, food_rng)
        self._games = [game] * num_games
        self._states = [State(0, width, height, []) for width, height, _ in self._sizes]
        self._observers: dict[int, tuple[Observation, NDArray[np.uint8], bool]] = {}
        self._create_arrays()

    def reset(self, seeds: NDArray[np.int64], which: NDArray[np.bool_] | None = None) -> None:
        """Start new games; see `engine.EngineGames.reset`."""
        _check_array("seeds", seeds, np.int64, (self.num_games,))
        chosen = self._selected_games(which)
        if not self.game.map:
            raise ValueError(
                "map '' places no snakes: choose a map, or load() a state into each game"
            )
        for i in chosen:
            if not seeds[i]:
                raise ValueError(f"seeds[{i}] must not be 0: use any other number")
        for i in chosen:
            width, height, num_snakes = self._sizes[i]
            self._games[i] = replace(self.game, seed=int(seeds[i]))
            ids = argument_checks.default_snake_names(num_snakes)
            self._states[i] = start(self._games[i], width, height, ids)
            self._update_arrays(i, ate=[])
            self._update_observations(i, restart=True)

    def step(self, actions: NDArray[np.uint8], which: NDArray[np.bool_] | None = None) -> None:
        """Play one turn of the games that are not over; see `_engine.Batch.step`."""
        _check_array("actions", actions, np.uint8, (self.num_games, self.num_snakes))
        chosen = [i for i in self._selected_games(which) if not self.over[i]]
        for i in chosen:
            for seat, snake in enumerate(self._states[i].snakes):
                if snake.alive and actions[i, seat] > NO_MOVE:
                    raise ValueError(
                        f"actions[{i}, {seat}] is {actions[i, seat]}; it must be 0 to 3 "
                        "(up, down, left, right) or 4 for no valid move"
                    )
        for i in chosen:
            state = self._states[i]
            food = set(state.food)
            names = (*MOVES, "")
            moves = {
                snake.id: names[actions[i, seat]]
                for seat, snake in enumerate(state.snakes)
                if snake.alive
            }
            # The map ``solo_maze`` moves a snake that eats, so the heads come from a copy.
            moved = replace(state, snakes=[replace(s, body=[*s.body]) for s in state.snakes])
            move_snakes(self.game, moved, moves)
            step(self._games[i], state, moves)
            self._update_arrays(i, ate=[snake.head in food for snake in moved.snakes])
            self._update_observations(i)

    def state(self, game: int) -> State:
        """Return the position of one game; see `engine.EngineGames.state`."""
        self._check_game(game)
        return deepcopy(self._states[game])

    def load(self, game: int, state: State, rules: Game | None = None) -> None:
        """Load any state into one game; see `engine.EngineGames.load`."""
        self._check_game(game)
        rules = self.game if rules is None else rules
        argument_checks.check_load(self.game, self._largest, state, rules)
        self._games[game] = replace(self.game, seed=rules.seed)
        self._states[game] = deepcopy(state)
        self._states[game].new_food = len(state.food) if state.turn == 0 else 0
        self._update_arrays(game, ate=[])
        self._update_observations(game, restart=True)

    def observe(
        self,
        observation: Observation,
        out: NDArray[np.uint8],
        slot: int = 0,
        shape: tuple[int, int, int] | None = None,
        complete: bool = False,
    ) -> None:
        """Update ``out`` after every change; see `engine.EngineGames.observe`."""
        shape = shape or observation.shape(*self._largest[:2])
        _check_array("out", out, np.uint8, (self.num_games, self.num_snakes, *shape))
        self._observers[slot] = observation, out, complete
        for i in range(self.num_games):
            self._update_observations(i, restart=True, slots=[slot])

    def action_mask(self, kind: str, out: NDArray[np.bool_]) -> None:
        """Write the masks of ``kind`` to ``out``; see `engine.EngineGames.action_mask`."""
        _check_array("out", out, np.bool_, (self.num_games, self.num_snakes, len(MOVES)))
        masks.write_masks(self.game, self._states, kind, out)

    def _update_observations(
        self, i: int, restart: bool = False, slots: Iterable[int] | None = None
    ) -> None:
        """Update the observations of game ``i``.

        Args:
            i: Index of the game.
            restart: Whether to clear the stacked turns before the current position.
            slots: Outputs to update; None updates all outputs.
        """
        for slot in self._observers if slots is None else slots:
            observation, out, complete = self._observers[slot]
            if restart:
                out[i] = 0
            for seat, snake in enumerate(self._states[i].snakes):
                view_radius = None if complete else self.game.settings.view_radius
                observation.encode(self._states[i], snake.id, out[i, seat], view_radius=view_radius)

    def _selected_games(self, which: NDArray[np.bool_] | None) -> list[int]:
        if which is None:
            return list(range(self.num_games))
        _check_array("which", which, np.bool_, (self.num_games,))
        return [int(i) for i in np.flatnonzero(which)]

    def _check_game(self, game: int) -> None:
        if not 0 <= game < self.num_games:
            raise IndexError(f"game must be between 0 and {self.num_games - 1}, got {game}")

    def __getstate__(self) -> dict[str, Any]:
        """Pickle all attributes except the arrays and the registered observations."""
        return {k: v for k, v in self.__dict__.items() if k not in self._arrays} | {
            "_observers": {}
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._publish_views()

    def _create_arrays(self) -> None:
        """Create the arrays and their read-only views.

        Only `_update_arrays` writes to the arrays.
        """
        seats = self.num_games, self.num_snakes
        self._arrays: dict[str, NDArray[Any]] = {}
        for name, dtype in GAME_ARRAYS.items():
            self._arrays[name] = np.zeros(self.num_games, dtype)
        for name, dtype in SEAT_ARRAYS.items():
            self._arrays[name] = np.zeros(seats, dtype)
        self._arrays["heads"] = np.zeros((*seats, 2), np.int16)
        self._arrays["facing"] = np.zeros(seats, np.uint8)
        self._arrays["killer"][:] = -1
        self._arrays["over"][:] = True
        self._publish_views()

    def _publish_views(self) -> None:
        for name, array in self._arrays.items():
            view = array.view()
            view.flags.writeable = False
            setattr(self, name, view)

    def _update_arrays(self, i: int, ate: list[bool]) -> None:
        """Copy the position of game ``i`` into the arrays."""
        state, arrays = self._states[i], self._arrays
        for name, array in arrays.items():
            array[i] = -1 if name == "killer" else 0
        arrays["turn"][i] = state.turn
        arrays["seed"][i] = self._games[i].seed
        arrays["over"][i] = is_over(self._games[i], state)
        arrays["new_food"][i] = state.new_food
        seats = {snake.id: seat for seat, snake in enumerate(state.snakes)}
        for seat, snake in enumerate(state.snakes):
            row = {
                "alive": snake.alive,
                "health": snake.health,
                "length": snake.length if snake.alive else 0,
                "cause": CAUSES.index(snake.eliminated_cause),
                "killer": seats.get(snake.eliminated_by, -1),
                "ate": snake.alive and bool(ate) and ate[seat],
                "facing": MOVES.index(default_move(snake.body)),
                "heads": snake.head,
            }
            for name, value in row.items():
                arrays[name][i, seat] = value


def _check_array(name: str, array: Any, dtype: type, shape: tuple[int, ...]) -> None:
    """Raise ``ValueError`` for an array that the compiled engine would reject too."""
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
        refuse_array(name, array, np.dtype(dtype).name, shape)


def refuse_array(
    name: str, array: object, dtype: str, shape: tuple[int, ...], writable: bool = False
) -> NoReturn:
    """Raise a ``ValueError`` that describes the expected array.

    The compiled engine calls this function too.
    """
    got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array)
    raise ValueError(
        f"{name} must be a {'writable, ' if writable else ''}C-contiguous array of dtype {dtype} "
        f"and shape {shape}, got {got}"
    )
