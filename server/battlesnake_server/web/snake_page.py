"""Page ``/snake/NAME``: ratings, opponents, openings and eliminations."""

from __future__ import annotations

from dataclasses import dataclass

from flask import Blueprint, render_template, request

from battlesnake_gym.rules import MOVES
from battlesnake_server.arena.ratings import CI_95_Z_SCORE
from battlesnake_server.arena.results import History
from battlesnake_server.web.leaderboard import (
    ENDING_LABELS,
    find_history,
    list_tournaments,
    requested_tournament,
)
from battlesnake_server.web.pages import render_missing_page

blueprint = Blueprint("snake", __name__)

_MAX_CURVE_POINTS = 300
"""Maximum number of points of the curve.

Longer histories are subsampled.
"""

_MAX_OPENINGS = 8

_CLOCKWISE_MOVES = ("up", "right", "down", "left")
_ARROWS = {"up": "↑", "right": "→", "down": "↓", "left": "←"}


@dataclass(frozen=True, slots=True)
class RatingCurve:
    """Ratings as SVG points in a box of 100 by 40 units.

    Attributes:
        line: Points of the mean.
        area: Points of the 95% confidence interval.
        low: Rating at the bottom of the box.
        high: Rating at the top of the box.
    """

    line: str
    area: str
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Opening:
    """First moves of games, as arrows rotated so that the first move is up."""

    arrows: str
    games: int
    won: int


@blueprint.get("/snake/<path:name>")
def show(name: str) -> str | tuple[str, int]:
    """Render the page of one snake, for one tournament or for all games."""
    tournament = requested_tournament()
    found = find_history(name, tournament)
    if found is None:
        return render_missing_page(f"{name[:80]} has not played a game here.")
    line, games = found
    against = sorted(games.against.items(), key=lambda one: (-sum(one[1]), one[0]))
    return render_template(
        "arena_snake.html",
        name=name, line=line, curve=build_rating_curve(games.ratings),
        against=against, openings=find_common_openings(games),
        killers=games.killers.most_common(), endings=ENDING_LABELS,
        choices=list_tournaments(), chosen=tournament, page=request.path,
    )  # fmt: skip


def build_rating_curve(ratings: list[tuple[float, float]]) -> RatingCurve:
    """Return the curve of the ratings after each game.

    Args:
        ratings: Pairs (mu, sigma), one per game.
    """
    step = max(1, -(-len(ratings) // _MAX_CURVE_POINTS))
    shown = ratings[::step]
    if (len(ratings) - 1) % step:
        shown.append(ratings[-1])
    lows = [mu - CI_95_Z_SCORE * sigma for mu, sigma in shown]
    highs = [mu + CI_95_Z_SCORE * sigma for mu, sigma in shown]
    low, high = min(lows), max(highs)

    def points(values: list[float]) -> list[str]:
        across = max(1, len(values) - 1)
        return [
            f"{100 * i / across:.2f},{40 - 40 * (value - low) / (high - low):.2f}"
            for i, value in enumerate(values)
        ]

    area = points(lows) + points(highs)[::-1]
    return RatingCurve(" ".join(points([mu for mu, _ in shown])), " ".join(area), low, high)


def find_common_openings(games: History) -> list[Opening]:
    """Return the most frequent openings, rotated so that the first move is up."""
    counted: dict[str, list[int]] = {}
    for moves, number in games.openings.items():
        total = counted.setdefault(rotate_to_up(moves), [0, 0])
        total[0] += number
        total[1] += games.openings_won[moves]
    most = sorted(counted.items(), key=lambda one: (-one[1][0], one[0]))[:_MAX_OPENINGS]
    return [Opening(arrows, *numbers) for arrows, numbers in most]


def rotate_to_up(moves: str) -> str:
    """Convert initials of moves to arrows, rotated so that the first move is up.

    >>> rotate_to_up("lluu"), rotate_to_up("rrdd")
    ('↑↑→→', '↑↑→→')
    """
    by_letter = {move[0]: _CLOCKWISE_MOVES.index(move) for move in MOVES}
    first = by_letter[moves[0]]
    return "".join(_ARROWS[_CLOCKWISE_MOVES[(by_letter[one] - first) % 4]] for one in moves)
