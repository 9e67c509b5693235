"""Games in this process, without HTTP: quick answers to "which snake is better?"."""

from __future__ import annotations

import dataclasses
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tqdm import tqdm

from battlesnake_gym import snakes
from battlesnake_gym.board import Board
from battlesnake_gym.rules.state import Game
from battlesnake_gym.snakes import Strategy

SEED_STEP = 10_007
"""Games lie this far apart in seeds: the food of turn t depends on seed + t alone."""


def play(board: Board, strategies: Mapping[str, Strategy], max_turns: int = 1000) -> Board:
    """Play ``board`` on, in place, until the game is over or ``max_turns`` is reached.

    ``strategies`` maps the id of every living snake to its strategy. Returns the board.
    """
    while not board.is_over() and board.turn < max_turns:
        board.step(snakes.choose(board, strategies))
    board.you_id = None
    return board


@dataclass(frozen=True, slots=True)
class Result:
    """One finished game: who sat on the board, who won (None: a draw), after how many turns."""

    players: tuple[str, ...]
    winner: str | None
    turns: int


def play_named(players: Sequence[str], game: Game, width: int = 11, height: int = 11) -> Result:
    """Play one game between named snakes; a name may be listed more than once."""
    ids = [f"{seat}-{name}" for seat, name in enumerate(players)]
    board = Board.new(width, height, ids, game=game)
    strategies = {
        snake_id: snakes.make(name, game.seed + seat)
        for seat, (snake_id, name) in enumerate(zip(ids, players, strict=True))
    }
    play(board, strategies)
    winner = board.winner.id.partition("-")[2] if board.winner else None
    return Result(tuple(players), winner, board.turn)


def duels(
    names: Sequence[str], games: int, game: Game, width: int = 11, height: int = 11
) -> Iterator[Result]:
    """Every pair plays ``games`` games, each start in both seatings; yields them as they end."""
    for pair in itertools.combinations(names, 2):
        for number in range(games):
            seeded = dataclasses.replace(game, seed=game.seed + SEED_STEP * (number // 2))
            players = pair if number % 2 == 0 else pair[::-1]
            yield play_named(players, seeded, width, height)


def duel_shares(names: Sequence[str], games: int, game: Game) -> dict[str, dict[str, float]]:
    """Duels of all pairs: each snake's share of the points against each other, a draw counting
    half, and under ``all`` in all its games. The best comes first."""
    points: dict[tuple[str, str], float] = defaultdict(float)
    total = games * len(names) * (len(names) - 1) // 2
    played = duels(names, games, game)
    for result in tqdm(played, total=total, desc="duels", unit="game", disable=None):
        one, two = result.players
        points[one, two] += 0.5 if result.winner is None else result.winner == one
        points[two, one] += 0.5 if result.winner is None else result.winner == two
    shares = {
        name: {other: points[name, other] / games for other in names if other != name}
        for name in names
    }
    for row in shares.values():
        row["all"] = sum(row.values()) / len(row)
    return dict(sorted(shares.items(), key=lambda item: -item[1]["all"]))


def duel_table(shares: Mapping[str, Mapping[str, float]]) -> str:
    """What `duel_shares` tells, as text: a row a snake, a column an opponent."""
    lines = [" " * 12 + "".join(f"{name[:7]:>8}" for name in shares) + "     all"]
    for name, row in shares.items():
        cells = [f"{row[other]:8.0%}" if other in row else "       ." for other in shares]
        lines.append(f"{name:<12}{''.join(cells)}{row['all']:8.0%}")
    return "\n".join(lines)
