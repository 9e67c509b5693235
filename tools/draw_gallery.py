"""Draw the gallery of maps, heads, tails, observation planes and snakes.

`docs/reference/rules-and-maps.md` and other pages include the generated files.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.commands import maps_command
from battlesnake_gym.draw import drawing
from battlesnake_gym.draw.customization import HEADS, TAILS
from battlesnake_gym.mdp.observations import get
from battlesnake_gym.rules import MAPS, Game
from battlesnake_gym.rules.maps import Map
from battlesnake_heuristics.rating import ladder

_PLACEMENTS = Path(__file__).parent / "gallery_elo.json"
"""Placements of built-in snakes that are not rungs of the ladder.

Each placement is the output of ``battlesnake-gym ladder NAME --json``.
"""

_MAX_BAR_ELO = 2800
"""Elo at the right end of a bar."""

_PLAYABLE_SNAKES = ("champion", *snakes.ENGINE_SNAKES)
"""Snakes of the playable page (``docs/play/play.js``)."""

_FACE_SIZE = 'width="194" height="98" viewBox="6 6 97 49"'
"""Size of the picture of a snake, and the part of the board's picture that it shows."""

_NUM_TURNS = 60
"""Number of turns played before a map is drawn.

The turns make changes of the map visible.
"""


def write_gallery(folder: Path) -> None:
    """Write the gallery into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_lines(folder / "maps.md", _write_figures(folder, "map", map(_draw_map, MAPS.values())))
    for part, known in (("head", HEADS), ("tail", TAILS)):
        figures = ((name, "", _draw_customization(part, name)) for name in known)
        _write_lines(folder / f"{part}s.md", _write_figures(folder, part, figures))
    _write_lines(folder / "planes.md", _write_figures(folder, "plane", _iter_plane_figures()))
    _write_lines(folder / "snakes.md", _write_figures(folder, "snake", _iter_snake_figures()))


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines of text to a file."""
    path.write_text("\n".join(lines) + "\n")


def _write_figures(
    folder: Path, kind: str, figures: Iterable[tuple[str, str, str]]
) -> Iterable[str]:
    """Write each picture, and yield the lines of a Markdown gallery of the pictures."""
    yield "<div class='gallery'>"
    for name, about, picture in figures:
        file = f"{kind}-{name}.svg"
        (folder / file).write_text(picture)
        yield f"<figure>\n\n![{kind} {name}](../_gallery/{file})\n"
        yield f"<figcaption>\n\n`{name}` {about}\n\n</figcaption>\n</figure>\n"
    yield "</div>"


def _draw_map(played: Map) -> tuple[str, str, str]:
    """Draw a map after up to `_NUM_TURNS` turns of the snake ``cautious``."""
    board = maps_command.start_board(played)
    _play_turns(board)
    about = f"({board.width}x{board.height}, turn {board.turn}): {played.description}"
    return played.id, about, drawing.svg(board, 16)


def _play_turns(board: Board) -> None:
    """Play up to `_NUM_TURNS` turns of the snake ``cautious``, until a snake is eliminated."""
    players = {snake.id: snakes.make("cautious", 1) for snake in board.snakes}
    for _ in snakes.play(board, players, max_turns=_NUM_TURNS):
        if len(board.living) < len(players):
            break


def _draw_customization(part: str, name: str) -> str:
    """Draw a snake with the head or tail ``name``."""
    board = Board.from_text(f". . . . . .\n. > > > A .\n. . . . . .\nA: id={name} health=100")
    board.snakes[0].customizations[part] = name
    return drawing.svg(board, 16)


def _iter_snake_figures() -> Iterable[tuple[str, str, str]]:
    """Draw a face and the Elo of each built-in snake, with links to games on the playable page."""
    placements = {rung.name: asdict(rung) for rung in ladder.Ladder.load(2).rungs} | {
        one["snake"]: one for one in json.loads(_PLACEMENTS.read_text())
    }
    for number, name in enumerate(snakes.names()):
        about = snakes.description(name)
        if name in placements:
            about += f" {_draw_elo_bar(placements[name])}"
        about += "".join(f'<span class="play">{text}</span>' for text in _iter_invitations(name))
        board = Board.from_text(f". . . . . .\n. > > > A .\n. . . . . .\nA: id={name} health=100")
        board.snakes[0].customizations["head"] = list(HEADS)[number % len(HEADS)]
        # The picture omits the legend of the board.
        picture = re.sub('width.*?viewBox=".*?"', _FACE_SIZE, drawing.svg(board, 16), count=1)
        yield name, about, picture


def _iter_invitations(name: str) -> Iterable[str]:
    """Yield how to play against a snake and how to watch it against others, in HTML."""
    if name in _PLAYABLE_SNAKES:
        others = (other for other in _PLAYABLE_SNAKES if other != name)
        yield _link_to_game("Play it", "play", name)
        links = ", ".join(_link_to_game(other, name, other) for other in others)
        yield f"Watch it against {links}"
    else:
        yield f"Play it: <code>battlesnake-gym play {name}</code>"
        yield f"Watch it against another: <code>battlesnake-gym arena {name} champion --web</code>"


def _link_to_game(text: str, first: str, second: str) -> str:
    """Return a link to a duel on the playable page.

    Args:
        text: Text of the link.
        first: Name of the first snake, or ``play`` for the visitor.
        second: Name of the second snake.
    """
    game = f"size=11x11&ruleset=standard&opponents=1&strength={second}&seed=1&moves=&who={first}"
    return f'<a href="../play/index.html#{html.escape(game)}">{text}</a>'


def _draw_elo_bar(placement: Mapping[str, Any]) -> str:
    """Return the HTML of an Elo and its confidence interval, on a bar up to `_MAX_BAR_ELO`."""
    if side := placement.get("out_of_range"):
        return f"The Elo is {side} the ladder."
    elo, low, high = (placement[name] for name in ("elo", "ci_low", "ci_high"))
    left, middle, width = (100 * value / _MAX_BAR_ELO for value in (low, elo, high - low))
    interval = f"95% CI {low:.0f} to {high:.0f}" if low < high else "by definition"
    return (
        f"Elo {elo:.0f}, {interval}."
        f'<span class="elo"><i style="left: {left:.1f}%; width: {width:.1f}%"></i>'
        f'<b style="left: {middle:.1f}%"></b></span>'
    )


def _iter_plane_figures() -> Iterable[tuple[str, str, str]]:
    """Draw each plane of the default observation of one position."""
    board = Board.new(11, 11, 3, game=Game(seed=11))
    _play_turns(board)
    observation = get("planes")
    seen = observation.encode(board, board.living[0].id)
    for name, plane in zip(observation.planes, seen, strict=True):
        yield name, "", _draw_plane(plane)


def _draw_plane(plane: np.ndarray[tuple[int, int], np.dtype[np.uint8]], cell: int = 12) -> str:
    """Draw one plane as a grid of cells; a high byte is a dark cell."""
    height, width = plane.shape
    squares = "".join(
        f'<rect x="{x * cell}" y="{y * cell}" width="{cell - 1}" height="{cell - 1}"'
        f' fill="#2f6fde" fill-opacity="{0.06 + 0.94 * int(plane[y, x]) / 255:.2f}"/>'
        for y in range(height)
        for x in range(width)
    )
    size = f'width="{width * cell}" height="{height * cell}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{squares}</svg>'
