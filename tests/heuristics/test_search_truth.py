"""Proven results of the search, compared with brute force on the rules."""

import itertools
import random
from collections import Counter

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import MOVES, Game
from battlesnake_heuristics.search.search import Search
from tests.heuristics.test_search import DRAWN, PROVEN, after


def truths(board: Board, turns: int = 1) -> dict[str, float]:
    """Solve a duel near its end by brute force: the score of each of our moves."""
    opponent = next(snake for snake in board.living if snake.id != board.you_id)
    found = {}
    for move in board.safe_moves() or MOVES[:1]:
        scores = []
        for answer in board.safe_moves(opponent.id) or MOVES[:1]:
            child = after(board, {board.you.id: move, opponent.id: answer})
            winners = [snake.id for snake in child.living]
            if len(winners) == 2:
                scores.append(max(truths(child, turns + 1).values()))
            else:
                won = 1 if winners == [board.you_id] else -1
                scores.append(won * (1000 - turns / 1000) if winners else DRAWN)
        found[move] = min(scores)
    return found


def test_a_decided_score_is_the_truth_to_the_turn() -> None:
    """Also correct for scores from the table, which other turns of the game have filled."""
    decided = 0
    for seed in range(1, 25):
        board, rng = Board.new(5, 5, 2, game=Game("constrictor", seed=seed)), random.Random(seed)
        while not board.is_over():
            for snake in board.living if board.turn > 4 else ():
                board.you_id = snake.id
                if len(board.safe_moves()) > 1:  # otherwise there is nothing to search
                    scores, expected = Search()(board).scores, truths(board)
                    assert max(scores.values()) == pytest.approx(max(expected.values()), abs=1e-6)
                    exact = Search(exact=True)(board).scores
                    for move in expected:
                        if abs(exact[move]) > PROVEN:
                            assert exact[move] == pytest.approx(expected[move], abs=1e-6)
                            decided += 1
            board.step(
                {one.id: rng.choice(board.safe_moves(one.id) or MOVES) for one in board.living}
            )
    assert decided > 50


def test_among_several_a_loss_that_a_rival_can_spare_us_counts_half() -> None:
    seen: Counter[str] = Counter()
    for seed in range(1, 400):
        board, rng = Board.new(5, 5, 3, game=Game(seed=seed)), random.Random(seed)
        for _ in range(rng.randrange(2, 9)):
            moves = {one.id: rng.choice(board.safe_moves(one.id) or MOVES) for one in board.living}
            board.step(moves)
        options = {one.id: board.safe_moves(one.id) for one in board.living}
        if len(options) < 3 or not all(options.values()):
            continue
        board.you_id, *rivals = options
        scores = Search(max_depth=1, exact=True)(board).scores
        for move in options.pop(board.you_id):
            lost = {}
            for answers in itertools.product(*options.values()):
                child = after(
                    board, {board.you_id: move, **dict(zip(rivals, answers, strict=True))}
                )
                alive = [one.id for one in child.living]
                lost[answers] = board.you_id not in alive if alive else None
            by_one = any(
                len({(a[i], lost[a]) for a in lost}) == len(options[rivals[i]]) for i in (0, 1)
            )
            if None in lost.values() or not (len(set(lost.values())) == 1 or by_one):
                continue  # a draw, or the order of the replies matters
            kind = "all" if all(lost.values()) else "some" if any(lost.values()) else "none"
            seen[kind] += 1
            if kind == "none":
                assert scores[move] > -450
            else:
                assert scores[move] == pytest.approx(-999.999 if kind == "all" else -499.999)
    assert min(seen.values()) > 5, seen
