"""Whether the coach names the move that lost a game, and whether shown chances come true.

    python benchmarks/lost_games.py planted --snakes 4 --games 50 --file planted.jsonl
    python benchmarks/lost_games.py values --snakes 2 --games 50 --file values.jsonl

*planted*: in a game of the search against itself a snake plays a move that costs it `_COST` or more
of the games that go on, leaves it `_LEFT` at most, and kills it 10 to 60 turns later. The coach is
asked which move lost; `_FRESH` other games say what that move cost, and games to the end by the
players of the first what its best advice wins. Games without such a move only count as tried.
*values*: the search plays itself by the analysis of each turn, which says what it would show. A
snake at the least chance that is shown may rise above `MIN_BETTER_SCORE` only by a rival's mistake.

A game is a line of the file: a command that was stopped goes on.
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
from battlesnake_heuristics.analysis import mistakes as judge
from battlesnake_heuristics.analysis.loss_analysis import analyze_loss
from battlesnake_heuristics.analysis.position_analysis import PositionAnalyzer
from battlesnake_heuristics.analysis.win_probability import FORCED_END_VALUE, MIN_PROBABILITY
from battlesnake_heuristics.rating.match import start_seed
from battlesnake_heuristics.search.evaluation import load_builtin, score_to_probability
from battlesnake_heuristics.search.search import Search
from battlesnake_heuristics.search.self_play import SearchPlayer, play_from

_POSITIONS = 300
"""For a move of a game with a planted mistake."""

_COST, _LEFT, _DIES = 0.35, 0.15, range(10, 61)
"""What a planted move costs at least and leaves at most, and how many turns later it kills."""

_FRESH, _TO_THE_END = 256, 32
"""Games that settle what a move cost, others than the coach's; and by which advice is tried."""

Line = dict[str, Any]


def begun(snakes: int, number: int) -> Board:
    """The start of a game."""
    return Board.new(11, 11, snakes, game=Game(seed=start_seed(snakes, number)))


def moved(board: Board, player: Search) -> dict[str, str]:
    """What all living snakes do."""
    ids = [snake.id for snake in board.living]
    return {one: at.move for one, at in decide(board, dict.fromkeys(ids, player)).items()}


def dear(board: Board, moves: Mapping[str, str]) -> judge.MoveAssessment | None:
    """A move that costs a snake what it should but not its life at once, if there is one."""
    for snake in board.living:
        looked = board.without_seed()
        looked.you_id = snake.id
        values = Search(evaluation=load_builtin(), nodes=2 * _POSITIONS, exact=True)(looked).scores
        played = moves[snake.id]
        for move in {*board.safe_moves(snake.id)} & values.keys():
            fall = score_to_probability(values.get(played, 0)) - score_to_probability(values[move])
            if values[move] < -FORCED_END_VALUE or fall < _COST:
                continue
            for games in (judge.SCREENING_GAMES, judge.ROLLOUT_GAMES):
                won = [
                    judge.score_after_move(board, snake.id, at, moves, games, 5001 + games)
                    for at in (played, move)
                ]
                if won[0] - won[1] < _COST or won[1] > _LEFT:
                    break
            else:
                return judge.MoveAssessment(board.turn, snake.id, move, played, *won)
    return None


def with_mistake(snakes: int, number: int) -> tuple[Replay, judge.MoveAssessment] | None:
    """A game that a planted mistake lost, and which; None where there was none that did."""
    replay = Replay(begun(snakes, number))
    board, player = replay.first.copy(), Search(evaluation=load_builtin(), nodes=_POSITIONS)
    first = random.Random(number).randrange(20, 100)
    while not board.is_over() and board.turn < 1000:
        moves = moved(board, player)
        mark = dear(board, moves) if board.turn >= first else None
        if mark:
            at, rest = board.copy(), [{**moves, mark.snake_id: mark.move}]
            at.step(rest[0])
            while at.snake(mark.snake_id).alive and len(rest) <= _DIES[-1] and not at.is_over():
                rest.append(moved(at, player))
                at.step(rest[-1])
            if not at.snake(mark.snake_id).alive and len(rest) - 1 in _DIES:
                for one in rest:
                    replay.append(one)
                return replay, mark
        board.step(moves)
        replay.append(moves)
    return None


def planted(snakes: int, number: int) -> Line | None:
    """What the coach says of a game, and what other games say of that."""
    found = with_mistake(snakes, number)
    if found is None:
        return None
    replay, mark = found

    def fresh(turn: int) -> tuple[float, dict[str, float]]:
        """What the move of a turn cost, and what each move wins."""
        moves = replay.turns[turn].moves
        won = judge.scores_by_move(replay.board(turn), mark.snake_id, moves, _FRESH, 7001)
        after = won[moves[mark.snake_id]]
        return max(
            share for move, share in won.items() if move != moves[mark.snake_id]
        ) - after, won

    taught = analyze_loss(replay, mark.snake_id)
    line: Line = {"turn": mark.turn, "died": replay.last.turn, "cost": fresh(mark.turn)[0]}
    if taught is None or taught.mistake is None:
        return line
    cost, won = fresh(taught.mistake.turn)
    advice, promised = next(iter(taught.better_moves.items()))
    return line | {
        "named": taught.mistake.turn,
        "named_cost": cost,
        "rescue": min(won[move] for move in taught.better_moves),
        "promised": promised,
        "won": to_the_end(replay, taught.mistake, advice),
    }


def to_the_end(replay: Replay, mark: judge.MoveAssessment, move: str) -> float:
    """The share of games, played to the end, that a snake wins by this move."""
    board = replay.board(mark.turn)
    after = board.without_seed()
    after.advance({**replay.turns[mark.turn].moves, mark.snake_id: move})
    after.game = board.game
    living = [snake.id for snake in after.living]
    if len(living) < 2 or mark.snake_id not in living:
        return (judge.final_scores(after) or {}).get(mark.snake_id, 0.0)
    players = [SearchPlayer(load_builtin(), nodes=_POSITIONS)] * len(living)
    ends = [play_from(after, players, seed).points for seed in range(_TO_THE_END)]
    return float(np.mean(ends, axis=0)[living.index(mark.snake_id)])


def values(snakes: int, number: int, positions: int) -> Line:
    """A game by its own analysis: what was shown each turn, and where it did not come true."""
    replay, analyst = Replay(begun(snakes, number)), PositionAnalyzer(positions=positions)
    board, shown = replay.first.copy(), []
    while not board.is_over() and board.turn < 1000:
        judged = analyst.analyze(board)
        shown.append({one: at.win_probability for one, at in judged.items()})
        moves = {one: at.candidates[0].move for one, at in judged.items() if at.candidates}
        board.step(moves)
        replay.append(moves)
    ends = judge.final_scores(board) or {}
    brier = [
        (
            len(turn),
            float(np.mean([(share - ends.get(one, 0.0)) ** 2 for one, share in turn.items()])),
        )
        for turn in shown
    ]
    lost = rose = unforced = 0
    for at, turn in enumerate(shown):
        for one, share in turn.items():
            if share > MIN_PROBABILITY:
                continue
            lost += 1
            later = (
                n
                for n in range(at + 1, len(shown))
                if shown[n].get(one, 0.0) > judge.MIN_BETTER_SCORE
            )
            if (risen := next(later, None)) is not None:
                rose += 1
                unforced += not any(erred(replay, n, one) for n in range(at, risen))
    return {"turns": len(shown), "brier": brier, "lost": lost, "rose": rose, "unforced": unforced}


def erred(replay: Replay, turn: int, but: str) -> bool:
    """Whether a rival made a mistake on a turn."""
    board, moves = replay.board(turn), replay.turns[turn].moves
    rivals = [
        s.id for s in board.living if s.id != but and {*board.safe_moves(s.id)} - {moves[s.id]}
    ]
    return any(
        judge.assess_move(board, one, moves, judge.ROLLOUT_GAMES, 7001).loss >= judge.MISTAKE_LOSS
        for one in rivals
    )


def of_planted(games: Sequence[Line]) -> str:
    """What games with a planted mistake say together."""
    named = [line for line in games if "named" in line]
    exact = sum(line["named"] == line["turn"] for line in named)
    as_dear = sum(
        line["named"] != line["turn"] and line["named_cost"] >= line["cost"] for line in named
    )
    won, promised = (sum(line[key] for line in named) for key in ("won", "promised"))
    least = min(line["rescue"] for line in named)
    return (
        f"{exact} moves named, {as_dear} others that cost as much, "
        f"{len(games) - exact - as_dear} missed; advice won {least:.0%} "
        f"at least, {won / promised:.0%} of what was promised ({_TO_THE_END} games each)"
    )


def of_values(games: Sequence[Line]) -> str:
    """What games by their own analysis say together."""
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
        + f"; of {lost} turns at the least chance {rose} rose, {unforced} without a rival's mistake"
    )


def main() -> None:
    """Go on with a file, and print what it says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("kind", choices=("planted", "values"))
    parser.add_argument("--snakes", type=int, choices=range(2, 9), default=2)
    parser.add_argument("--games", type=int, default=50, help="that count")
    parser.add_argument("--positions", type=int, default=12_000, help="for each value shown")
    parser.add_argument("--file", type=Path, required=True, help="JSON lines; it is gone on with")
    options = parser.parse_args()
    play: Callable[[int, int], Line | None] = planted
    sum_up = of_planted
    if options.kind == "values":
        play, sum_up = functools.partial(values, positions=options.positions), of_values
    text = options.file.read_text() if options.file.exists() else ""
    lines: list[Line | None] = [json.loads(line) for line in text.splitlines()]
    while sum(line is not None for line in lines) < options.games:
        lines.append(play(options.snakes, len(lines)))
        with options.file.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
    games = [line for line in lines if line is not None]
    tried = f"{options.snakes} snakes, {len(games)} of {len(lines)} games"
    print(f"{tried}: {sum_up(games)}")


if __name__ == "__main__":
    main()
