"""Random turns, played both by the search's implementation of the rules and by the rules."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import ModuleType

import numpy as np

from battlesnake_gym import rules
from battlesnake_gym.rules import (
    MOVES,
    RULESETS,
    Game,
    Point,
    Settings,
    State,
    grows_always,
    wraps,
)
from tests.battlesnake_gym.test_engine_rules import answers, random_board

LINE = 8
"""Turns played from one position, so that bodies pass through their ring buffers."""

MAX_TURNS = 60
"""Maximum number of turns per game."""

DAMAGES = (-120, -30, -2, -1, 0, 1, 5, 14, 50, 99, 100)


def random_game(rand: random.Random) -> Game:
    """Create a game of any ruleset, without a map: no food appears, and only royale has hazards."""
    settings = Settings(hazard_damage_per_turn=rand.choice(DAMAGES), shrink_every_n_turns=5)
    return Game(rand.choice(list(RULESETS)), "", settings, rand.getrandbits(40) + 1, solo=True)


def random_moves(rand: random.Random, game: Game, state: State) -> list[int]:
    """A move of each seat; the search knows only the four moves, of which most do not kill."""
    moves = answers(rand, game, state, 0.97)
    chosen = (
        moves[s.id] if moves.get(s.id) in MOVES else rules.default_move(s.body)
        for s in state.snakes
    )
    return [MOVES.index(move) for move in chosen]


class Line:
    """A position in the format of the search, and the turns played from it."""

    def __init__(self, search: ModuleType, game: Game, start: State) -> None:
        self.search = search
        self.start = f"{game}\n{start}"  # before the rules change it
        self.width, self.moves = start.width, b""
        self.position = (
            start.width,
            start.height,
            wraps(game),
            grows_always(game),
            game.settings.hazard_damage_per_turn,
            np.array([snake.length for snake in start.snakes], np.int32),
            np.array([snake.health if snake.alive else 0 for snake in start.snakes], np.int32),
            np.array([_cell(start, cell) for s in start.snakes for cell in s.body], np.uint16),
            _layers(start, start.food),
            _layers(start, start.hazards),
        )

    def play(self, moves: list[int], state: State) -> str:
        """Play one more turn; return the difference from ``state``, or ""."""
        self.moves += bytes(moves)
        snakes, food, _ = self.search.play_turns(*self.position, self.moves)
        for seat, (held, snake) in enumerate(zip(snakes, state.snakes, strict=True)):
            if (held is not None) != snake.alive:
                return self._describe(
                    f"snake {seat} lives: {held is not None}, by the rules the reverse"
                )
            if held and (held[0], _points(held[1], self.width)) != (snake.health, snake.body):
                return self._describe(f"snake {seat} is {held}, by the rules {snake}")
        if food != _layers(state, state.food):
            return self._describe(f"food lies at {list(food)}, by the rules at {state.food}")
        return ""

    def same_key(self, again: Line) -> str:
        """Compare the incremental hash key with that of the same position set up in ``again``."""
        incremental, fresh = (
            line.search.play_turns(*line.position, line.moves)[2] for line in (self, again)
        )
        return (
            ""
            if incremental == fresh != 0
            else self._describe(f"the key is {incremental:x}, set up fresh {fresh:x}")
        )

    def _describe(self, what: str) -> str:
        return f"{what}\n{self.start}\nmoves {list(self.moves)}"


def _cell(state: State, cell: Point) -> int:
    """Return the index of a cell; 0 for a dead snake outside the board."""
    x, y = cell
    return y * state.width + x if 0 <= x < state.width and 0 <= y < state.height else 0


def _layers(state: State, cells: list[Point]) -> bytes:
    layers = bytearray(state.width * state.height)
    for x, y in cells:
        layers[y * state.width + x] += 1
    return bytes(layers)


def _points(cells: bytes, width: int) -> list[Point]:
    return [(cell % width, cell // width) for cell in np.frombuffer(cells, np.uint16).tolist()]


def differences(search: ModuleType, seed: int, turns: int) -> Iterator[str]:
    """Play random games for a number of turns; yield every difference with its history.

    The hash key of a position after some turns must equal that of the same position set up from
    scratch, because the search updates its keys and sets of cells incrementally.
    """
    rand = random.Random(seed)
    done = 0
    while done < turns:
        game, state = random_game(rand), random_board(rand)
        state.turn, state.hazards = 0, list(filter(state.inside, state.hazards))
        line = Line(search, game, state)
        # The search cannot predict royale's hazards.
        turns_of_line = 1 if game.ruleset == "royale" else LINE
        while not rules.is_over(game, state) and done < turns and state.turn < MAX_TURNS:
            moves = random_moves(rand, game, state)
            names = {s.id: MOVES[move] for s, move in zip(state.snakes, moves, strict=True)}
            rules.step(game, state, names)
            done += 1
            if found := line.play(moves, state):
                yield found
                break
            if state.turn % turns_of_line == 0 and not rules.is_over(game, state):
                previous, line = line, Line(search, game, state)
                if found := previous.same_key(line):
                    yield found
                    break
