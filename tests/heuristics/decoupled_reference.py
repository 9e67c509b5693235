"""A reference implementation of decoupled MCTS in plain Python, for comparison with C."""

from __future__ import annotations

import dataclasses

import numpy as np

from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.grid import grid
from battlesnake_gym.rules import MOVES, wraps
from battlesnake_heuristics.search import _search
from battlesnake_heuristics.search.evaluation import Evaluation
from battlesnake_heuristics.search.search import network_inputs

EXPLORATION, HEAD_PRIOR, UNIFORM_MIX = np.float32(0.28), np.float32(0.15), np.float32(0.05)
FAR_EXPLORATION = {6: np.float32(0.1), 3: np.float32(0.3), -1: np.float32(1)}
"""Fraction of the exploration constant, by the number of steps between heads that is exceeded."""
PRIOR_UPDATE_VISITS = 8
ONE = np.float32(1)
LOGIT = 10_000


class ActionStats:
    """The action statistics of a snake at a node: prior, visits and value sum of each move."""

    def __init__(self, value: np.float32, prior: list[np.float32]) -> None:
        self.value, self.prior = value, prior
        self.visits = [0] * 4
        self.sum = [np.float32(0)] * 4

    def select(self, bonus: np.float32) -> int:
        scores = [
            (self.sum[move] / np.float32(self.visits[move]) if self.visits[move] else self.value)
            + bonus * self.prior[move] / np.float32(1 + self.visits[move])
            if self.prior[move]
            else np.float32(-1)
            for move in range(4)
        ]
        return scores.index(max(scores))

    def most_visited(self) -> int:
        return max((m for m in range(4) if self.prior[m]), key=lambda m: (self.visits[m], -m))


class Node:
    """A node of the tree, with the action statistics of its snakes and its children."""

    def __init__(self, tree: Tree, before: Board, board: Board) -> None:
        self.board, self.visits = board, 0
        self.children: dict[tuple[int, ...], Node] = {}
        scores = tree.scores(before, board)
        alive = {snake.id for snake in board.living}
        self.over = len(alive) < 2 or tree.ids[0] not in alive
        self.action_stats = {
            name: ActionStats(
                scores[name], _priors(board, name) if name in alive and not self.over else []
            )
            for name in tree.ids
        }


class Tree:
    """The search tree of ``nodes`` simulations from ``board``."""

    def __init__(self, board: Board, evaluation: Evaluation, nodes: int) -> None:
        board = board.without_seed()
        self.numbers = evaluation.network_bytes
        self.ids = [board.you.id, *(s.id for s in board.living if s is not board.you)]
        self.played = 0
        self.root = Node(self, board, board)
        for _ in range(nodes):
            self.simulate()
            if self.played >= nodes:
                break

    def scores(self, before: Board, board: Board) -> dict[str, np.float32]:
        """Return each snake's expected score; eliminated snakes have 0 while the game continues."""
        living = [snake.id for snake in board.living]
        if len(living) < 2:
            last = living or [snake.id for snake in before.living]
            return {name: ONE / np.float32(len(last)) * (name in last) for name in self.ids}
        chances = {name: np.float32(0) for name in self.ids}
        total = np.float32(0)
        for name in (name for name in self.ids if name in living):
            row = network_inputs(dataclasses.replace(board, you_id=name)).tobytes()
            value = np.frombuffer(
                _search.evaluate_batch(0, self.numbers, row, len(living)) or b"", "i4"
            )
            odds = ONE + np.float32(np.clip(value[0], -8 * LOGIT, 8 * LOGIT)) / np.float32(
                1024 * LOGIT
            )
            for _ in range(10):
                odds *= odds
            chances[name] = odds / (ONE + odds)
            total += chances[name]
        return {name: chance / total for name, chance in chances.items()}

    def play(self, board: Board, moves: dict[str, int]) -> Board:
        self.played += 1
        after = board.copy()
        after.advance({snake.id: MOVES[moves[snake.id]] for snake in board.living})
        return after

    def update_priors(self, node: Node) -> None:
        living = [name for name in self.ids if any(node.action_stats[name].prior)]
        most_visited_moves = {name: node.action_stats[name].most_visited() for name in living}
        for name in living:
            prior = node.action_stats[name].prior
            odds, total = [np.float32(0)] * 4, np.float32(0)
            for move in range(4):
                if prior[move] in (0, 1):
                    continue
                after = self.play(node.board, {**most_visited_moves, name: move})
                share = self.scores(node.board, after)[name]
                odds[move] = prior[move] * (share + np.float32(0.001)) / (np.float32(1.001) - share)
                total += odds[move]
            if total > 0:
                for move in range(4):
                    better = (ONE - UNIFORM_MIX) * odds[move] / total
                    prior[move] = UNIFORM_MIX * prior[move] + better

    def simulate(self) -> None:
        node, path, contested = self.root, [], {}
        exploration = {name: EXPLORATION * _far_exploration(node.board, name) for name in self.ids}
        while not node.over:
            if node.visits == PRIOR_UPDATE_VISITS:
                self.update_priors(node)
            sqrt_visits = np.sqrt(np.float32(node.visits + 1))
            moves = {
                name: action_stats.select(exploration[name] * sqrt_visits)
                for name, action_stats in node.action_stats.items()
                if any(action_stats.prior)
            }
            if node is self.root and not node.visits % 2:
                contested = _contested(node.board, moves)
                moves |= contested
            path.append((node, moves))
            key = tuple(moves.values())
            is_new = key not in node.children
            if is_new:
                node.children[key] = Node(self, node.board, self.play(node.board, moves))
            node = node.children[key]
            if is_new:
                break
        for passed, moves in path:
            passed.visits += 1
            for name, move in moves.items():
                if passed is self.root and name in contested:
                    continue
                passed.action_stats[name].visits[move] += 1
                passed.action_stats[name].sum[move] += node.action_stats[name].value


def _far_exploration(board: Board, name: str) -> np.float32:
    """Return the fraction of the exploration constant of a snake, by the distance of its head."""
    shape = grid(board.width, board.height, wraps(board.game))
    steps = shape.distance(board.you.head, board.snake(name).head)
    return next(part for more, part in FAR_EXPLORATION.items() if steps > more)


def _contested(board: Board, moves: dict[str, int]) -> dict[str, int]:
    """Return moves of equally long opponents to the cell of our head after our move."""
    target = board.target(board.you.head, MOVES[moves[board.you.id]])
    return {
        other.id: number
        for other in board.living
        if other.id != board.you.id and len(other.body) == len(board.you.body)
        for number, move in enumerate(MOVES)
        if board.inside(target) and board.target(other.head, move) == target
    }


def _priors(board: Board, name: str) -> list[np.float32]:
    """Return a prior for each move that does not kill at once; it is lower beside long heads."""
    me = board.snake(name)
    taken = {cell for other in board.living for cell in other.body[:-1]}
    opponents = [s for s in board.living if s.id != name and len(s.body) >= len(me.body)]
    weights = [np.float32(0)] * 4
    for number, move in enumerate(MOVES):
        cell = board.target(me.head, move)
        if board.inside(cell) and cell not in taken:
            shy = any(
                board.target(other.head, step) == cell for other in opponents for step in MOVES
            )
            weights[number] = HEAD_PRIOR if shy else ONE
    if not any(weights):
        weights[0] = ONE
    total = np.float32(0)
    for weight in weights:
        total += weight
    return [weight / total for weight in weights]
