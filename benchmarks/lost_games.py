"""Check the coach on planted mistakes, and the calibration of win probabilities.

    python benchmarks/lost_games.py planted --num-snakes 4 --games 50 --file planted.jsonl
    python benchmarks/lost_games.py values --num-snakes 2 --games 50 --file values.jsonl

*planted*: In a self-play game of the search, a snake plays a planted move. The move loses at least
`_MIN_COST` of the score in rollouts, leaves a score of at most `_MAX_REMAINING`, and eliminates the
snake 10 to 60 turns later. The coach names the move that lost the game. `_CHECK_GAMES` other
rollouts measure the loss of that move, and games played to the end measure the score of the best
advice. Games without such a move only count as tried.

*values*: The search plays itself with the analysis of each turn. The probability of a snake at the
minimum probability may rise above `MIN_BETTER_SCORE` only after a mistake of an opponent.

Each game is one line of the file; an interrupted command resumes.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Game
from battlesnake_gym.snakes import decide
from battlesnake_heuristics.analysis import mistakes
from battlesnake_heuristics.analysis.loss_analysis import analyze_loss
from battlesnake_heuristics.analysis.position_analysis import PositionAnalyzer
from battlesnake_heuristics.analysis.win_probability import FORCED_END_VALUE, MIN_PROBABILITY
from battlesnake_heuristics.rating.match import start_seed
from battlesnake_heuristics.search.evaluation import load_builtin, score_to_probability
from battlesnake_heuristics.search.search import Search
from battlesnake_heuristics.search.self_play import SearchPlayer, play_from_board

_NODES = 300
"""Nodes per move in games with a planted mistake."""

_MIN_COST, _MAX_REMAINING, _TURNS_TO_DEATH = 0.35, 0.15, range(10, 61)
"""Three limits of a planted move.

The limits are the minimum loss of the move, the maximum score after the move, and the number of
turns until elimination.
"""

_CHECK_GAMES, _FULL_GAMES = 256, 32
"""Numbers of rollouts that measure a loss, and of games that test the advice."""

Line = dict[str, Any]


def start_board(snakes: int, number: int) -> Board:
    """Return the start position of game ``number``."""
    return Board.new(11, 11, snakes, game=Game(seed=start_seed(snakes, number)))


def choose_moves(board: Board, player: Search) -> dict[str, str]:
    """Return the moves of all living snakes."""
    ids = [snake.id for snake in board.living]
    return {one: at.move for one, at in decide(board, dict.fromkeys(ids, player)).items()}


def costly_move(board: Board, moves: Mapping[str, str]) -> mistakes.MoveAssessment | None:
    """Return a move with the required loss that is not immediately fatal, or None."""
    for snake in board.living:
        looked = board.without_seed()
        looked.you_id = snake.id
        values = Search(evaluation=load_builtin(), nodes=2 * _NODES, exact=True)(looked).scores
        played = moves[snake.id]
        for move in {*board.safe_moves(snake.id)} & values.keys():
            loss = score_to_probability(values.get(played, 0)) - score_to_probability(values[move])
            if values[move] < -FORCED_END_VALUE or loss < _MIN_COST:
                continue
            for games in (mistakes.SCREENING_GAMES, mistakes.ROLLOUT_GAMES):
                won = [
                    mistakes.score_after_move(board, snake.id, at, moves, games, 5001 + games)
                    for at in (played, move)
                ]
                if won[0] - won[1] < _MIN_COST or won[1] > _MAX_REMAINING:
                    break
            else:
                return mistakes.MoveAssessment(board.turn, snake.id, move, played, *won)
    return None


def with_mistake(snakes: int, number: int) -> tuple[Replay, mistakes.MoveAssessment] | None:
    """Return a game lost by a planted mistake, and the mistake.

    The result is None if the game has no such move.
    """
    replay = Replay(start_board(snakes, number))
    board, player = replay.first.copy(), Search(evaluation=load_builtin(), nodes=_NODES)
    first = random.Random(number).randrange(20, 100)
    while not board.is_over() and board.turn < 1000:
        moves = choose_moves(board, player)
        mistake = costly_move(board, moves) if board.turn >= first else None
        if mistake:
            at, rest = board.copy(), [{**moves, mistake.snake_id: mistake.move}]
            at.step(rest[0])
            while (
                at.snake(mistake.snake_id).alive
                and len(rest) <= _TURNS_TO_DEATH[-1]
                and not at.is_over()
            ):
                rest.append(choose_moves(at, player))
                at.step(rest[-1])
            if not at.snake(mistake.snake_id).alive and len(rest) - 1 in _TURNS_TO_DEATH:
                for one in rest:
                    replay.append(one)
                return replay, mistake
        board.step(moves)
        replay.append(moves)
    return None


def planted(snakes: int, number: int) -> Line | None:
    """Run the coach on a game, and check the coach's result with other games."""
    found = with_mistake(snakes, number)
    if found is None:
        return None
    replay, mistake = found

    def fresh(turn: int) -> tuple[float, dict[str, float]]:
        """Return the loss of the move played on a turn, and the score of each move."""
        moves = replay.turns[turn].moves
        won = mistakes.scores_by_move(
            replay.board(turn), mistake.snake_id, moves, _CHECK_GAMES, 7001
        )
        after = won[moves[mistake.snake_id]]
        return max(
            score for move, score in won.items() if move != moves[mistake.snake_id]
        ) - after, won

    loss = analyze_loss(replay, mistake.snake_id)
    line: Line = {"turn": mistake.turn, "died": replay.last.turn, "cost": fresh(mistake.turn)[0]}
    if loss is None or loss.mistake is None:
        return line
    cost, won = fresh(loss.mistake.turn)
    advice, promised = next(iter(loss.better_moves.items()))
    return line | {
        "named": loss.mistake.turn,
        "named_cost": cost,
        "rescue": min(won[move] for move in loss.better_moves),
        "promised": promised,
        "won": score_of_full_games(replay, loss.mistake, advice),
    }


def score_of_full_games(replay: Replay, mistake: mistakes.MoveAssessment, move: str) -> float:
    """Return the score of a snake after ``move``, in games played to the end."""
    board = replay.board(mistake.turn)
    after = board.without_seed()
    after.advance({**replay.turns[mistake.turn].moves, mistake.snake_id: move})
    after.game = board.game
    living = [snake.id for snake in after.living]
    if len(living) < 2 or mistake.snake_id not in living:
        return (mistakes.final_scores(after) or {}).get(mistake.snake_id, 0.0)
    players = [SearchPlayer(load_builtin(), nodes=_NODES)] * len(living)
    ends = [play_from_board(after, players, seed).points for seed in range(_FULL_GAMES)]
    return float(np.mean(ends, axis=0)[living.index(mistake.snake_id)])


def values(snakes: int, number: int, nodes: int) -> Line:
    """Play a game with an analysis of each turn; compare probabilities and result."""
    replay, analyzer = Replay(start_board(snakes, number)), PositionAnalyzer(nodes=nodes)
    board, probabilities = replay.first.copy(), []
    while not board.is_over() and board.turn < 1000:
        assessments = analyzer.analyze(board)
        probabilities.append({one: at.win_probability for one, at in assessments.items()})
        moves = {one: at.candidates[0].move for one, at in assessments.items() if at.candidates}
        board.step(moves)
        replay.append(moves)
    ends = mistakes.final_scores(board) or {}
    brier = [
        (
            len(turn),
            float(np.mean([(score - ends.get(one, 0.0)) ** 2 for one, score in turn.items()])),
        )
        for turn in probabilities
    ]
    lost = rose = unforced = 0
    for at, turn in enumerate(probabilities):
        for one, score in turn.items():
            if score > MIN_PROBABILITY:
                continue
            lost += 1
            later = (
                n
                for n in range(at + 1, len(probabilities))
                if probabilities[n].get(one, 0.0) > mistakes.MIN_BETTER_SCORE
            )
            if (risen := next(later, None)) is not None:
                rose += 1
                unforced += not any(opponent_erred(replay, n, one) for n in range(at, risen))
    return {
        "turns": len(probabilities),
        "brier": brier,
        "lost": lost,
        "rose": rose,
        "unforced": unforced,
    }


def opponent_erred(replay: Replay, turn: int, but: str) -> bool:
    """Return whether an opponent made a mistake on a turn."""
    board, moves = replay.board(turn), replay.turns[turn].moves
    opponents = [
        s.id for s in board.living if s.id != but and {*board.safe_moves(s.id)} - {moves[s.id]}
    ]
    return any(
        mistakes.assess_move(board, one, moves, mistakes.ROLLOUT_GAMES, 7001).loss
        >= mistakes.MISTAKE_LOSS
        for one in opponents
    )


def summarize_planted(games: Sequence[Line]) -> str:
    """Summarize games with planted mistakes."""
    named = [line for line in games if "named" in line]
    exact = sum(line["named"] == line["turn"] for line in named)
    as_costly = sum(
        line["named"] != line["turn"] and line["named_cost"] >= line["cost"] for line in named
    )
    won, promised = (sum(line[key] for line in named) for key in ("won", "promised"))
    least = min(line["rescue"] for line in named)
    return (
        f"{exact} moves named, {as_costly} others that cost as much, "
        f"{len(games) - exact - as_costly} missed; advice scored at least {least:.0%}, "
        f"{won / promised:.0%} of the predicted score ({_FULL_GAMES} games each)"
    )


def summarize_values(games: Sequence[Line]) -> str:
    """Summarize games with an analysis of each turn."""
    turns = [turn for line in games for turn in line["brier"]]
    scores = {
        n: [score for living, score in turns if living == n] for n in sorted({n for n, _ in turns})
    }
    lost, rose, unforced = (
        sum(line[key] for line in games) for key in ("lost", "rose", "unforced")
    )
    return (
        "Brier score "
        + ", ".join(f"{np.mean(of):.3f} of {n} ({len(of)} turns)" for n, of in scores.items())
        + f"; of {lost} turns at the minimum probability {rose} rose, "
        f"{unforced} without a mistake of an opponent"
    )


def main() -> None:
    """Add games to a file and print a summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("kind", choices=("planted", "values"), help="kind of games")
    parser.add_argument(
        "--num-snakes", type=int, choices=range(2, 9), default=2, help="snakes per game"
    )
    parser.add_argument("--games", type=int, default=50, help="number of games that count")
    parser.add_argument(
        "--nodes", type=int, default=12_000, help="nodes per snake and analyzed position"
    )
    parser.add_argument(
        "--file", type=Path, required=True, help="JSON lines file with the games; appended to"
    )
    options = parser.parse_args()
    play: Callable[[int, int], Line | None] = planted
    summarize = summarize_planted
    if options.kind == "values":
        play, summarize = functools.partial(values, nodes=options.nodes), summarize_values
    text = options.file.read_text() if options.file.exists() else ""
    lines: list[Line | None] = [json.loads(line) for line in text.splitlines()]
    while sum(line is not None for line in lines) < options.games:
        lines.append(play(options.num_snakes, len(lines)))
        with options.file.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
    games = [line for line in lines if line is not None]
    tried = f"{options.num_snakes} snakes, {len(games)} of {len(lines)} games"
    print(f"{tried}: {summarize(games)}")


if __name__ == "__main__":
    main()
