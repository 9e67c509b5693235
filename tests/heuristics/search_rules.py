"""Random turns, played both by the search's implementation of the rules and by the rules."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import ModuleType

import numpy as np

from battlesnake_gym import rules
from battlesnake_gym.rules import (
    MOVES,
    OFFSETS,
    RULESETS,
    Game,
    Point,
    Settings,
    Snake,
    State,
    grows_always,
    wraps,
)

LINE = 8
"""Turns played from one position, so that bodies pass through their ring buffers."""

MAX_TURNS = 60
"""Maximum number of turns per game."""

DAMAGES = (-120, -30, -2, -1, 0, 1, 5, 14, 50, 99, 100)


def random_position(rand: random.Random) -> State:
    """Create a random position on a board of 7 to 25, with stacked hazards and hungry snakes."""
    width, height = rand.choice(((7, 7), (7, 9), (11, 11), (12, 11), (19, 19), (20, 20), (25, 25)))
    cells = [(x, y) for x in range(width) for y in range(height)]
    taken: set[Point] = set()
    snakes = []
    for seat in range(rand.randint(1, 8)):
        free = [cell for cell in cells if cell not in taken]
        if free:
            snakes.append(_random_snake(rand, str(seat), width, height, taken, rand.choice(free)))
    food = rand.sample(cells, rand.choice((0, 3, 10, len(cells) // 4)))
    hazards = rand.choices(cells, k=rand.choice((0, 0, 10, len(cells) // 2)))
    hazards += rand.choices(hazards or cells, k=rand.choice((0, 0, 20)))
    return State(0, width, height, snakes, food, hazards)


def _random_snake(
    rand: random.Random, name: str, width: int, height: int, taken: set[Point], head: Point
) -> Snake:
    """Create a snake that winds over free cells and may be stacked on its last one."""
    body = [head]
    for _ in range(rand.choice((2, 2, 4, 8, 15))):
        x, y = body[-1]
        steps = [((x + dx) % width, (y + dy) % height) for dx, dy in OFFSETS.values()]
        free = [cell for cell in steps if cell not in taken and cell not in body]
        if not free:
            break
        body.append(rand.choice(free))
    taken.update(body)
    body += [body[-1]] * (rand.choice((0, 0, 0, 1, 3)) if len(body) > 1 else 2)
    return Snake(name, body, rand.choice((1, 2, 3, 8, 20, 60, 100)))


def random_game(rand: random.Random) -> Game:
    """Create a game of any ruleset, without a map: no food appears, and only royale has hazards."""
    settings = Settings(hazard_damage_per_turn=rand.choice(DAMAGES), shrink_every_n_turns=5)
    return Game(rand.choice(list(RULESETS)), "", settings, rand.getrandbits(40) + 1, solo=True)


def random_moves(rand: random.Random, game: Game, state: State) -> list[int]:
    """Choose mostly moves to free cells, sometimes any move."""
    taken = {cell for snake in state.snakes if snake.alive for cell in snake.body[:-1]}
    wrapped = wraps(game)
    moves = []
    for snake in state.snakes:
        chosen = rand.randrange(4)
        if snake.alive and rand.random() < 0.97:
            for _ in range(6):
                dx, dy = OFFSETS[MOVES[chosen]]
                x, y = snake.head[0] + dx, snake.head[1] + dy
                if wrapped:
                    x, y = x % state.width, y % state.height
                if 0 <= x < state.width and 0 <= y < state.height and (x, y) not in taken:
                    break
                chosen = (chosen + 1) % 4 if rand.random() < 0.8 else rand.randrange(4)
        moves.append(chosen)
    return moves


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
        game, state = random_game(rand), random_position(rand)
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
