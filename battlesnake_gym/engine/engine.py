"""The batch engine: many games at once, by the rules in C, with numpy arrays.

`Games` plays N games of up to S snakes. Its arrays are read-only views of the engine's memory and
are current after every call. Without the compiled module (`COMPILED` is False), `python_engine`
provides the same calls on the Python rules.

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

from battlesnake_gym.config import STANDARD_GAME, EnvConfig, Sizes
from battlesnake_gym.engine import argument_checks, build_check, state_words
from battlesnake_gym.engine.argument_checks import (
    FOOD_RNGS,
    GAME_ARRAYS,
    NO_MOVE,
    SEAT_ARRAYS,
    GameArrays,
)
from battlesnake_gym.engine.python_engine import PythonGames
from battlesnake_gym.mdp import masks
from battlesnake_gym.mdp.observations import Observation
from battlesnake_gym.rules import Game, State
from battlesnake_gym.rules.maps import ENGINE_MAPS

SLOW_RULES_WARNING = "games run on the Python rules, many times slower"

if TYPE_CHECKING:
    from battlesnake_gym.engine import _engine
    from battlesnake_gym.engine._engine import Batch
else:
    _engine = build_check.load("battlesnake_gym.engine._engine", SLOW_RULES_WARNING)

COMPILED: bool = _engine is not None

if TYPE_CHECKING:
    pass
elif COMPILED:
    Batch = _engine.Batch
else:

    class Batch:
        """Stand-in for the compiled class if the module is missing."""


__all__ = ["COMPILED", "FOOD_RNGS", "NO_MOVE", "EngineGames", "Games"]


class EngineGames(Batch, GameArrays):
    """N games of up to S snakes with the same ruleset, settings and map; available as `Games`.

    The games have no position before the first `reset` (or `load`): ``over`` is True.

    A call that works on more than 32 games releases the GIL. If another thread calls the same
    object meanwhile, that call raises ``RuntimeError``: only one thread may use an object at a
    time.

    The arrays are read-only; a seat without a snake is never alive:

    * ``turn`` int32 [N], ``over`` bool [N], ``seed`` int64 [N]
    * ``alive`` bool [N, S], ``health`` int16 [N, S]
    * ``length`` int32 [N, S], 0 for eliminated snakes
    * ``heads`` int16 [N, S, 2], (x, y); for a snake that left the board, the cell outside
    * ``cause`` uint8 [N, S], index into `rules.CAUSES`; ``killer`` int8 [N, S], a seat or -1
    * ``ate`` bool [N, S], living snakes that ate in the last turn
    * ``facing`` uint8 [N, S], index into `rules.MOVES`: the direction from neck to head, which a
    snake
      without a valid move follows; up for a stacked body

    Args:
        num_games: N, the number of games.
        width: Columns of the boards, 1 to 25: one number, or one per game.
        height: Rows of the boards, 1 to 25: one number, or one per game.
        num_snakes: Snakes per game, 1 to 16: one number, or one per game. S is the greatest of
            them.
        game: The rules; its seed is not used, because `reset` receives the seeds.
        food_rng: The random stream of food that appears during a game. With "official", a seed
            reproduces the official engine's game. "fast" is the engine's own stream with the same
            distribution. Start positions, initial food, hazards and the mazes of ``solo_maze`` use
            the official stream with both.

    Raises:
        ValueError: If a value is out of range, or the map or the ruleset rejects it.
    """

    _ids: dict[int, list[str]]
    """Names of the snakes in games that were loaded."""
    _given: dict[str, Sizes]

    def __new__(
        cls,
        num_games: int,
        *,
        width: Sizes = EnvConfig.width,
        height: Sizes = EnvConfig.height,
        num_snakes: Sizes = EnvConfig.num_snakes,
        game: Game = STANDARD_GAME,
        food_rng: str = EnvConfig.food_rng,
    ) -> EngineGames:
        """Check all arguments, then create the games."""
        sizes, numbers = argument_checks.check_games(
            num_games, width, height, num_snakes, game, food_rng
        )
        games = super().__new__(cls, num_games, sizes, numbers, game.map)
        games._describe(num_games, width, height, num_snakes, game, food_rng)
        games._ids = {}
        games._given = {"width": width, "height": height, "num_snakes": num_snakes}
        for name, view in _views(games, num_games, games.num_snakes).items():
            setattr(games, name, view)
        return games

    # `step(actions, which=None)` is inherited from the compiled class. A call is so cheap that a
    # Python wrapper would double the cost of stepping one game.

    def reset(self, seeds: NDArray[np.int64], which: NDArray[np.bool_] | None = None) -> None:
        """Start new games.

        Args:
            seeds: int64 [N], none of them 0.
            which: bool [N], the games to start; None: all games.

        Raises:
            ValueError: If a dtype or shape is wrong, a seed is 0, ``game.map`` is "" (it places no
                snakes), or there is no room for the snakes.
        """
        super().reset(seeds, which)
        if self._ids:
            started = np.ones(self.num_games, np.bool_) if which is None else which
            for game in np.flatnonzero(started).tolist():
                self._ids.pop(game, None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the positions; arrays passed to `observe` stay with the original.

        Only the same version of the compiled engine can read the pickle; another one raises
        ``ValueError``.
        """
        recipe = {
            "num_games": self.num_games,
            **{name: np.asarray(sizes).tolist() for name, sizes in self._given.items()},
            "game": self.game,
            "food_rng": self.food_rng,
        }
        return _copy, (recipe, _engine.SOURCES_HASH, self.dump(), self._ids)

    def state(self, game: int) -> State:
        """Return the position of one game as a `State` of the Python rules.

        Snakes have the names of the loaded state, otherwise snake_0, snake_1 and so on.
        """
        ids = self._ids.get(game) or argument_checks.seat_names(self.num_snakes)
        return state_words.unpack(self.export_words(game), ids)

    def load(self, game: int, state: State, rules: Game | None = None) -> None:
        """Load ``state`` into one game, which continues from there.

        The compiled engine does not support every state. It rejects:

        * living bodies of one segment, and bodies that overlap except as a stacked tail;
        * living segments or food off the board;
        * living snakes with a health outside [1, 100];
        * boards or snakes beyond the sizes of these games;
        * more food than cells, and very long hazard lists.

        Args:
            game: Index of the game.
            state: The position.
            rules: Gives the seed of future food and hazards; everything else must be as in these
                games. None: ``game.seed`` of these games.

        Raises:
            ValueError: If the state or the rules do not fit; nothing is changed then.
        """
        rules = self.game if rules is None else rules
        argument_checks.check_load(self.game, self._largest, state, rules)
        self.import_words(game, rules.seed, state_words.pack(state))
        self._ids[game] = [snake.id for snake in state.snakes]

    def observe(
        self,
        observation: Observation,
        out: NDArray[np.uint8],
        slot: int = 0,
        shape: tuple[int, int, int] | None = None,
    ) -> None:
        """Keep the observations of all seats in ``out`` current from now on.

        The array is written now and after every later `step`, `reset` and `load`, until another
        array is passed for the same ``slot``. Because only the changes of a turn are written,
        nothing else may write to ``out``. If something did, call `observe` again: it writes the
        whole array.

        Eliminated snakes observe zeros. Stacked turns are those since this call, or since the
        game's last `reset` or `load`; earlier ones are zero.

        Args:
            observation: The encoder.
            out: uint8 [N, S, C, H, W].
            slot: Number of the output, 0 to 7.
            shape: (C, H, W); None: ``observation.shape`` of the greatest width and height. Boards
                are centered in larger arrays.
        """
        shape = shape or observation.shape(*self._largest[:2])
        self.observe_into(slot, *observation.codes, observation.frame_stack, *shape[1:], out)

    def action_mask(self, kind: str, out: NDArray[np.bool_]) -> None:
        """Write the action masks of a kind into ``out``, bool [N, S, 4]; see `masks`."""
        self.action_mask_into(masks.parts(kind), out)


def _copy(recipe: dict[str, Any], sources: str, dump: bytes, ids: dict[int, list[str]]) -> Any:
    """Restore games from a pickle or a copy."""
    if sources != getattr(_engine, "SOURCES_HASH", None):
        raise ValueError(
            "these games were pickled by another version of the compiled engine, whose memory this "
            "one cannot read; create new games and load() their positions"
        )
    games = EngineGames(**recipe)
    games.restore(dump)
    games._ids = {game: list(names) for game, names in ids.items()}
    return games


def _views(batch: Any, num_games: int, seats: int) -> dict[str, NDArray[Any]]:
    """Create the arrays as views of the engine's memory."""
    at = batch.layout()
    memory = memoryview(batch)
    size, snakes, snake = at["record_size"], at["snakes"], at["snake_size"]

    def view(dtype: Any, offset: int, *more: tuple[int, int]) -> NDArray[Any]:
        shape = (num_games, *(length for length, _ in more))
        strides = (size, *(stride for _, stride in more))
        return np.ndarray(shape, dtype, memory, offset, strides)

    views = {name: view(dtype, at[name]) for name, dtype in GAME_ARRAYS.items()}
    for name, dtype in SEAT_ARRAYS.items():
        views[name] = view(dtype, snakes + at[name], (seats, snake))
    views["heads"] = view(np.int16, snakes + at["heads"], (seats, snake), (2, 2))
    views["facing"] = view(np.uint8, at["facing"], (seats, 1))
    return views


def make_games(
    num_games: int, *, width: Sizes, height: Sizes, num_snakes: Sizes, game: Game, food_rng: str
) -> EngineGames:
    """Create `Games`, or `PythonGames` with a warning if only the Python rules have the map."""
    if COMPILED and game.map not in ("", *ENGINE_MAPS):
        warnings.warn(
            f"the compiled engine does not know the map {game.map!r}, so {SLOW_RULES_WARNING}",
            RuntimeWarning,
            stacklevel=3,
        )
        games: Any = PythonGames
    else:
        games = Games
    made: EngineGames = games(
        num_games, width=width, height=height, num_snakes=num_snakes, game=game, food_rng=food_rng
    )
    return made


if TYPE_CHECKING or COMPILED:  # noqa: SIM108 - only so is the name a type too
    Games = EngineGames
else:
    Games = PythonGames
