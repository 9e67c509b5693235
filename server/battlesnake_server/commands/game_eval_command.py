"""``battlesnake-gym game eval``: explain the static evaluation of one position.

The command prints the contribution of each evaluation input to the win probability.
"""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from battlesnake_gym.boards.json_fields import sanitize_text
from battlesnake_gym.common.command_line import (
    Parser,
    add_json_option,
    bounded_number,
    print_json,
    reports_errors,
)
from battlesnake_gym.replays.replay import Replay
from battlesnake_heuristics.analysis.input_attribution import (
    attribute_inputs,
    static_win_probability,
)
from battlesnake_heuristics.search import search
from battlesnake_heuristics.search.evaluation import Evaluation, load_builtin


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Print the evaluation inputs of one position, the largest contribution first.

    The exit status is 2 if the position has no evaluation.
    """
    options = parser().parse_args(argv)
    if not search.COMPILED:
        raise ValueError(search.NOT_COMPILED_MESSAGE)
    evaluation = Evaluation.load(options.evaluation) if options.evaluation else load_builtin()
    replay = Replay.load(options.game)
    you = replay.snake_id(options.snake) if options.snake else replay.first.snakes[0].id
    boards = [
        dataclasses.replace(board, you_id=you)
        for board in replay.boards()
        if board.snake(you).alive and len(board.living) > 1
    ]
    if not boards:
        raise ValueError(f"{you} has no opponent in this game; name another snake with --snake")
    turn = boards[-1].turn if options.turn is None else options.turn
    board = next((one for one in boards if one.turn == turn), None)
    if board is None:
        raise ValueError(
            f"--turn {turn}: the snake or all its opponents are eliminated; give a turn from "
            f"{boards[0].turn} to {boards[-1].turn}"
        )
    found = attribute_inputs(evaluation, board, boards)[: options.top]
    win_probability = static_win_probability(evaluation, board)
    if options.json:
        inputs = [dataclasses.asdict(one) for one in found]
        print_json({"turn": board.turn, "snake": you, "win_probability": win_probability,
                    "inputs": inputs})  # fmt: skip
        return 0
    name = sanitize_text(board.you.name or you, 24)
    lines = [
        f"turn {board.turn}, {name}: win probability about {win_probability:.0%} without search",
        "",
    ]
    lines.append("  contribution  value  mean  input")
    lines += [
        f"  {one.attribution:+12.1%} {one.value:6} {one.baseline:5}  "
        f"{one.group} {one.input.name}: {one.input.unit}"
        for one in found
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def parser() -> Parser:
    """Create the argument parser."""
    parser = Parser(
        prog="battlesnake-gym game eval",
        description="Show the inputs of the learned evaluation for one position and each input's "
        "contribution to the win probability, relative to its mean in this game.",
        epilog="Example: battlesnake-gym game eval replays/final.jsonl.gz --turn 120",
    )
    add = parser.add_argument
    add("game", metavar="GAME", type=Path, help="replay file")
    add("--turn", type=bounded_number(int, 0, 10**6), metavar="N",
        help="turn to evaluate (default: the last turn with at least two living "
        "snakes)")  # fmt: skip
    add("--snake", metavar="NAME", help="name or id of the snake to evaluate (default: the "
        "first snake)")  # fmt: skip
    add("--top", type=bounded_number(int, 1, 1000), default=20, metavar="N",
        help="number of inputs to print, largest contribution first")  # fmt: skip
    add("--evaluation", type=Path, metavar="FILE", help="evaluation file that replaces the "
        "champion's evaluation")  # fmt: skip
    add_json_option(parser)
    return parser
