"""Many games at once: the rules in C, with numpy arrays in and out.

`Games` plays N games of up to S snakes. Its arrays are views of the games themselves: read-only,
and up to date after every call. Where the compiled part was not built (`COMPILED` is False) the
same class plays the Python rules, slowly, and accepts the same calls.

>>> games = Games(2, num_snakes=2)
>>> games.reset(np.array([1, 2], np.int64))
>>> games.step(np.array([[0, 0], [3, 3]], np.uint8))
>>> games.turn
array([1, 1], dtype=int32)
>>> games.length
array([[3, 3],
       [3, 3]], dtype=int32)
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import masks
from battlesnake_gym.observations import Observation
from battlesnake_gym.rules import CAUSES, MAPS, Game, Point, RulesError, Snake, State, start
from battlesnake_gym.rules.maps.castle import CANDIDATES
from battlesnake_gym.rules.maps.pools import DRAWN
from battlesnake_gym.rules.rulesets import ruleset_name

try:
    from battlesnake_gym._engine import Batch as _Batch

    COMPILED = True
except ImportError:
    from battlesnake_gym.slow_engine import Batch as _Batch  # type: ignore[assignment]

    COMPILED = False

NO_MOVE = 4
"""The action of a snake that gave no valid move: it goes straight on."""

FOODS = ("fast", "seeded")
"""Where the food of a turn comes from; see `Games`."""

Sizes = int | Sequence[int] | NDArray[np.integer[Any]]
"""One number for all games, or one per game."""


class Games(_Batch):
    """N games of up to S snakes, all with the same ruleset, settings and map.

    ``width``, ``height`` (1 to 25) and ``num_snakes`` (1 to 16) are one number for all games or one
    per game; S and the arrays are as large as the largest. ``game.seed`` is not used: seeds come
    with `reset`. The games have no position before the first `reset` (or `load`): ``over`` is True.

    ``food`` names the stream of the food that appears during a game. "seeded" is the reference's:
    a seed gives the official engine's own game. "fast" is the engine's own, with the same
    distribution. Start positions, first food and hazards come from the reference's stream in both.

    Arrays (read-only, N games, S seats; a seat without a snake is never alive):

    * ``turn`` int32 [N], ``over`` bool [N], ``seed`` int64 [N]
    * ``alive`` bool [N, S], ``health`` int16 [N, S]
    * ``length`` int32 [N, S], 0 once the snake is out
    * ``heads`` int16 [N, S, 2], (x, y); of a snake that left the board, the cell outside
    * ``cause`` uint8 [N, S], index into `rules.CAUSES`; ``killer`` int8 [N, S], a seat or -1
    * ``ate`` bool [N, S], living snakes that ate in the last turn
    * ``facing`` uint8 [N, S], index into `rules.MOVES`: the direction from neck to head (up while
      there is none), where a snake goes that gives no valid move

    Raises ``ValueError`` where a size is out of range, or the map or ruleset refuses it.
    """

    def __init__(
        self,
        num_games: int,
        *,
        width: Sizes = 11,
        height: Sizes = 11,
        num_snakes: Sizes = 4,
        game: Game = Game(),
        food: str = "fast",
    ) -> None:
        self.num_games = num_games
        self.game = game
        self.food = food
        self.num_snakes = int(np.max(num_snakes))
        self._ids: dict[int, list[str]] = {}
        for name, view in _views(self, num_games, self.num_snakes).items():
            setattr(self, name, view)

    turn: NDArray[np.int32]
    over: NDArray[np.bool_]
    seed: NDArray[np.int64]
    alive: NDArray[np.bool_]
    health: NDArray[np.int16]
    length: NDArray[np.int32]
    heads: NDArray[np.int16]
    cause: NDArray[np.uint8]
    killer: NDArray[np.int8]
    ate: NDArray[np.bool_]
    facing: NDArray[np.uint8]

    def __new__(
        cls,
        num_games: int,
        *,
        width: Sizes = 11,
        height: Sizes = 11,
        num_snakes: Sizes = 4,
        game: Game = Game(),
        food: str = "fast",
    ) -> Games:
        """Check everything, then make the games."""
        if food not in FOODS:
            raise ValueError(f"food must be one of {', '.join(FOODS)}, got {food!r}")
        sizes = _sizes(num_games, width=width, height=height, num_snakes=num_snakes)
        _check_starts(game, sizes)
        return super().__new__(cls, num_games, sizes, _rules(game, food), game.map)

    def reset(
        self, seeds: NDArray[np.int64], which: NDArray[np.bool_] | None = None
    ) -> None:
        """Begin the games anew from ``seeds`` int64 [N] (none 0), or only those in ``which``.

        ``which`` is bool [N]. Raises ``ValueError`` for another dtype or shape, for a seed 0, where
        ``game.map`` is "" (it places no snakes), and where the snakes find no place.
        """
        super().reset(seeds, which)
        if self._ids:
            for i in np.flatnonzero(np.ones(self.num_games, np.bool_) if which is None else which):
                self._ids.pop(int(i), None)

    def state(self, game: int) -> State:
        """The position of one game, for the Python rules; snakes are called snake_0, snake_1 ...

        (or as in the state that was loaded).
        """
        words = iter(memoryview(self.export_words(game)).cast("i"))
        return _read_state(words, self._ids.get(game))

    def load(self, game: int, state: State, rules: Game | None = None) -> None:
        """Put ``state`` into one game, which goes on from there.

        ``rules`` gives the seed of the food and hazards to come (1 where it is None); all else in
        it must be as in these games. Raises ``ValueError``, and changes nothing, where it is not,
        and where the compiled engine cannot hold the state: living bodies that overlap, segments or
        food off the board, health of a living snake outside 1 to 100, boards or snakes beyond
        these games' sizes, more food than cells, very long hazard lists.
        """
        seed = 1 if rules is None else rules.seed
        if rules is not None and _comparable(rules) != _comparable(self.game):
            raise ValueError(
                f"rules must be those of these games, {_comparable(self.game)}, got "
                f"{_comparable(rules)}: make other Games for it"
            )
        self.import_words(game, seed, array("i", _state_words(state)).tobytes())
        self._ids[game] = [snake.id for snake in state.snakes]

    def observe(self, observation: Observation, out: NDArray[np.uint8]) -> None:
        """Write what every snake sees into ``out``, uint8 [N, S, C, H, W].

        (C, H, W) is ``observation.shape`` of the largest width and height. The seats of dead snakes
        are all zero. With stacked frames ``out`` holds the history: hand in the same array.
        """
        if out.ndim != 5:
            raise ValueError(f"out must have 5 axes (N, S, C, H, W), got shape {out.shape}")
        self.observe_into(
            *observation.codes, observation.frames, out.shape[3], out.shape[4], out
        )

    def action_mask(self, kind: str, out: NDArray[np.bool_]) -> None:
        """Write the moves that ``kind`` (see `masks`) leaves into ``out``, bool [N, S, 4]."""
        self.action_mask_into(masks.parts(kind), out)


def _views(batch: Any, num_games: int, seats: int) -> dict[str, NDArray[Any]]:
    """The arrays of `Games` over the memory of its records."""
    at = batch.layout()
    memory = memoryview(batch)
    size, snakes, snake = at["record_size"], at["snakes"], at["snake_size"]

    def view(dtype: Any, offset: int, *more: tuple[int, int]) -> NDArray[Any]:
        shape = (num_games, *(length for length, _ in more))
        strides = (size, *(stride for _, stride in more))
        return np.ndarray(shape, dtype, memory, offset, strides)

    games = {"turn": np.int32, "over": np.bool_, "seed": np.int64}
    per_seat = {
        "alive": np.bool_,
        "health": np.int16,
        "length": np.int32,
        "cause": np.uint8,
        "killer": np.int8,
        "ate": np.bool_,
    }
    views = {name: view(dtype, at[name]) for name, dtype in games.items()}
    for name, dtype in per_seat.items():
        views[name] = view(dtype, snakes + at[name], (seats, snake))
    views["heads"] = view(np.int16, snakes + at["heads"], (seats, snake), (2, 2))
    views["facing"] = view(np.uint8, at["facing"], (seats, 1))
    return views


def _sizes(num_games: int, **fields: Sizes) -> NDArray[np.int32]:
    """One row (width, height, num_snakes) per game; the ranges are checked by the compiled part."""
    if num_games < 1:
        raise ValueError(f"num_games must be at least 1, got {num_games}")
    sizes = np.empty((num_games, len(fields)), np.int32)
    for column, (name, value) in enumerate(fields.items()):
        given = np.asarray(value)
        if given.dtype.kind not in "iu" or given.shape not in ((), (num_games,)):
            raise ValueError(
                f"{name} must be one integer or {num_games} of them, one per game, got {value!r}"
            )
        sizes[:, column] = np.clip(given, -1, 1000)
    return sizes


def _check_starts(game: Game, sizes: NDArray[np.int32]) -> None:
    """Let the Python rules say what is wrong with a map, a size or a setting."""
    if not game.map:
        return
    sample = Game(game.ruleset, game.map, game.settings, seed=1, solo=game.solo)
    for width, height, num_snakes in np.unique(sizes, axis=0).tolist():
        if not 1 <= num_snakes <= 16:
            raise RulesError(f"num_snakes must be between 1 and 16, got {num_snakes}")
        start(sample, width, height, _names(num_snakes))


def _rules(game: Game, food: str) -> tuple[Any, ...]:
    """What the compiled part needs to know of the game, in its order."""
    ruleset = ruleset_name(game.ruleset)
    settings = game.settings
    numbers = {
        "food_spawn_chance": settings.food_spawn_chance,
        "minimum_food": settings.minimum_food,
        "hazard_damage_per_turn": settings.hazard_damage_per_turn,
        "shrink_every_n_turns": settings.shrink_every_n_turns,
    }
    for name, number in numbers.items():
        if not -(2**31) <= number < 2**31:
            raise ValueError(f"settings.{name} must fit into 32 bits, got {number}")
    return (
        ruleset.startswith("wrapped"),
        ruleset.endswith("constrictor"),
        ruleset == "royale",
        game.solo or ruleset == "solo",
        food == "seeded",
        *numbers.values(),
    )


def _comparable(game: Game) -> tuple[Any, ...]:
    return ruleset_name(game.ruleset), game.map, game.settings, game.solo


def _names(count: int) -> list[str]:
    return [f"snake_{seat}" for seat in range(count)]


# ---- a State as the words of csrc/convert.c ----


def _state_words(state: State) -> Iterator[int]:
    seats = {snake.id: seat for seat, snake in enumerate(state.snakes)}
    yield from (state.turn, state.width, state.height, len(state.snakes))
    for snake in state.snakes:
        killer = seats.get(snake.eliminated_by, -1)
        yield from (CAUSES.index(snake.eliminated_cause), killer, snake.eliminated_on)
        yield snake.health
        yield from _list_words(snake.body)
    yield from _list_words(state.food)
    runs = [(*cell, len(list(run))) for cell, run in groupby(state.hazards)]
    yield len(runs)
    for run in runs:
        yield from run
    yield from _list_words(state.memory.get(CANDIDATES, ()))
    yield state.memory.get(DRAWN, 0)


def _list_words(points: Sequence[Point]) -> Iterator[int]:
    yield len(points)
    for point in points:
        yield from point


def _read_state(words: Iterator[int], ids: list[str] | None) -> State:
    turn, width, height, count = (next(words) for _ in range(4))
    names = ids or _names(count)
    snakes = [_read_snake(words, name, names) for name in names]
    food = _read_list(words)
    runs = [(next(words), next(words), next(words)) for _ in range(next(words))]
    hazards = [(x, y) for x, y, layers in runs for _ in range(layers)]
    candidates, drawn = _read_list(words), next(words)
    memory: dict[str, Any] = {}
    if candidates:
        memory[CANDIDATES] = candidates
    if drawn:
        memory[DRAWN] = drawn
    return State(turn, width, height, snakes, food, hazards, memory)


def _read_snake(words: Iterator[int], name: str, names: list[str]) -> Snake:
    cause, killer, eliminated_on, health = (next(words) for _ in range(4))
    by = names[killer] if killer >= 0 else ""
    return Snake(name, _read_list(words), health, CAUSES[cause], by, eliminated_on)


def _read_list(words: Iterator[int]) -> list[Point]:
    return [(next(words), next(words)) for _ in range(next(words))]
