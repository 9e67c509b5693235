"""Batch engine in C, which plays one turn of many games in one call.

The results are numpy arrays. `Games` plays N games of up to S snakes. The arrays are read-only
views of the engine's memory, so every call updates the arrays. Without the compiled module
(`COMPILED` is False), `python_engine` provides the same methods, based on the Python rules.

>>> games = Games(2, num_snakes=2)
>>> games.reset(np.array([1, 2]))
>>> games.step(np.array([[0, 0], [3, 3]], np.uint8))
>>> games.turn
array([1, 1], dtype=int32)
>>> games.length
array([[3, 3],
       [3, 3]], dtype=int32)
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.config import EnvConfig
from battlesnake_gym.engine import argument_checks, build_check, state_words
from battlesnake_gym.engine.argument_checks import (
    FOOD_RNGS,
    GAME_ARRAYS,
    NO_MOVE,
    SEAT_ARRAYS,
    GameArrays,
)
from battlesnake_gym.engine.python_engine import PythonGames
from battlesnake_gym.game_spec import STANDARD_GAME, IntPerGame
from battlesnake_gym.mdp import masks
from battlesnake_gym.mdp.observations import Observation
from battlesnake_gym.rules import Game, State
from battlesnake_gym.rules.maps import ENGINE_MAPS

SLOW_RULES_WARNING = "games run on the Python rules, many times slower"

if TYPE_CHECKING:
    from battlesnake_gym.engine import _engine
    from battlesnake_gym.engine._engine import Batch
else:
    _engine = build_check.load_compiled_module("battlesnake_gym.engine._engine", SLOW_RULES_WARNING)

COMPILED: bool = _engine is not None

if TYPE_CHECKING:
    pass
elif COMPILED:
    Batch = _engine.Batch
else:

    class Batch:
        """Placeholder base class that is used if the compiled module is missing."""


__all__ = ["COMPILED", "FOOD_RNGS", "NO_MOVE", "EngineGames", "Games"]


class EngineGames(Batch, GameArrays):
    """N games of up to S snakes with the same ruleset, settings and map.

    The module exports this class as `Games`.

    The games have no position before the first `reset` or `load`: ``over`` is True.

    A call that processes more than 32 games releases the GIL. Only one thread may use an object at
    a time: a concurrent call of the same object raises ``RuntimeError``.

    The arrays are read-only; a seat without a snake is never alive:

    * ``turn`` int32 [N], ``over`` bool [N], ``seed`` int64 [N]
    * ``new_food`` uint16 [N], the number of food cells that appeared on this turn; 0 after the load
      of a later position
    * ``alive`` bool [N, S], ``health`` int16 [N, S]
    * ``length`` int32 [N, S], 0 for eliminated snakes
    * ``heads`` int16 [N, S, 2], (x, y); for a snake that left the board, the cell outside
    * ``cause`` uint8 [N, S], index into `rules.CAUSES`; ``killer`` int8 [N, S], a seat or -1
    * ``ate`` bool [N, S], living snakes that ate on the last turn
    * ``facing`` uint8 [N, S], index into `rules.MOVES`: the direction from neck to head (up for a
      stacked body). A snake without a valid move continues in this direction

    Args:
        num_games: Number of games, N.
        width: Board width in cells, 1 to 25: one integer, or one per game.
        height: Board height in cells, 1 to 25: one integer, or one per game.
        num_snakes: Number of snakes, 1 to 16: one integer, or one per game. S is the maximum.
        game: Rules of the games. The seed in ``game`` is ignored, because `reset` receives the
            seeds.
        food_rng: Random number stream of food that appears during a game. With "official", a seed
            reproduces the official engine's game. "fast" is this engine's stream, with the same
            distribution. Start positions, initial food, hazards and the mazes of ``solo_maze``
            always use the official stream.

    Raises:
        ValueError: If a value is out of range, or if the map or the ruleset rejects the value.
    """

    _ids: dict[int, list[str]]
    """Snake ids of the games that `load` has loaded, by game index."""

    def __new__(
        cls,
        num_games: int,
        *,
        width: IntPerGame = EnvConfig.width,
        height: IntPerGame = EnvConfig.height,
        num_snakes: IntPerGame = EnvConfig.num_snakes,
        game: Game = STANDARD_GAME,
        food_rng: str = EnvConfig.food_rng,
    ) -> EngineGames:
        """Create the games after a check of all arguments."""
        sizes, numbers = argument_checks.check_game_arguments(
            num_games, width, height, num_snakes, game, food_rng
        )
        games = super().__new__(cls, num_games, sizes, numbers, game.map)
        games._set_attributes(sizes, game, food_rng)
        games._ids = {}
        for name, view in _create_views(games, num_games, games.num_snakes).items():
            setattr(games, name, view)
        return games

    # `Batch` provides the method `step(actions, which=None)`. A Python wrapper of this method would
    # double the time of one turn of one game.

    def reset(self, seeds: NDArray[np.int64], which: NDArray[np.bool_] | None = None) -> None:
        """Start new games.

        Args:
            seeds: int64 [N], the seed of each game; 0 is invalid.
            which: bool [N], the games to start; None means all games.

        Raises:
            ValueError: If a dtype or shape is wrong, if a seed is 0, or if the snakes do not fit on
                the board. The map "" is also rejected, because this map places no snakes.
        """
        super().reset(seeds, which)
        if self._ids:
            started = np.ones(self.num_games, np.bool_) if which is None else which
            for game in np.flatnonzero(started).tolist():
                self._ids.pop(game, None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the positions, without the arrays that `observe` updates.

        Only the same version of the compiled engine can read the pickle; any other version raises
        ``ValueError``.
        """
        recipe = dict(
            zip(("width", "height", "num_snakes"), zip(*self._sizes, strict=True), strict=True),
            num_games=self.num_games,
            game=self.game,
            food_rng=self.food_rng,
        )
        return _restore_games, (recipe, _engine.SOURCES_HASH, self.dump(), self._ids)

    def state(self, game: int) -> State:
        """Return the position of one game as a `State` of the Python rules.

        The snake ids come from the last loaded state. Without a loaded state, the ids are
        ``snake_0``, ``snake_1``, and so on.
        """
        ids = self._ids.get(game) or argument_checks.default_snake_names(self.num_snakes)
        state = state_words.unpack_state(self.export_words(game), ids)
        state.new_food = int(self.new_food[game])
        return state

    def load(self, game: int, state: State, rules: Game | None = None) -> None:
        """Load ``state`` into one game, which continues from that position.

        The compiled engine rejects the following states:

        * living bodies of one segment, and bodies that overlap except as a stacked tail;
        * living segments or food off the board;
        * living snakes with a health outside [1, 100];
        * boards or snakes beyond the limits of these games;
        * more food than cells, and very long hazard lists.

        Args:
            game: Index of the game.
            state: Position to load.
            rules: Rules with the seed of future food and hazards. All other fields must equal the
                rules of these games. None means the rules and the seed of ``game``.

        Raises:
            ValueError: If the state or the rules are rejected. In this case, no game changes.
        """
        rules = self.game if rules is None else rules
        argument_checks.check_load(self.game, self._largest, state, rules)
        self.import_words(game, rules.seed, state_words.pack_state(state))
        self._ids[game] = [snake.id for snake in state.snakes]

    def observe(
        self,
        observation: Observation,
        out: NDArray[np.uint8],
        slot: int = 0,
        shape: tuple[int, int, int] | None = None,
        complete: bool = False,
    ) -> None:
        """Write the observations to ``out``, and update ``out`` after every later change.

        Every later `step`, `reset` and `load` updates the array, until `observe` receives another
        array for the same ``slot``. The engine writes only the bytes that change, so no other code
        may write to ``out``. After a write to ``out``, call `observe` again to write the whole
        array.

        Observations of eliminated snakes are zero. Stacked turns before this call, or before the
        game's last `reset` or `load`, are also zero.

        Args:
            observation: Encoder of the observations.
            out: uint8 [N, S, C, H, W].
            slot: Index of the output, 0 to 7.
            shape: (C, H, W); None means ``observation.shape`` of the maximum width and height.
                Boards are centered in larger arrays.
            complete: Whether to show hidden cells too, despite a limited view.
        """
        shape = shape or observation.shape(*self._largest[:2])
        stack = observation.frame_stack
        self.observe_into(slot, *observation.codes, stack, *shape[1:], complete, out)

    def action_mask(self, kind: str, out: NDArray[np.bool_]) -> None:
        """Write the action masks of ``kind`` to ``out``, bool [N, S, 4]; see `masks`."""
        flags = masks.fault_flags(kind)
        if flags is None:
            masks.write_masks(self.game, map(self.state, range(self.num_games)), kind, out)
        else:
            self.action_mask_into(flags, out)


def _restore_games(
    recipe: dict[str, Any], sources: str, dump: bytes, ids: dict[int, list[str]]
) -> Any:
    """Restore games from the data of a pickle."""
    if sources != getattr(_engine, "SOURCES_HASH", None):
        raise ValueError(
            "these games were pickled by another version of the compiled engine, which this "
            "version cannot read; create new games and load() their positions"
        )
    games = EngineGames(**recipe)
    games.restore(dump)
    games._ids = {game: list(names) for game, names in ids.items()}
    return games


def _create_views(batch: Any, num_games: int, seats: int) -> dict[str, NDArray[Any]]:
    """Return the arrays of a batch by name, as views of the engine's memory."""
    at = batch.layout()
    memory = memoryview(batch)
    size, snakes, snake = at["record_size"], at["snakes"], at["snake_size"]

    def create_view(dtype: Any, offset: int, *more: tuple[int, int]) -> NDArray[Any]:
        shape = (num_games, *(length for length, _ in more))
        strides = (size, *(stride for _, stride in more))
        return np.ndarray(shape, dtype, memory, offset, strides)

    views = {name: create_view(dtype, at[name]) for name, dtype in GAME_ARRAYS.items()}
    for name, dtype in SEAT_ARRAYS.items():
        views[name] = create_view(dtype, snakes + at[name], (seats, snake))
    views["heads"] = create_view(np.int16, snakes + at["heads"], (seats, snake), (2, 2))
    views["facing"] = create_view(np.uint8, at["facing"], (seats, 1))
    return views


def make_games(num_games: int, *, game: Game, **options: Any) -> EngineGames:
    """Create `Games`, or `PythonGames` if only the Python rules implement the map.

    A warning reports the use of `PythonGames`.
    """
    if COMPILED and game.map not in ("", *ENGINE_MAPS):
        warnings.warn(
            f"the compiled engine does not implement the map {game.map!r}, so {SLOW_RULES_WARNING}",
            RuntimeWarning,
            stacklevel=3,
        )
        games: Any = PythonGames
    else:
        games = Games
    made: EngineGames = games(num_games, game=game, **options)
    return made


if TYPE_CHECKING or COMPILED:  # noqa: SIM108 (makes the name a type)
    Games = EngineGames
else:
    Games = PythonGames
