"""Text format of boards for ``str(board)`` and ``Board.from_text``.

A board is a grid of cells, top row first. A line of attributes may precede the grid, and one line
per snake may follow::

    turn=12 ruleset=wrapped
    . . .~.~
    . A < .2
    B . ^ *
    ^ . . .
    A: id=me health=90 length=5 you
    B: id=other

Each cell is one character:

===========  ==============================================================================
``.``        empty
``*``        food
``A``-``Z``  the head of a snake
``< > ^ v``  a body segment, pointing at the next segment towards the head
===========  ==============================================================================

A ``~`` directly after the character is a hazard; ``2`` to ``9`` is the number of hazard layers.
Spaces are ignored. A snake has at least three segments: segments that are not drawn are stacked on
its last cell. ``length=`` sets another length.

Attributes above the grid are ``key=value`` pairs: ``turn``, ``ruleset``, ``map``, ``seed``,
``solo``, ``id``, ``timeout``, ``source`` and the fields of `Settings`. Below the grid, ``A:``
starts the attributes of snake A:

* ``id`` (default: the letter of the snake in lower case), ``name``, ``health`` (default: 100) and
  ``length``.
* ``you`` marks ``board.you``.
* ``at=x,y/x,y/...`` is a body that arrows cannot draw.
* Eliminated snakes also have ``cause``, ``by`` and ``on``.

``food:`` and ``hazards:`` list further cells as ``x,y``. Quote values that contain spaces.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Mapping
from typing import Any

from battlesnake_gym.boards.board_json import MAX_READABLE_BOARD_SIZE, UNKNOWN_SEED
from battlesnake_gym.boards.grid import grid as make_grid
from battlesnake_gym.boards.json_fields import BoardError, format_value
from battlesnake_gym.boards.limited_view import check_view_radius
from battlesnake_gym.rules.stages import wraps
from battlesnake_gym.rules.state import (
    CAUSES,
    MAX_HEALTH,
    START_LENGTH,
    Game,
    Point,
    Settings,
    Snake,
    State,
)

_MOVES_BY_ARROW = {"^": "up", "v": "down", "<": "left", ">": "right"}
_LAYERS_BY_MARK = {"": 0, "~": 1, **{str(k): k for k in range(2, 10)}}
_MARKS_BY_LAYERS = {count: mark for mark, count in _LAYERS_BY_MARK.items()}
_CELL_PATTERN = re.compile(r"\S[~2-9]?")
_DEFAULT_GAME = Game(seed=UNKNOWN_SEED)

_MAX_LENGTH = MAX_READABLE_BOARD_SIZE**2
"""Maximum value of the attribute ``length``, which bounds the memory of a snake."""

_Attributes = dict[str, str]


def format_board(game: Game, state: State, you_id: str | None) -> str:
    """Return a text drawing of a board."""
    picture: dict[Point, str] = {}
    legend = [
        _format_snake(snake, _snake_letter(i), game, state, picture, snake.id == you_id)
        for i, snake in enumerate(state.snakes)
    ]
    hidden_food = []
    for cell in state.food:
        if cell in picture or not state.inside(cell):
            hidden_food.append(cell)
        else:
            picture[cell] = "*"
    layers, hidden_hazards = _split_hazards(state)
    rows = [
        "".join(
            f"{picture.get((x, y), '.')}{_MARKS_BY_LAYERS[layers[(x, y)]]:1}"
            for x in range(state.width)
        ).rstrip()
        for y in reversed(range(state.height))
    ]
    extra = [
        f"{name}: {' '.join(f'{x},{y}' for x, y in cells)}"
        for name, cells in (("food", hidden_food), ("hazards", hidden_hazards))
        if cells
    ]
    attributes = _format_attributes(game, state)
    return "\n".join([*([attributes] if attributes else []), *rows, *legend, *extra])


def _snake_letter(index: int) -> str:
    """Return the letter of the snake at ``index``: A to Z, then accented capitals."""
    return chr(ord("A") + index) if index < 26 else chr(0x100 + 2 * (index - 26))


def _format_attributes(game: Game, state: State) -> str:
    values = {"turn": state.turn, **_game_fields(game)}
    defaults = {"turn": 0, **_game_fields(_DEFAULT_GAME), "solo": len(state.snakes) < 2}
    return _format_pairs({key: value for key, value in values.items() if value != defaults[key]})


def _game_fields(game: Game) -> dict[str, object]:
    """Return the fields of a game by name, including the settings of the game."""
    values = {**dataclasses.asdict(game), **dataclasses.asdict(game.settings)}
    del values["settings"]
    return values


def _format_pairs(attributes: dict[str, object]) -> str:
    # A name may contain line breaks, which would end the line of the snake.
    lines = {key: " ".join(str(value).splitlines()) for key, value in attributes.items()}
    return " ".join(f"{key}={shlex.quote(line)}" for key, line in lines.items())


def _format_snake(
    snake: Snake, mark: str, game: Game, state: State, picture: dict[Point, str], you: bool
) -> str:
    """Draw a living snake into ``picture`` and return the line of its attributes."""
    attributes: dict[str, object] = {"id": snake.id}
    if snake.name not in ("", snake.id):
        attributes["name"] = snake.name
    attributes["health"] = snake.health
    drawn = _draw_snake(snake, mark, game, state) if snake.alive else None
    if drawn is not None and not any(cell in picture for cell in drawn):
        picture.update(drawn)
        if snake.length != max(len(drawn), START_LENGTH):
            attributes["length"] = snake.length
    else:
        attributes["at"] = "/".join(f"{x},{y}" for x, y in snake.body)
        if snake.alive and state.inside(snake.head):
            picture.setdefault(snake.head, mark)
    if not snake.alive:
        attributes["cause"] = snake.eliminated_cause
        if snake.eliminated_by:
            attributes["by"] = snake.eliminated_by
        attributes["on"] = snake.eliminated_on
    return f"{mark}: {_format_pairs(attributes)}" + (" you" if you else "")


def _draw_snake(snake: Snake, mark: str, game: Game, state: State) -> dict[Point, str] | None:
    """Return the characters of a snake by cell.

    The result is None if arrows cannot draw the body.
    """
    body = snake.body
    end = len(body)
    while end > 1 and body[end - 1] == body[end - 2]:
        end -= 1
    cells = {body[0]: mark}
    for ahead, cell in itertools.pairwise(body[:end]):
        arrow = next(
            (sign for sign in _MOVES_BY_ARROW if _arrow_target(cell, sign, game, state) == ahead),
            None,
        )
        if arrow is None or cell in cells:
            return None
        cells[cell] = arrow
    return cells if all(map(state.inside, cells)) else None


def _split_hazards(state: State) -> tuple[Counter[Point], list[Point]]:
    """Split the hazards into the part that the grid can show and the rest.

    Returns:
        The hazard layers by cell for the grid, and a list of the remaining hazards.
    """
    layers: Counter[Point] = Counter()
    hidden = []
    for cell in state.hazards:
        if state.inside(cell) and layers[cell] + 1 in _MARKS_BY_LAYERS:
            layers[cell] += 1
        else:
            hidden.append(cell)
    return layers, hidden


_SNAKE_ATTRIBUTES = ("id", "name", "health", "length", "at", "cause", "by", "on")


def parse_board(text: str) -> tuple[State, Game, str | None]:
    """Parse a text drawing of a board.

    Returns:
        The position, the game and the id of ``you`` (None if no snake is marked ``you``).

    Raises:
        BoardError: If the text cannot be parsed.
    """
    attributes, grid, legend = _sort_lines(text)
    width = max(len(words) for words in grid)
    state = State(turn=0, width=width, height=len(grid), snakes=[])
    food, hazards = legend.pop("food", []), legend.pop("hazards", [])
    heads, arrows = _parse_grid(grid, state)
    marks = sorted({*heads, *legend})
    game = _parse_attributes(attributes, state, alone=len(marks) < 2)
    state.food += [_parse_cell(token, "food") for token in food]
    state.hazards += [_parse_cell(token, "hazards") for token in hazards]
    shape = make_grid(width, len(grid), wraps(game))
    behind: dict[Point | None, list[Point]] = {}
    for cell, arrow in arrows.items():
        behind.setdefault(shape.step(cell, _MOVES_BY_ARROW[arrow]), []).append(cell)
    you = []
    for mark in marks:
        tokens = legend.get(mark, [])
        snake_attributes = _parse_pairs([token for token in tokens if token != "you"], mark)
        snake = _parse_snake(mark, snake_attributes, heads, arrows, behind)
        if any(snake.id == other.id for other in state.snakes):
            raise BoardError(
                f"{mark}: id {format_value(snake.id)} is also the id of another snake; "
                "give every snake a different id"
            )
        state.snakes.append(snake)
        you += [snake.id] if "you" in tokens else []
    if len(you) > 1:
        raise BoardError(f"only one snake can be you, got {', '.join(you)}")
    for cell, arrow in arrows.items():
        raise BoardError(
            f"the segment {arrow!r} at {cell} does not belong to a snake; arrows must lead to a "
            "head, a capital letter"
        )
    return state, game, you[0] if you else None


def _sort_lines(text: str) -> tuple[list[str], list[list[str]], dict[str, list[str]]]:
    """Split a text into attributes, rows of the grid, and lines below the grid."""
    attributes: list[str] = []
    grid: list[list[str]] = []
    legend: dict[str, list[str]] = {}
    for line in textwrap.dedent(text).splitlines():
        name, colon, rest = line.partition(":")
        if not line.strip():
            continue
        if colon and "=" not in name:
            legend[_parse_label(name.strip())] = _split_words(rest)
        elif "=" in line:
            attributes += _split_words(line)
        else:
            grid.append(_CELL_PATTERN.findall(line))
    if not grid:
        raise BoardError("a board needs at least one row of cells, like '. . A < .'")
    return attributes, grid, legend


def _split_words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise BoardError(f"{line.strip()!r:.60} cannot be read: {error}") from error


def _parse_label(name: str) -> str:
    if name in ("food", "hazards") or _is_head(name):
        return name
    raise BoardError(
        f"a line below the grid must start with a snake letter, food: or hazards:, got {name!r:.60}"
    )


def _is_head(symbol: str) -> bool:
    return len(symbol) == 1 and symbol.isalpha() and symbol.isupper()


def _parse_pairs(tokens: list[str], location: str) -> _Attributes:
    attributes = {}
    for token in tokens:
        key, equals, value = token.partition("=")
        if not equals:
            raise BoardError(f"{location}: {token!r:.60} is not an attribute; write key=value")
        attributes[key] = value
    return attributes


def _parse_attributes(tokens: list[str], state: State, alone: bool) -> Game:
    """Return the game, and store the turn in ``state``.

    ``alone`` is true if the board has at most one snake.
    """
    attributes = _parse_pairs(tokens, "attributes")
    state.turn = _parse_int(attributes.pop("turn", "0"), "turn")
    defaults = _game_fields(_DEFAULT_GAME)
    values: dict[str, Any] = {}
    for key, text in attributes.items():
        if key not in defaults:
            raise BoardError(
                f"unknown attribute {key!r:.20}; choose one of turn, {', '.join(defaults)}"
            )
        if isinstance(defaults[key], bool):
            if text not in ("True", "False"):
                raise BoardError(f"{key} must be True or False, got {format_value(text)}")
            values[key] = text == "True"
        else:
            is_text = isinstance(defaults[key], str)
            values[key] = text if is_text else _parse_int(text, key)
    check_view_radius(values.get("view_radius"), "view_radius")
    values.setdefault("solo", alone)
    setting_names = {field.name for field in dataclasses.fields(Settings)}
    settings = Settings(**{key: value for key, value in values.items() if key in setting_names})
    rest = {key: value for key, value in values.items() if key not in setting_names}
    return dataclasses.replace(_DEFAULT_GAME, settings=settings, **rest)


def _parse_grid(grid: list[list[str]], state: State) -> tuple[dict[str, Point], dict[Point, str]]:
    """Return heads by letter and arrows by cell.

    Food and hazards are stored in ``state``.
    """
    heads: dict[str, Point] = {}
    arrows: dict[Point, str] = {}
    for row, words in enumerate(grid):
        if len(words) != state.width:
            raise BoardError(
                f"row {row + 1} of the grid has {len(words)} cells, but another row has "
                f"{state.width}"
            )
        for x, word in enumerate(words):
            cell = (x, state.height - 1 - row)
            symbol = word[0]
            state.hazards += [cell] * _LAYERS_BY_MARK[word[1:]]
            if symbol == "*":
                state.food.append(cell)
            elif symbol in _MOVES_BY_ARROW:
                arrows[cell] = symbol
            elif _is_head(symbol):
                if symbol in heads:
                    raise BoardError(f"two heads have the letter {symbol}; use another letter")
                heads[symbol] = cell
            elif symbol != ".":
                raise BoardError(
                    f"row {row + 1}, cell {x + 1}: {symbol!r} is unknown; use . * A-Z < > ^ v, "
                    "followed by ~ or 2 to 9 for hazards"
                )
    return heads, arrows


def _parse_snake(
    mark: str,
    attributes: _Attributes,
    heads: dict[str, Point],
    arrows: dict[Point, str],
    behind: Mapping[Point | None, list[Point]],
) -> Snake:
    """Create the snake ``mark``.

    The function removes the arrows of the snake's body from ``arrows``. ``behind`` lists the cells
    of the arrows that point at a cell.
    """
    for key in attributes:
        if key not in _SNAKE_ATTRIBUTES:
            raise BoardError(
                f"{mark}: unknown attribute {key!r:.20}; use {', '.join(_SNAKE_ATTRIBUTES)}, you"
            )
    if "at" in attributes:
        body = [_parse_cell(token, f"{mark}: at") for token in attributes["at"].split("/")]
    elif mark in heads:
        body = _trace_body(heads[mark], arrows, behind)
        length = _parse_int(attributes.get("length", str(max(len(body), START_LENGTH))), "length")
        if length < len(body):
            raise BoardError(f"{mark}: length={length} but {len(body)} segments are drawn")
        if length > _MAX_LENGTH:
            raise BoardError(f"{mark}: length must be at most {_MAX_LENGTH}, got {length}")
        body += [body[-1]] * (length - len(body))
    else:
        raise BoardError(f"{mark}: the grid has no head {mark}; draw it, or give at=x,y/x,y/...")
    cause = attributes.get("cause", "")
    if cause not in CAUSES:
        raise BoardError(f"{mark}: cause={cause:.60} is unknown; use {', '.join(CAUSES[1:])}")
    health = _parse_int(attributes.get("health", str(MAX_HEALTH)), f"{mark}: health")
    if not cause and not 0 < health <= MAX_HEALTH:
        raise BoardError(f"{mark}: health must be from 1 to {MAX_HEALTH}, got {health:.4g}")
    snake_id = attributes.get("id", mark.lower())
    return Snake(
        id=snake_id,
        body=body,
        health=health,
        eliminated_cause=cause,
        eliminated_by=attributes.get("by", ""),
        eliminated_on=_parse_int(attributes.get("on", "0"), f"{mark}: on"),
        name=attributes.get("name", snake_id),
    )


def _trace_body(
    head: Point, arrows: dict[Point, str], behind: Mapping[Point | None, list[Point]]
) -> list[Point]:
    """Return the body behind ``head``, and remove the body's arrows from ``arrows``."""
    body = [head]
    while True:
        cells = [cell for cell in behind.get(body[-1], ()) if cell in arrows]
        if len(cells) > 1:
            raise BoardError(f"two segments, {cells[0]} and {cells[1]}, point at {body[-1]}")
        if not cells:
            return body
        del arrows[cells[0]]
        body.append(cells[0])


def _parse_int(text: str, location: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise BoardError(f"{location} must be a whole number, got {format_value(text)}") from None


def _parse_cell(text: str, location: str) -> Point:
    x, comma, y = text.partition(",")
    if not comma:
        raise BoardError(f"{location}: a cell must be x,y, got {format_value(text)}")
    return _parse_int(x, location), _parse_int(y, location)


def _arrow_target(cell: Point, arrow: str, game: Game, state: State) -> Point | None:
    """Return the cell that an arrow points at, or None if it is off the board."""
    return make_grid(state.width, state.height, wraps(game)).step(cell, _MOVES_BY_ARROW[arrow])
