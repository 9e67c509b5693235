"""Puzzles: positions of recorded games in which exactly one move does not lose.

`Puzzle.find_all` finds the puzzles of a game. The package contains puzzles of games of the search
(``puzzles.jsonl``), which `load_builtin_puzzles` loads. ``make_puzzles.py`` of commit 076b2e78 made
the file. A search with 200,000 nodes confirmed each puzzle.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules.state import MOVES, Game
from battlesnake_heuristics.analysis.mistakes import MAX_LOST_SCORE, MISTAKE_LOSS, score_after_move
from battlesnake_heuristics.analysis.scenarios import Scenario
from battlesnake_heuristics.analysis.win_probability import MIN_PROVEN_VALUE
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import Search

_BUILTIN_PUZZLES = Path(__file__).parent / "puzzles.jsonl"

NODES_BY_GRADE = (100, 400, 1600)
"""Node limits with which a search solves a puzzle, for the grades 1, 2 and 3."""

_NUM_ROLLOUTS = 64

_MIN_TURNS_APART = 5
"""Minimum number of turns between two puzzles of a game.

Neighboring positions would result in similar puzzles.
"""

_LETTERS = "udlr-"
"""Letters of the moves, and of an eliminated snake, as in links to the playable page."""


@dataclass(frozen=True, slots=True)
class Puzzle:
    """A position of a game, and the only good move.

    Attributes:
        board: Position. ``board.you`` is the snake to move.
        move: The only good move.
        grade: Difficulty from 1 to 3 (see `NODES_BY_GRADE`).
    """

    board: Board
    move: str
    grade: int

    def to_scenario(self, game: str) -> Scenario:
        """Convert the puzzle of the game with the name ``game`` to a scenario."""
        name = f"{game} turn {self.board.turn} {self.board.you.name or self.board.you.id}"
        return Scenario(name, self.board, (self.move,), f"grade {self.grade} of 3")

    @classmethod
    def find_all(cls, replay: Replay) -> Iterator[Puzzle]:
        """Yield the puzzles of a recorded game, latest turn first."""
        boards = [board for board in replay.boards() if len(board.living) > 1]
        earliest = replay.last.turn + _MIN_TURNS_APART
        for board in reversed(boards):
            if board.turn > earliest - _MIN_TURNS_APART:
                continue
            # A puzzle shows the complete position, also of a game with limited view.
            settings = replace(board.game.settings, view_radius=None)
            board.game = replace(board.game, settings=settings)
            for snake in board.living:
                board.you_id = snake.id
                solved = _find_puzzle(board)
                if solved is not None:
                    yield cls(board, *solved)
                    earliest = board.turn
                    break


@dataclass(frozen=True, slots=True)
class PuzzleGame:
    """A game of the search on the standard board, and its puzzles.

    Attributes:
        seed: Seed of the game.
        num_snakes: Number of snakes.
        moves: For each turn, one letter per seat: u, d, l, r, or - for an eliminated snake.
        puzzles: Turn, seat, only good move and grade of each puzzle.
    """

    seed: int
    num_snakes: int
    moves: str
    puzzles: list[tuple[int, int, str, int]]

    @property
    def name(self) -> str:
        """The name of the game."""
        return f"{'duel' if self.num_snakes == 2 else 'game'} {self.seed}"

    def replay(self) -> Replay:
        """Play the game again."""
        replay = Replay(Board.new(11, 11, self.num_snakes, game=Game(seed=self.seed)))
        seats = [snake.id for snake in replay.first.snakes]
        for at in range(0, len(self.moves), len(seats)):
            letters = zip(seats, self.moves[at:], strict=False)
            replay.append({id_: MOVES[_LETTERS.index(m)] for id_, m in letters if m != "-"})
        return replay

    def moves_before(self, turn: int) -> str:
        """Return the moves before a turn."""
        return self.moves[: self.num_snakes * turn]

    def load_puzzles(self) -> list[Puzzle]:
        """Return the puzzles of the game."""
        replay, found = self.replay(), []
        for turn, seat, move, grade in self.puzzles:
            board = replay.board(turn)
            board.you_id = board.snakes[seat].id
            found.append(Puzzle(board, move, grade))
        return found


def load_builtin_puzzles() -> list[PuzzleGame]:
    """Load the games of the built-in puzzles."""
    lines = _BUILTIN_PUZZLES.read_text("utf-8").splitlines()
    return [PuzzleGame(**json.loads(line)) for line in lines]


def _find_puzzle(board: Board) -> tuple[str, int] | None:
    """Return the only good move of ``board.you``, and the grade of the puzzle.

    The result is None if the position is not a puzzle, because all moves lose, or because rollouts
    show that several moves are good.

    Returns:
        The move, and the grade from 1 to 3. A search with the node limit of this grade in
        `NODES_BY_GRADE` finds the move.
    """
    safe = board.safe_moves()
    if len(safe) < 2:
        return None
    *easier, hardest = NODES_BY_GRADE
    only = _only_surviving_move(board, hardest)
    if only is None:
        return None
    you, seen, replies = board.you.id, board.copy(), {}
    for opponent in (snake.id for snake in board.living if snake.id != you):
        seen.you_id = opponent
        replies[opponent] = Search(evaluation=load_builtin(), nodes=hardest)(seen).move
    for move in sorted(safe, key=only.__ne__):  # The rollouts of the only surviving move run first.
        score = score_after_move(board, you, move, replies, range(_NUM_ROLLOUTS))
        if score < MISTAKE_LOSS if move == only else score > MAX_LOST_SCORE:
            return None
    grades = (n for n, nodes in enumerate(easier, 1) if _only_surviving_move(board, nodes) == only)
    return only, next(grades, len(NODES_BY_GRADE))


def _only_surviving_move(board: Board, nodes: int) -> str | None:
    """Return the only safe move without a proven loss.

    The result is None if no move or several moves meet this condition. The search visits up to
    ``nodes`` nodes.
    """
    scores = Search(evaluation=load_builtin(), nodes=nodes)(board).scores
    held = [move for move in board.safe_moves() if scores.get(move, 0.0) > -MIN_PROVEN_VALUE]
    return held[0] if len(held) == 1 else None
