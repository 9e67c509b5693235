"""What if another move had been played? Positions that branch off a game, for the viewer.

``?if=`` in an address plays turns from the position that it names: one group of letters for each
turn with a dash between them, in each a letter for every snake in the order of the game: one of
``u d l r`` for its move, ``.`` for one that is out. In the last group ``x`` lets the search choose.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import BoardError, format_value
from battlesnake_heuristics.analysis.game_analysis import MOVES_BY_LETTER, write_judgement
from battlesnake_heuristics.analysis.mistakes import MISTAKE_LOSS
from battlesnake_heuristics.analysis.position_analysis import PositionAnalyzer
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_server import replay_json

_MAX_BRANCH_TURNS = 60
_SEARCH_TIME_S = 0.05
"""Of search for each living snake."""

_seats = threading.BoundedSemaphore(2)


class WhatIfBusyError(RuntimeError):
    """Others are looking at positions now."""


@contextmanager
def _analyst() -> Iterator[PositionAnalyzer]:
    """A judge of positions, two at a time. Raises `WhatIfBusyError` after some seconds."""
    if not _seats.acquire(timeout=5):
        raise WhatIfBusyError("others look at positions now; try again in some seconds")
    try:
        yield PositionAnalyzer(seconds=_SEARCH_TIME_S)
    finally:
        _seats.release()


def branch(board: Board, groups: str) -> tuple[Board, str]:
    """The position after ``groups``, and the groups with the moves that the search chose.

    What the seed would bring is not used: no new food appears. Raises `BoardError` and
    `WhatIfBusyError`.
    """
    board = board.without_seed()
    played = []
    words = groups.split("-") if groups else []
    if len(words) > _MAX_BRANCH_TURNS:
        raise BoardError(f"if: at most {_MAX_BRANCH_TURNS} turns are played, got {len(words)}")
    for number, word in enumerate(words):
        if board.is_over():
            raise BoardError(f"if: the game is over before turn {number + 1} of {len(words)}")
        if "x" in word and number + 1 < len(words):
            raise BoardError("if: only the last turn may leave moves to the search")
        moves = _moves(board, word)
        board.step(moves)
        played.append("".join(moves.get(s.id, ".")[0] for s in board.snakes))
    return board, "-".join(played)


def _moves(board: Board, word: str) -> dict[str, str]:
    if len(word) != len(board.snakes):
        raise BoardError(f"if: give {len(board.snakes)} letters a turn, got {format_value(word)}")
    moves = {}
    for snake, letter in zip(board.snakes, word, strict=True):
        if not snake.alive:
            continue
        if letter != "x" and letter not in MOVES_BY_LETTER:
            raise BoardError(f"if: {format_value(letter)} is none of u, d, l, r and x")
        moves[snake.id] = MOVES_BY_LETTER.get(letter) or _chosen(board, snake.id)
    return moves


def _chosen(board: Board, snake_id: str) -> str:
    with _analyst() as analyst:
        return analyst.best_move(board, snake_id)


def describe(board: Board, groups: str) -> dict[str, Any]:
    """The position after ``groups`` as the viewer shows it: ``frame``, ``moves``, ``snakes``.

    ``snakes`` is what the search thinks of each (see `battlesnake_heuristics.analysis.game_analysis`).
    """
    after, played = branch(board, groups)
    solo = after.game.solo or after.game.ruleset == "solo"
    with _analyst() as analyst:
        judged = {} if solo else analyst.analyze(after)
    return {
        "frame": replay_json.frame(after),
        "moves": played,
        "over": after.is_over(),
        "snakes": {name: write_judgement(judgement) for name, judgement in judged.items()},
    }


def scenario(board: Board) -> Scenario:
    """The position as a test of ``board.you``: the moves that the search finds about as good.

    Raises `BoardError` where nothing can be right there.
    """
    choices = (
        PositionAnalyzer(seconds=4 * _SEARCH_TIME_S).analyze(board)[board.you.id].candidates
        if len(board.living) > 1 and board.you.alive
        else ()
    )
    if not choices:
        raise BoardError("a scenario needs a living snake with a rival; choose another turn")
    best = choices[0].win_probability
    allowed = [choice.move for choice in choices if choice.win_probability > best - MISTAKE_LOSS]
    name = f"turn {board.turn} of {board.you.name or board.you.id}"
    note = f"The search gives {allowed[0]} a chance of {best:.0%}."
    return Scenario(name, board, tuple(allowed), note)
