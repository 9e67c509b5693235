"""Recorded games in the form of the official command line: what ``battlesnake play -o`` writes.

Its file has the game in the first line, then the body of one request for each turn, then the
result. It has neither moves nor deaths, so reading works them out: a snake that lives on has shown
its move; for one that is gone, the moves are tried that lead to the next position by the rules
(`Turn.inferred` names it then, unless the file shows its last body as ``you``). The seed is not in
the file either: a replay read from it keeps the food and hazards of every turn.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from battlesnake_gym.boards import board_json, json_fields
from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.replays import limits
from battlesnake_gym.replays.json_lines import at_line, write_lines
from battlesnake_gym.rules import default_move
from battlesnake_gym.rules.state import MOVES, Point, Snake, State

_MAX_MOVE_COMBINATIONS = 4096
"""How many combinations of moves are tried where several snakes are gone at once (six: 4^6)."""


@dataclass(frozen=True, slots=True)
class InferredTurn:
    """What a turn must have been: the moves, whose are guesses, and the position that they led to.

    ``latency`` is in milliseconds, by snake id.
    """

    moves: dict[str, str]
    inferred: list[str]
    after: Board
    latency: dict[str, float]


def save(boards: Iterable[Board], path: str | os.PathLike[str]) -> None:
    """Write all boards of a game, such as `Replay.boards` gives, as the official command line does.

    What its form cannot hold is left out.
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
    write_lines(path, [board_json.write_game(last.game), *bodies, result])


def read(
    head: dict[str, Any], lines: Iterable[dict[str, Any]], name: str
) -> tuple[Board, list[InferredTurn]]:
    """The first board and all turns of such a file: its first line, and those that follow.

    ``name`` is how errors call it.

    Raises `ReplayError` with the line of what cannot be read or follow by the rules.
    """
    frames: list[State] = []
    last_heads: dict[str, Point] = {}
    with at_line(name, 1):
        if "ruleset" not in head:
            raise ValueError("neither a replay nor a game begins here; is this a recorded game?")
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
            raise ValueError("the first position is missing; the file is cut off")
        solo = len(frames[0].snakes) < 2
        game = board_json.read_game(head, UNKNOWN_SEED, solo)
        first = board = Board.from_state(frames[0], game)
    turns = []
    for number, frame in enumerate(frames[1:], 3):
        with at_line(name, number):
            turns.append(infer_turn(board, frame, last_heads))
        board = turns[-1].after
    return first, turns


def _read_frame(line: dict[str, Any]) -> tuple[State, dict[str, Point]]:
    """The position in one line, and where the head of ``you`` lies if that snake is out."""
    frame = board_json.read({**line, "you": None})[1]
    you = json_fields.child(line, "you", "")
    body = json_fields.points(you, "body", "you")
    if not body or you.get("id") in [snake.id for snake in frame.snakes]:
        return frame, {}
    return frame, {json_fields.string(you, "id", "you"): body[0]}


def infer_turn(board: Board, frame: State, last_heads: dict[str, Point]) -> InferredTurn:
    """The turn that leads from ``board`` to ``frame``, which shows the snakes that live on.

    ``last_heads`` has by id where the heads of the snakes that are gone lie, as far as is known.
    Raises ``ValueError`` where no moves lead there by the rules.
    """
    if frame.turn != board.turn + 1:
        raise ValueError(f"turn must be {board.turn + 1}, got {frame.turn}; lines are missing")
    shown = {snake.id: snake for snake in frame.snakes}
    for snake_id in shown:
        if snake_id not in {snake.id for snake in board.living}:
            raise ValueError(f"the snake {snake_id!r} was not on the board a turn ago")
    moves, guessed = _find_moves(board, frame, shown, last_heads)
    after = board.copy()
    after.advance(moves)
    after.food, after.hazards = frame.food, frame.hazards
    for i, snake in enumerate(after.snakes):
        if snake.id in shown:
            after.snakes[i] = _as_shown(snake, shown[snake.id])
        elif snake.alive:
            raise ValueError(
                f"the snake {snake.id!r} is gone, but no move of it is fatal by the rules of "
                f"{board.game.ruleset!r}; was the game played under others?"
            )
    latency = {snake.id: _milliseconds(snake.latency) for snake in frame.snakes}
    known = {snake_id: value for snake_id, value in latency.items() if value is not None}
    return InferredTurn(moves, guessed, after, known)


def _find_moves(
    board: Board, frame: State, shown: dict[str, Snake], last_heads: dict[str, Point]
) -> tuple[dict[str, str], list[str]]:
    """The moves that lead to ``frame``, and whose are guesses."""
    choices: dict[str, list[str]] = {}
    for snake in board.living:
        head = shown[snake.id].head if snake.id in shown else last_heads.get(snake.id)
        straight = default_move(snake.body)
        likely = [straight, *(move for move in MOVES if move != straight)]
        fitting = [move for move in likely if board.target(snake.head, move) == head]
        if snake.id in shown:
            choices[snake.id] = fitting[:1] or [straight]
        else:
            choices[snake.id] = fitting[:1] or likely
    combinations = (
        dict(zip(choices, moves, strict=True)) for moves in itertools.product(*choices.values())
    )
    # Each try plays a turn, which takes as long as there are cells.
    cells = limits.check_position(board)
    tried = itertools.islice(
        combinations, min(_MAX_MOVE_COMBINATIONS, max(256, _MAX_MOVE_COMBINATIONS * 400 // cells))
    )
    best = min(tried, key=lambda moves: _mismatch(board, moves, frame, shown))
    return best, [snake_id for snake_id, options in choices.items() if len(options) > 1]


def _mismatch(
    board: Board, moves: dict[str, str], frame: State, shown: dict[str, Snake]
) -> tuple[int, int, int]:
    """How far these moves lead from ``frame``: in who lives, in the living, in the food."""
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


def _as_shown(snake: Snake, shown: Snake) -> Snake:
    """The snake with the body and health that the file shows, alive."""
    return Snake(
        id=snake.id,
        body=shown.body,
        health=shown.health,
        name=snake.name,
        latency=snake.latency,
        shout=snake.shout,
        customizations=snake.customizations,
    )


def _milliseconds(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
