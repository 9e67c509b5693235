"""The command ``battlesnake-gym snakes new``: write a small snake to start from."""

from __future__ import annotations

import sys
from pathlib import Path

from battlesnake_gym.common.command_line import Parser, reports_errors
from battlesnake_gym.common.files import write_atomically

_TEMPLATE = '''"""A snake that eats. Edit `move` and run it: battlesnake-gym arena {path} hungry"""

from battlesnake_gym.boards.board import Board


def info():
    """Describe the snake (https://docs.battlesnake.com/guides/customizations)."""
    return {{"apiversion": "1", "color": "#3366cc", "head": "default", "tail": "default"}}


def move(game_state):
    """Return up, down, left or right; `game_state` is the JSON of a move request."""
    board = Board.from_api(game_state)
    safe = board.safe_moves()  # The moves that are not certainly fatal.
    if not safe:
        return "up"
    x, y = board.you.head
    cells = {{"up": (x, y + 1), "down": (x, y - 1), "left": (x - 1, y), "right": (x + 1, y)}}

    def distance_to_food(move):
        """Count the steps from the next cell to the nearest food."""
        next_x, next_y = cells[move]
        steps = (abs(next_x - x) + abs(next_y - y) for x, y in board.food)
        return min(steps, default=0)

    return min(safe, key=distance_to_food)


# Next step: a snake of rules, which also explains its moves. See
# battlesnake-gym snakes new rules_{name}.py --rules
'''

_RULES_TEMPLATE = '''"""A snake of rules. To run it: battlesnake-gym arena {path} hungry"""

from battlesnake_gym import snakes
from battlesnake_heuristics import SAFE, Pipeline, When
from battlesnake_heuristics.rule_based.conditions import hungry
from battlesnake_heuristics.rule_based.preferences import food, tail, territory


def make_snake(seed):
    """Eat when hungry, otherwise claim territory and stay near the tail."""
    return Pipeline(
        *SAFE,  # Filters veto moves, such as moves into walls.
        When(hungry, [food * 3], [tail * 0.1]),
        territory,  # A preference scores each move. The move with the highest sum wins.
        seed=seed,
    )


# All filters, conditions and preferences: docs/reference/rules-of-snakes.md
snakes.register("{name}", make_snake)
'''


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Write a snake.

    Returns:
        0, or 2 if the file exists or its name is invalid.
    """
    options = parser().parse_args(argv)
    path: Path = options.path
    template = _RULES_TEMPLATE if options.rules else _TEMPLATE
    check_new_file(path)
    text = template.format(path=path, name=path.stem)
    write_atomically(path, lambda part: part.write_text(text, "utf-8"))
    sys.stdout.write(
        f"wrote {path}\nlet it play:  battlesnake-gym arena {path} hungry cautious\n"
        f"check it:     battlesnake-gym snakes check {path}\n"
        f"serve it:     battlesnake-gym serve {path} --reload\n"
    )
    return 0


def check_new_file(path: Path) -> None:
    """Reject an existing file, and a name that is not the name of a Python module.

    Raises:
        ValueError: If a file is rejected.
    """
    if not (path.stem.isidentifier() and path.suffix == ".py"):
        raise ValueError(
            f"the file name must be a Python identifier and .py, got {path.name!r}; try my_snake.py"
        )
    if path.exists():
        raise ValueError(f"{path.name} exists; choose another name")


def parser() -> Parser:
    """Create the command-line parser."""
    parser = Parser(
        prog="battlesnake-gym snakes new",
        description="Write a small snake: a function that returns a move, or with --rules a list "
        "of rules.",
        epilog="Example: battlesnake-gym snakes new my_snake.py",
    )
    parser.add_argument("path", type=Path, metavar="FILE", help="new file, such as my_snake.py")
    parser.add_argument(
        "--rules", action="store_true", help="write a snake of rules, which explains its moves"
    )
    return parser
