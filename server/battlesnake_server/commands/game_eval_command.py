"""``battlesnake-gym game evaluation``: what each input of the evaluation is worth in a position."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

from battlesnake_gym.boards.json_fields import sanitize_text
from battlesnake_gym.common.command_line import (
    Parser,
    add_json,
    bounded_number,
    print_error,
    write_json,
)
from battlesnake_gym.replays.replay import Replay
from battlesnake_heuristics.analysis.input_attribution import (
    attribute_inputs,
    static_win_probability,
)
from battlesnake_heuristics.search import search
from battlesnake_heuristics.search.evaluation import Evaluation, load_builtin

_PROG = "battlesnake-gym game evaluation"


def main(argv: list[str] | None = None) -> int:
    """Print the inputs of one position; returns 2 for what has none."""
    options = parser().parse_args(argv)
    if not search.COMPILED:
        return print_error(_PROG, search.NOT_COMPILED_MESSAGE)
    try:
        evaluation = Evaluation.load(options.evaluation) if options.evaluation else load_builtin()
        replay = Replay.load(options.game)
        you = replay.snake_id(options.snake) if options.snake else replay.first.snakes[0].id
        boards = [
            dataclasses.replace(board, you_id=you)
            for board in replay.boards()
            if board.snake(you).alive and len(board.living) > 1
        ]
        if not boards:
            raise ValueError(f"{you} has no rival in this game; name another by --snake")
        turn = boards[-1].turn if options.turn is None else options.turn
        board = next((one for one in boards if one.turn == turn), None)
        if board is None:
            raise ValueError(
                f"--turn {turn}: it has no rival then; give one from {boards[0].turn} to "
                f"{boards[-1].turn}"
            )
        found = attribute_inputs(evaluation, board, boards)[: options.inputs]
        chance = static_win_probability(evaluation, board)
    except (ValueError, OSError) as error:
        return print_error(_PROG, error)
    if options.json:
        inputs = [dataclasses.asdict(one) for one in found]
        write_json({"turn": board.turn, "snake": you, "chance": chance, "inputs": inputs})
        return 0
    name = sanitize_text(board.you.name or you, 24)
    lines = [f"turn {board.turn}, {name}: about {chance:.0%} without looking ahead", ""]
    lines.append("      worth  now  usual  input")
    lines += [
        f"  {one.attribution:+8.1%} {one.value:5} {one.baseline:5}   "
        f"{one.group} {one.input.name}: {one.input.unit}"
        for one in found
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog=_PROG,
        description="What a learned evaluation is given of one position of a game, and what each "
        "of these numbers is worth: by how much the chance differs from the one with what is usual "
        "in this game.",
        epilog="Example: battlesnake-gym game evaluation replays/final.jsonl.gz --turn 120",
    )
    add = parser.add_argument
    add("game", metavar="GAME", type=Path, help="a recorded game")
    add("--turn", type=bounded_number(int, 0, 10**6), metavar="N", help="which position (default: the last "
        "one with a rival)")  # fmt: skip
    add("--snake", metavar="NAME", help="whose chances (default: the first snake's)")
    add("--inputs", type=bounded_number(int, 1, 1000), default=20, metavar="N", help="how many, the most "
        "important first (default: 20)")  # fmt: skip
    add("--evaluation", type=Path, metavar="FILE", help="another than the champion's")
    add_json(parser)
    return parser
