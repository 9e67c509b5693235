"""``battlesnake-gym maps``: list the maps, or draw them as text."""

from __future__ import annotations

import sys
from collections import deque

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.command_line import (
    Parser,
    add_json_option,
    align_columns,
    colorize,
    natural,
    print_json,
    reports_errors,
)
from battlesnake_gym.common.suggestions import unknown_name_message
from battlesnake_gym.draw.terminal_board import render_board
from battlesnake_gym.rules import Game, Settings, known_maps
from battlesnake_gym.rules.maps import Map

_COMMAND = "battlesnake-gym maps"


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """List the maps, or draw maps as text.

    Returns:
        The exit status.
    """
    command = parser()
    options = command.parse_args(argv)
    if options.json or not options.names:
        command.reject_given(options, ["turns"], "on lists of maps")
    maps = known_maps()
    for name in options.names:
        if name not in maps:
            raise ValueError(unknown_name_message("map", name, maps, _COMMAND))
    chosen = [maps[name] for name in options.names or maps]
    if options.json:
        print_json([_map_to_dict(game_map) for game_map in chosen])
    elif options.names:
        for game_map in chosen:
            sys.stdout.write(_draw_map(game_map, options.turns) + "\n")
    else:
        rows = [
            (one.id, _format_num_snakes(one), _format_sizes(one), one.description) for one in chosen
        ]
        sys.stdout.write(align_columns([("map", "snakes", "sizes", "description"), *rows]))
    return 0


def parser() -> Parser:
    """Return the command-line parser."""
    parser = Parser(
        prog=_COMMAND,
        description="List the maps, or draw the named ones. Letters are snake heads, * is food, "
        "and hazards are shaded.",
        epilog="example: battlesnake-gym maps royale hz_islands_bridges --turns 60",
    )
    parser.add_argument("names", nargs="*", metavar="MAP", help="maps to draw")
    parser.add_argument("--turns", type=natural, default=0, metavar="N",
        help="number of turns to play before drawing")  # fmt: skip
    add_json_option(parser)
    return parser


def start_board(game_map: Map) -> Board:
    """Return a new board with two snakes, or the nearest number that ``game_map`` permits.

    The board has at least 11x11 cells if the map permits this size.
    """
    width, height = next((size for size in game_map.sizes if min(size) >= 11), game_map.sizes[0])
    count = max(game_map.players[0], min(game_map.players[1], 2))
    ruleset = {"royale": "royale", "solo_maze": "solo"}.get(game_map.id, "standard")
    game = Game(ruleset, game_map.id, Settings(shrink_every_n_turns=15), seed=4)
    return Board.new(width, height, count, game=game)


def _draw_map(game_map: Map, turns: int) -> str:
    board = start_board(game_map)
    players = dict.fromkeys((snake.id for snake in board.snakes), _choose_first_safe_move)
    deque(snakes.play(board, players, max_turns=turns), maxlen=0)
    board.you_id = None
    title = colorize(game_map.id, "bold", sys.stdout)
    heading = f"{title}  {board.width}x{board.height}, turn {board.turn}: {game_map.description}"
    return f"{heading}\n{render_board(board, sys.stdout)}"


def _choose_first_safe_move(board: Board, seconds: float | None = None) -> snakes.Decision:
    return snakes.Decision((board.safe_moves(board.you.id) or ["up"])[0])


def _map_to_dict(game_map: Map) -> dict[str, object]:
    return {
        "name": game_map.id,
        "description": game_map.description,
        "snakes": list(game_map.players),
        "sizes": [list(size) for size in game_map.sizes],
    }


def _format_num_snakes(game_map: Map) -> str:
    minimum, maximum = game_map.players
    return f"{minimum}" if minimum == maximum else f"{minimum} to {maximum}"


def _format_sizes(game_map: Map) -> str:
    sizes = [f"{width}x{height}" for width, height in game_map.sizes]
    return " ".join(sizes) if len(sizes) < 4 else f"{sizes[0]} to {sizes[-1]}"
