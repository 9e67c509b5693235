"""Reader and writer for the file format of ``battlesnake play -o``.

``battlesnake`` is the official CLI. The first line is the ``game`` object. The following lines are
the body of one request per turn. The last line is the result. The format does not contain moves and
eliminations, so this module infers both. The move of a surviving snake follows from its head. For
eliminated snakes, moves are tried until the rules lead to the next position. The attribute
``inferred`` of a turn lists these snakes, unless the file shows their last body as ``you``. The
format does not contain the seed, so a replay from such a file stores the food and hazards of every
turn.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from battlesnake_gym.boards import board_json, json_fields
from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.replays import limits
from battlesnake_gym.replays.json_lines import at_line, write_lines
from battlesnake_gym.rules import default_move
from battlesnake_gym.rules.state import MOVES, Point, Snake, State

_MAX_MOVE_COMBINATIONS = 4096
"""Maximum number of move combinations that are tried on a turn.

Turns with several eliminations need several combinations. The value is 4^6.
"""


def save(boards: Iterable[Board], path: str | os.PathLike[str]) -> None:
    """Write a game in the format of the official CLI.

    `Replay.boards` returns the boards of a game.

    Data that the format does not support is omitted.
    """
    boards = list(boards)
    bodies = [board.to_api((board.living or board.snakes)[0].id) for board in boards]
    last = boards[-1]
    winner = last.winner
    result = {
        "winnerId": winner.id if winner else "",
        "winnerName": winner.name if winner else "",
        "isDraw": len(last.snakes) > 1 and not last.living,
    }
    write_lines(path, [board_json.game_to_dict(last.game), *bodies, result])


def parse_game_file(
    head: dict[str, Any], lines: Iterable[dict[str, Any]], name: str
) -> tuple[Board, list[tuple[State, dict[str, Any]]], dict[str, Point]]:
    """Read all positions of a file.

    Args:
        head: Object of the first line.
        lines: Objects of the following lines.
        name: Name of the file in error messages.

    Returns:
        The first position; the later positions with the surviving snakes, each with keyword
        arguments of `Replay.append_frame`; and the known last head cells of eliminated snakes by
        id.

    Raises:
        ReplayError: If a line cannot be read.
    """
    frames: list[State] = []
    last_heads: dict[str, Point] = {}
    with at_line(name, 1):
        if "ruleset" not in head:
            raise ValueError(
                "this line starts neither a replay nor a game; is this a recorded game?"
            )
    meter = limits.SizeMeter()
    for number, line in enumerate(lines, 2):
        if "winnerId" in line:
            break
        with at_line(name, number):
            frame, last_head = _read_frame(line)
            meter.count(frame)
            frames.append(frame)
            last_heads |= last_head
    with at_line(name, 2):
        if not frames:
            raise ValueError("the first position is missing; the file is truncated")
        solo = len(frames[0].snakes) < 2
        game = board_json.parse_game(head, UNKNOWN_SEED, solo)
        first = Board.from_state(frames[0], game)
    known = [
        {
            "latency": parse_latencies_ms({snake.id: snake.latency for snake in frame.snakes}),
            "shouts": {snake.id: snake.shout for snake in frame.snakes if snake.shout},
        }
        for frame in frames[1:]
    ]
    return first, list(zip(frames[1:], known, strict=True)), last_heads


def _read_frame(line: dict[str, Any]) -> tuple[State, dict[str, Point]]:
    """Parse the position of a line.

    Returns:
        The position, and the head of ``you`` by id if ``you`` is eliminated.
    """
    frame = board_json.parse_request({**line, "you": None})[0]
    you = json_fields.child(line, "you", "")
    body = json_fields.points(you, "body", "you")
    if not body or you.get("id") in [snake.id for snake in frame.snakes]:
        return frame, {}
    return frame, {json_fields.string(you, "id", "you"): body[0]}


def infer_turn(
    board: Board, frame: State, last_heads: Mapping[str, Point]
) -> tuple[dict[str, str], list[str], Board]:
    """Infer the moves of the turn that leads from ``board`` to ``frame``.

    Args:
        board: Position before the turn.
        frame: Position after the turn, with the surviving snakes.
        last_heads: Known last head cells of eliminated snakes, by id.

    Returns:
        The move of each living snake by id, the ids of the snakes whose move is uncertain, and the
        position after the turn.

    Raises:
        ValueError: If no moves lead to ``frame`` under the rules.
    """
    if frame.turn != board.turn + 1:
        raise ValueError(f"turn must be {board.turn + 1}, got {frame.turn}; lines are missing")
    shown = {snake.id: snake for snake in frame.snakes}
    for snake_id in shown:
        if snake_id not in {snake.id for snake in board.living}:
            raise ValueError(f"the snake {snake_id!r} was not on the board on the previous turn")
    moves, uncertain = _find_moves(board, frame, shown, last_heads)
    after = board.copy()
    after.advance(moves)
    after.food, after.hazards = frame.food, frame.hazards
    for i, snake in enumerate(after.snakes):
        if snake.id in shown:
            after.snakes[i] = replace(
                snake,
                body=shown[snake.id].body,
                health=shown[snake.id].health,
                eliminated_cause="",
                eliminated_by="",
                eliminated_on=0,
            )
        elif snake.alive:
            raise ValueError(
                f"the snake {snake.id!r} is missing, but none of its moves is fatal in the ruleset "
                f"{board.game.ruleset!r}; was the game played with another ruleset?"
            )
    return moves, uncertain, after


def _find_moves(
    board: Board, frame: State, shown: dict[str, Snake], last_heads: Mapping[str, Point]
) -> tuple[dict[str, str], list[str]]:
    """Return the moves that lead to ``frame``, and the ids of uncertain snakes."""
    choices: dict[str, list[str]] = {}
    for snake in board.living:
        head = shown[snake.id].head if snake.id in shown else last_heads.get(snake.id)
        straight = default_move(snake.body)
        likely = [straight, *(move for move in MOVES if move != straight)]
        fitting = [move for move in likely if board.target(snake.head, move) == head]
        choices[snake.id] = fitting[:1] or ([straight] if snake.id in shown else likely)
    combinations = (
        dict(zip(choices, moves, strict=True)) for moves in itertools.product(*choices.values())
    )
    # Each attempt plays one turn, and the time of a turn is proportional to the number of cells.
    cells = limits.check_position(board)
    tried = itertools.islice(
        combinations, min(_MAX_MOVE_COMBINATIONS, max(256, _MAX_MOVE_COMBINATIONS * 400 // cells))
    )
    best = min(tried, key=lambda moves: _count_mismatches(board, moves, frame, shown))
    return best, [snake_id for snake_id, options in choices.items() if len(options) > 1]


def _count_mismatches(
    board: Board, moves: dict[str, str], frame: State, shown: dict[str, Snake]
) -> tuple[int, int, int]:
    """Count the differences from ``frame``: survivors, bodies of survivors, and food."""
    after = board.copy()
    after.advance(moves)
    lives = sum(snake.alive != (snake.id in shown) for snake in after.snakes)
    bodies = sum(
        (snake.body, snake.health) != (shown[snake.id].body, shown[snake.id].health)
        for snake in after.snakes
        if snake.alive and snake.id in shown
    )
    eaten = Counter(board.food) - Counter(after.food)
    still_there = (eaten & Counter(frame.food)).total()
    missing = (Counter(after.food) - Counter(frame.food)).total()
    return lives, bodies, still_there + missing


def parse_latencies_ms(texts: Mapping[str, str]) -> dict[str, float]:
    """Return the latencies in milliseconds, by snake id; texts without a number are omitted."""
    numbers = {}
    for snake_id, text in texts.items():
        with contextlib.suppress(ValueError):
            numbers[snake_id] = float(text)
    return numbers
