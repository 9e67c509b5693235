"""Positions after moves that differ from the recorded game, for the viewer.

The query parameter ``?if=`` selects turns to play from the position. Each turn is a group of
letters, and a dash separates two groups. A group has one letter per snake in seat order: ``u``,
``d``, ``l`` or ``r`` for the snake's move, or ``.`` for an eliminated snake. In the last group,
``x`` selects the search's move.

In a game with limited view, the search uses only what the snake has seen in the last
`MAX_SEEN_TURNS` turns.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import BoardError, format_value
from battlesnake_heuristics.analysis.mistakes import MISTAKE_LOSS, Samples, sample_positions
from battlesnake_heuristics.analysis.position_analysis import MOVES_BY_LETTER, PositionAnalyzer
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_heuristics.search.search import unsupported_reason
from battlesnake_server import replay_json
from battlesnake_server.replay_viewer.analysis_queue import BusyError

_MAX_BRANCH_TURNS = 60
MAX_SEEN_TURNS = 50
"""Number of latest turns that snakes with limited view remember, which bounds the response time."""

_search_slots = threading.BoundedSemaphore(2)


@contextmanager
def acquire_search_slot() -> Iterator[None]:
    """Acquire one of the slots of the searches that visitors start.

    Raises:
        BusyError: If no search slot is free within 5 s.
    """
    if not _search_slots.acquire(timeout=5):
        raise BusyError("other visitors are analyzing positions; try again in a few seconds")
    try:
        yield
    finally:
        _search_slots.release()


def play_branch(boards: Sequence[Board], groups: str) -> tuple[list[Board], str]:
    """Play ``groups`` from the last of ``boards``, and replace each ``x`` with the search's move.

    New food never appears, because the function removes the seed of the game.

    Args:
        boards: Positions of the game up to the position in which the branch starts.
        groups: Moves of the branch.

    Returns:
        The given positions and the positions after each turn, and the groups of the played moves.

    Raises:
        BoardError: If the groups are invalid.
        BusyError: If all search slots are occupied.
    """
    played = [*boards[:-1], boards[-1].without_seed()]
    played_groups = []
    turns = groups.split("-") if groups else []
    if len(turns) > _MAX_BRANCH_TURNS:
        raise BoardError(f"if: at most {_MAX_BRANCH_TURNS} turns, got {len(turns)}")
    for number, group in enumerate(turns):
        if played[-1].is_over():
            raise BoardError(f"if: the game is over before turn {number + 1} of {len(turns)}")
        if "x" in group and number + 1 < len(turns):
            raise BoardError("if: only the last turn may contain x")
        moves = _parse_moves(played, group)
        board = played[-1].copy()
        board.step(moves)
        played.append(board)
        played_groups.append("".join(moves.get(s.id, ".")[0] for s in board.snakes))
    return played, "-".join(played_groups)


def _sample_last(boards: Sequence[Board], snake_ids: Collection[str]) -> Samples:
    """Return the samples of some snakes in the last position."""
    *_, samples = sample_positions(boards[-MAX_SEEN_TURNS:], snake_ids)
    return samples


def _parse_moves(boards: Sequence[Board], group: str) -> dict[str, str]:
    """Return the moves of the living snakes in a group of letters, by snake id."""
    board = boards[-1]
    if len(group) != len(board.snakes):
        raise BoardError(
            f"if: give {len(board.snakes)} letters per turn, got {format_value(group)}"
        )
    moves = {}
    for snake, letter in zip(board.snakes, group, strict=True):
        if not snake.alive:
            continue
        if letter != "x" and letter not in MOVES_BY_LETTER:
            raise BoardError(f"if: {format_value(letter)} is not one of u, d, l, r and x")
        if letter == "x":
            with acquire_search_slot():
                samples = _sample_last(boards, [snake.id])
                moves[snake.id] = PositionAnalyzer().best_move(board, snake.id, samples)
        else:
            moves[snake.id] = MOVES_BY_LETTER[letter]
    return moves


def describe_branch(boards: Sequence[Board], groups: str) -> dict[str, Any]:
    """Return the position after ``groups`` in the viewer's JSON format; see `play_branch`.

    ``snakes`` contains the search's assessment of each snake (see
    `battlesnake_heuristics.analysis.game_analysis`).
    """
    positions, played = play_branch(boards, groups)
    after = positions[-1]
    with acquire_search_slot():
        living = [snake.id for snake in after.living]
        assessments = (
            {}
            if after.game.is_solo or unsupported_reason(after)
            else PositionAnalyzer().analyze(after, _sample_last(positions, living))
        )
    return {
        "frame": replay_json.frame(after),
        "moves": played,
        "over": after.is_over(),
        "snakes": {name: one.to_dict() for name, one in assessments.items()},
    }


def build_scenario(boards: Sequence[Board]) -> Scenario:
    """Return a scenario of the last position, with the best move and almost equally good moves.

    The loss of an allowed move is less than `MISTAKE_LOSS`.

    Raises:
        BoardError: If ``you`` is eliminated or has no opponents.
        BusyError: If all search slots are occupied.
    """
    board = boards[-1]
    if len(board.living) < 2 or not board.you.alive or unsupported_reason(board):
        raise BoardError("a scenario needs a living snake with an opponent; choose another turn")
    with acquire_search_slot():
        assessments = PositionAnalyzer().analyze(board, _sample_last(boards, [board.you.id]))
    candidates = assessments[board.you.id].candidates
    best = candidates[0].win_probability
    allowed = [
        candidate.move
        for candidate in candidates
        if candidate.win_probability > best - MISTAKE_LOSS
    ]
    name = f"turn {board.turn} of {board.you.name or board.you.id}"
    note = f"The search gives {allowed[0]} a win probability of {best:.0%}."
    return Scenario(name, board, tuple(allowed), note)
