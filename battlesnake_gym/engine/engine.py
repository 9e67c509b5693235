"""Many games at once: the rules in C, with numpy arrays in and out.

`Games` plays N games of up to S snakes. Its arrays are views of the games themselves: read-only,
and up to date after every call. Where there is no compiled part (`COMPILED` is False)
`python_engine` replaces it: the same calls, played by the Python rules.

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
        """Replaces the compiled part where there is none."""


__all__ = ["COMPILED", "FOOD_RNGS", "NO_MOVE", "EngineGames", "Games"]


class EngineGames(Batch, GameArrays):
    """N games of up to S snakes, all with the same ruleset, settings and map. Use it as `Games`.

    ``width``, ``height`` (1 to 25) and ``num_snakes`` (1 to 16) are one number for all games or one
    per game; S and the arrays are as large as the largest. ``game.seed`` is not used: seeds come
    with `reset`. The games have no position before the first `reset` (or `load`): ``over`` is True.

    ``food`` names the stream of the food that appears during a game. "seeded" is the reference's:
    a seed gives the official engine's own game. "fast" is the engine's own, with the same
    distribution. Start positions, first food, hazards and the mazes of ``solo_maze`` come from the
    reference's stream in both.

    Arrays (read-only, N games, S seats; a seat without a snake is never alive):

    * ``turn`` int32 [N], ``over`` bool [N], ``seed`` int64 [N]
    * ``alive`` bool [N, S], ``health`` int16 [N, S]
    * ``length`` int32 [N, S], 0 once the snake is out
    * ``heads`` int16 [N, S, 2], (x, y); of a snake that left the board, the cell outside
    * ``cause`` uint8 [N, S], index into `rules.CAUSES`; ``killer`` int8 [N, S], a seat or -1
    * ``ate`` bool [N, S], living snakes that ate in the last turn
    * ``facing`` uint8 [N, S], index into `rules.MOVES`: the direction from neck to head (up while
      there is none), where a snake goes that gives no valid move

    One thread at a time may use an object: while a call works on more than 32 games other threads
    run, and one that calls these games meanwhile gets a ``RuntimeError``.

    Raises ``ValueError`` where a size is out of range, or the map or ruleset refuses it.
    """

    _ids: dict[int, list[str]]
    """What snakes are called in games that were loaded."""
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
        """Check everything, then make the games."""
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

    # `step(actions, which=None)` is inherited from the compiled part: a call costs so little that
    # a Python function around it would double the price of stepping one game.

    def reset(self, seeds: NDArray[np.int64], which: NDArray[np.bool_] | None = None) -> None:
        """Begin the games anew from ``seeds`` int64 [N] (none 0), or only those in ``which``.

        ``which`` is bool [N]. Raises ``ValueError`` for another dtype or shape, for a seed 0, where
        ``game.map`` is "" (it places no snakes), and where the snakes find no place.
        """
        super().reset(seeds, which)
        if self._ids:
            begun = np.ones(self.num_games, np.bool_) if which is None else which
            for game in np.flatnonzero(begun).tolist():
                self._ids.pop(game, None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies go on from the same positions; what `observe` was given stays with the original.

        A pickle is read by the same compiled code alone: another raises ``ValueError``.
        """
        recipe = {
            "num_games": self.num_games,
            **{name: np.asarray(sizes).tolist() for name, sizes in self._given.items()},
            "game": self.game,
            "food_rng": self.food_rng,
        }
        return _copy, (recipe, _engine.SOURCES_HASH, self.dump(), self._ids)

    def state(self, game: int) -> State:
        """The position of one game, for the Python rules.

        Snakes are called as in the state that was loaded, or else snake_0, snake_1 ...
        """
        ids = self._ids.get(game) or argument_checks.seat_names(self.num_snakes)
        return state_words.unpack(self.export_words(game), ids)

    def load(self, game: int, state: State, rules: Game | None = None) -> None:
        """Put ``state`` into one game, which goes on from there.

        ``rules`` gives the seed of the food and hazards to come (``game.seed`` of these games where
        it is None); all else in it must be as in these games. Raises ``ValueError``, and changes
        nothing, where it is not, and where the compiled engine cannot hold the state: living bodies
        of one segment, or that overlap other than as a stacked tail; living segments or food off
        the board; health of a living snake outside 1 to 100; boards or snakes beyond these games'
        sizes; more food than cells; very long hazard lists.
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
        """Keep what every snake sees in ``out``, uint8 [N, S, C, H, W], from now on.

        (C, H, W) is ``shape``, by default ``observation.shape`` of the largest width and height;
        with more rows and columns, boards are in their middle. It is written now, and is up to date
        after every later `step`, `reset` and `load`, until another array is handed in for the same
        ``place`` (0 to 7). Only what a turn has changed is written then, so write nothing else into
        ``out`` meanwhile (if you did, call `observe` again, which writes all of it).

        The seats of dead snakes are all zero. Stacked frames are those of the turns played since
        this call, or since the game's last `reset` or `load`; older ones are zero.
        """
        shape = shape or observation.shape(*self._largest[:2])
        self.observe_into(slot, *observation.codes, observation.frame_stack, *shape[1:], out)

    def action_mask(self, kind: str, out: NDArray[np.bool_]) -> None:
        """Write the moves that ``kind`` (see `masks`) leaves into ``out``, bool [N, S, 4]."""
        self.action_mask_into(masks.parts(kind), out)


def _copy(recipe: dict[str, Any], sources: str, dump: bytes, ids: dict[int, list[str]]) -> Any:
    """The games that were pickled or copied."""
    if sources != getattr(_engine, "SOURCES_HASH", None):
        raise ValueError(
            "these games were pickled by another version of the compiled engine, whose memory this "
            "one cannot read; make them anew and load() their positions"
        )
    games = EngineGames(**recipe)
    games.restore(dump)
    games._ids = {game: list(names) for game, names in ids.items()}
    return games


def _views(batch: Any, num_games: int, seats: int) -> dict[str, NDArray[Any]]:
    """The arrays of the games, over the memory of their records."""
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
    """`Games`; on a map that only the Python rules know `PythonGames`, and a warning says so."""
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
