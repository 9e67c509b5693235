"""``battlesnake-gym maps``: the maps, as a table or as pictures in text."""

from __future__ import annotations

import sys

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.command_line import (
    Parser,
    add_json,
    align_columns,
    colorize,
    natural,
    print_error,
    write_json,
)
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.draw.terminal_board import picture
from battlesnake_gym.rules import Game, Settings, known_maps
from battlesnake_gym.rules.maps import Map

_COMMAND = "battlesnake-gym maps"


def main(argv: list[str] | None = None) -> int:
    """List the maps, or draw those that are named; returns the exit status."""
    options = parser().parse_args(argv)
    maps = known_maps()
    for name in options.names:
        if name not in maps:
            return print_error(_COMMAND, unknown_name_message("map", name, maps, _COMMAND))
    chosen = [maps[name] for name in options.names or maps]
    if options.json:
        write_json([_facts(one) for one in chosen])
    elif options.names or options.pictures:
        for one in chosen:
            sys.stdout.write(_drawn(one, options.turns) + "\n")
    else:
        rows = [(one.id, _players(one), _sizes(one), one.description) for one in chosen]
        sys.stdout.write(align_columns([("map", "snakes", "sizes", "what it is"), *rows]))
    return 0


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog=_COMMAND,
        description="List the maps. Those that are named are drawn: a letter is a snake's head, "
        "* food, and hazards are shaded.",
        epilog="example: battlesnake-gym maps royale hz_islands_bridges --turns 60",
    )
    parser.add_argument("names", nargs="*", metavar="MAP", help="draw these")
    parser.add_argument("--pictures", action="store_true", help="draw all")
    parser.add_argument(
        "--turns", type=natural, default=0, metavar="N", help="play N turns first, as maps change"
    )
    add_json(parser)
    return parser


def start(one: Map, snakes: int = 2) -> Board:
    """A board on this map at its start: of a usual size, if the map allows it."""
    width, height = next((size for size in one.sizes if min(size) >= 11), one.sizes[0])
    count = max(one.players[0], min(one.players[1], snakes))
    ruleset = {"royale": "royale", "solo_maze": "solo"}.get(one.id, "standard")
    game = Game(ruleset, one.id, Settings(shrink_every_n_turns=15), seed=4)
    return Board.new(width, height, count, game=game)


def _drawn(one: Map, turns: int) -> str:
    board = start(one)
    for _ in range(turns):
        if board.is_over():
            break
        board.step({s.id: (board.safe_moves(s.id) or ["up"])[0] for s in board.living})
    title = colorize(one.id, "bold", sys.stdout)
    about = f"{title}  {board.width}x{board.height}, turn {board.turn}: {one.description}"
    return f"{about}\n{picture(board, sys.stdout)}"


def _facts(one: Map) -> dict[str, object]:
    return {
        "name": one.id,
        "description": one.description,
        "snakes": list(one.players),
        "sizes": [list(size) for size in one.sizes],
    }


def _players(one: Map) -> str:
    least, most = one.players
    return f"{least}" if least == most else f"{least} to {most}"


def _sizes(one: Map) -> str:
    sizes = [f"{width}x{height}" for width, height in one.sizes]
    return " ".join(sizes) if len(sizes) < 4 else f"{sizes[0]} to {sizes[-1]}"
