"""Check the coach on planted mistakes, and the calibration of win probabilities.

    python benchmarks/lost_games.py planted --num-snakes 4 --games 50 --file planted.jsonl
    python benchmarks/lost_games.py values --num-snakes 2 --games 50 --file values.jsonl

*planted*: In a self-play game of the search, a snake plays a planted mistake. In rollouts, this
move loses at least `_MIN_LOSS` of the score and leaves a score of at most `_MAX_REMAINING_SCORE`.
The snake is eliminated 10 to 60 turns later. The coach names the move that lost the game.
`_NUM_CHECK_ROLLOUTS` other rollouts measure the loss of that move. Games played to the end measure
the score of the best advice. A game without a suitable mistake counts only as an attempt.

*values*: The search plays itself, with an analysis of each turn. After a turn with the minimum
probability, the probability of a snake may rise above `MAX_LOST_SCORE` only after a mistake of an
opponent.

Each game is one line of the file. An interrupted command resumes.
"""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.command_line import Parser, bounded_number
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Game
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.analysis import mistakes
from battlesnake_heuristics.analysis.loss_analysis import analyze_loss
from battlesnake_heuristics.analysis.position_analysis import PositionAnalyzer, SnakeAssessment
from battlesnake_heuristics.analysis.win_probability import MIN_FORCED_WIN_VALUE, MIN_PROBABILITY
from battlesnake_heuristics.rating.match import derive_seed
from battlesnake_heuristics.search.evaluation import load_builtin, score_to_probability
from battlesnake_heuristics.search.search import Search
from battlesnake_heuristics.search.self_play import SearchPlayer, play_from_board

_NODES_PER_MOVE = 300
"""Node limit per move in games with a planted mistake."""

_MIN_LOSS, _MAX_REMAINING_SCORE, _TURNS_TO_ELIMINATION = 0.35, 0.15, range(10, 61)
"""Three limits of a planted mistake.

The limits are the minimum loss of the move, the maximum score after the move, and the number of
turns until elimination.
"""

_NUM_ROLLOUTS, _NUM_CHECK_ROLLOUTS, _NUM_FULL_GAMES = 64, 256, 32
"""Number of rollouts for a move, for the check of a loss, and of full games for the advice."""

GameSummary = dict[str, Any]


def _start_board(snakes: int, number: int) -> Board:
    """Create the start position of the game with index ``number``."""
    return Board.new(11, 11, snakes, game=Game(seed=derive_seed(snakes, number)))


def _find_costly_move(board: Board, moves: Mapping[str, str]) -> mistakes.MoveAssessment | None:
    """Find a move that meets the limits of a planted mistake, or None.

    A move that is fatal at once does not count.
    """
    for snake in board.living:
        looked = board.without_seed()
        looked.you_id = snake.id
        values = Search(evaluation=load_builtin(), nodes=2 * _NODES_PER_MOVE, exact=True)(
            looked
        ).scores
        played = moves[snake.id]
        for move in {*board.safe_moves(snake.id)} & values.keys():
            loss = score_to_probability(values.get(played, 0)) - score_to_probability(values[move])
            if values[move] < -MIN_FORCED_WIN_VALUE or loss < _MIN_LOSS:
                continue
            for games in (12, _NUM_ROLLOUTS):
                won = [
                    mistakes.score_after_move(board, snake.id, at, moves, range(5001, 5001 + games))
                    for at in (played, move)
                ]
                if won[0] - won[1] < _MIN_LOSS or won[1] > _MAX_REMAINING_SCORE:
                    break
            else:
                return mistakes.MoveAssessment(board.turn, snake.id, move, played, won[0], won[1])
    return None


def _play_game_with_mistake(
    snakes: int, number: int
) -> tuple[Replay, mistakes.MoveAssessment] | None:
    """Play a game that a snake loses by a planted mistake.

    Returns:
        The game and the mistake, or None if the game has no suitable move.
    """
    start = _start_board(snakes, number)
    player = Search(evaluation=load_builtin(), nodes=_NODES_PER_MOVE)
    players = dict.fromkeys((snake.id for snake in start.snakes), player)
    game = Replay.from_play(start, players)
    for index in range(random.Random(number).randrange(20, 100), len(game.turns)):
        moves = game.turns[index].moves
        mistake = _find_costly_move(game.board(index), moves)
        if mistake is None:
            continue
        replay = Replay(start, game.turns[:index])
        replay.append({**moves, mistake.snake_id: mistake.move})
        for _ in replay.play(players, max_turns=index + 1 + _TURNS_TO_ELIMINATION[-1]):
            if not replay.last.snake(mistake.snake_id).alive:
                break
        eliminated_on = replay.last.snake(mistake.snake_id).eliminated_on
        if eliminated_on - index - 1 in _TURNS_TO_ELIMINATION:
            return replay, mistake
    return None


def _check_planted_mistake(snakes: int, number: int) -> GameSummary | None:
    """Run the coach on a game with a planted mistake.

    Rollouts measure the result.
    """
    found = _play_game_with_mistake(snakes, number)
    if found is None:
        return None
    replay, mistake = found

    def measure_loss(turn: int) -> tuple[float, dict[str, float]]:
        """Return the loss of the move played on a turn, and the score after each move."""
        moves = replay.turns[turn].moves
        won = mistakes.assess_move(
            replay.board(turn), mistake.snake_id, moves, (_NUM_CHECK_ROLLOUTS,), 7001
        ).scores
        after = won[moves[mistake.snake_id]]
        return max(
            score for move, score in won.items() if move != moves[mistake.snake_id]
        ) - after, won

    loss = analyze_loss(replay, mistake.snake_id)
    line: GameSummary = {
        "turn": mistake.turn,
        "died": replay.last.turn,
        "cost": measure_loss(mistake.turn)[0],
    }
    if loss is None or loss.mistake is None:
        return line
    cost, won = measure_loss(loss.mistake.turn)
    advice, promised = next(iter(loss.better_moves.items()))
    return line | {
        "named": loss.mistake.turn,
        "named_cost": cost,
        "rescue": min(won[move] for move in loss.better_moves),
        "promised": promised,
        "won": _measure_full_game_score(replay, loss.mistake, advice),
    }


def _measure_full_game_score(replay: Replay, mistake: mistakes.MoveAssessment, move: str) -> float:
    """Return the mean score of a snake after ``move`` in games played to the end."""
    board = replay.board(mistake.turn)
    after = board.without_seed()
    after.advance({**replay.turns[mistake.turn].moves, mistake.snake_id: move})
    after.game = board.game
    living = [snake.id for snake in after.living]
    if len(living) < 2 or mistake.snake_id not in living:
        return (mistakes.final_scores(after) or {}).get(mistake.snake_id, 0.0)
    players = [SearchPlayer(load_builtin(), nodes=_NODES_PER_MOVE)] * len(living)
    ends = [play_from_board(after, players, seed).points for seed in range(_NUM_FULL_GAMES)]
    return float(np.mean(ends, axis=0)[living.index(mistake.snake_id)])


def _check_calibration(snakes: int, number: int, nodes: int) -> GameSummary:
    """Play a game with an analysis of each turn.

    The function compares the win probabilities with the result.
    """
    start, analyzer = _start_board(snakes, number), PositionAnalyzer(nodes=nodes)
    assessed: dict[int, dict[str, SnakeAssessment]] = {}

    def decide(board: Board, seconds: float | None = None) -> Decision:
        if board.turn not in assessed:
            assessed[board.turn] = analyzer.analyze(board)
        return Decision(assessed[board.turn][board.you.id].candidates[0].move)

    replay = Replay.from_play(start, dict.fromkeys((snake.id for snake in start.snakes), decide))
    probabilities = [
        {one: at.win_probability for one, at in turn.items()} for turn in assessed.values()
    ]
    ends = mistakes.final_scores(replay.last) or {}
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
                if probabilities[n].get(one, 0.0) > mistakes.MAX_LOST_SCORE
            )
            if (risen := next(later, None)) is not None:
                rose += 1
                unforced += not any(_has_opponent_mistake(replay, n, one) for n in range(at, risen))
    return {
        "turns": len(probabilities),
        "brier": brier,
        "lost": lost,
        "rose": rose,
        "unforced": unforced,
    }


def _has_opponent_mistake(replay: Replay, turn: int, snake_id: str) -> bool:
    """Return whether a snake other than ``snake_id`` made a mistake on a turn."""
    board, moves = replay.board(turn), replay.turns[turn].moves
    opponents = [
        s.id for s in board.living if s.id != snake_id and {*board.safe_moves(s.id)} - {moves[s.id]}
    ]
    return any(
        mistakes.assess_move(board, one, moves, (_NUM_ROLLOUTS,), 7001).loss
        >= mistakes.MISTAKE_LOSS
        for one in opponents
    )


def _summarize_planted_mistakes(games: Sequence[GameSummary]) -> str:
    """Summarize the games with planted mistakes as one line of text."""
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
        f"{won / promised:.0%} of the predicted score ({_NUM_FULL_GAMES} games each)"
    )


def _summarize_calibration(games: Sequence[GameSummary]) -> str:
    """Summarize the games with an analysis of each turn as one line of text."""
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
    """Play games, append them to the file, and print a summary."""
    parser = Parser(description=__doc__)
    add = parser.add_argument
    add("kind", choices=("planted", "values"), help="type of game to analyze")
    add("--num-snakes", type=bounded_number(int, 2, 8), default=2, help="number of snakes per game")
    add("--games", type=int, default=50, help="number of games to complete")
    add("--nodes", type=int, default=12_000, help="node limit per snake and analyzed position")
    add("--file", type=Path, required=True, help="JSON lines file to which games are appended")
    options = parser.parse_args()
    play: Callable[[int, int], GameSummary | None] = _check_planted_mistake
    summarize = _summarize_planted_mistakes
    if options.kind == "values":
        play, summarize = (
            functools.partial(_check_calibration, nodes=options.nodes),
            _summarize_calibration,
        )
    text = options.file.read_text() if options.file.exists() else ""
    lines: list[GameSummary | None] = [json.loads(line) for line in text.splitlines()]
    while sum(line is not None for line in lines) < options.games:
        lines.append(play(options.num_snakes, len(lines)))
        with options.file.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
    games = [line for line in lines if line is not None]
    tried = f"{options.num_snakes} snakes, {len(games)} of {len(lines)} games"
    print(f"{tried}: {summarize(games)}")


if __name__ == "__main__":
    main()
