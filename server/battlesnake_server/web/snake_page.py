"""Page ``/snake/NAME``: ratings, opponents, openings and eliminations."""

from __future__ import annotations

from collections import Counter

from flask import Blueprint, abort, render_template

from battlesnake_server.arena.ratings import CI_95_Z_SCORE
from battlesnake_server.arena.results import History
from battlesnake_server.runs.charts import MAX_POINTS, Chart, Curve, round_values
from battlesnake_server.web.leaderboard import (
    ENDING_LABELS,
    find_standings,
    list_tournaments,
    requested_tournament,
)

blueprint = Blueprint("snake", __name__)

_MAX_OPENINGS = 8

_CLOCKWISE_MOVES, _CLOCKWISE_ARROWS = "urdl", "↑→↓←"


@blueprint.get("/snake/<path:name>")
def show(name: str) -> str:
    """Render the page of one snake, for one tournament or for all games."""
    tournament = requested_tournament()
    line, games = find_standings(tournament).find(name) or abort(
        404, f"{name[:80]} has not played a game here."
    )
    against = sorted(games.against.items(), key=lambda one: (-sum(one[1]), one[0]))
    return render_template(
        "arena_snake.html",
        name=name, line=line, ratings=_build_rating_chart(games.ratings),
        against=against, openings=_find_common_openings(games),
        killers=games.killers.most_common(), endings=ENDING_LABELS,
        choices=list_tournaments(), chosen=tournament,
    )  # fmt: skip


def _build_rating_chart(ratings: list[tuple[float, float]]) -> Chart:
    """Return the chart of the ratings after each game, with their 95% confidence intervals.

    Args:
        ratings: Pairs (mu, sigma), one per game.
    """
    step = -(-len(ratings) // MAX_POINTS)
    games = range(len(ratings), 0, -step)[::-1]
    shown = [ratings[game - 1] for game in games]
    values = (
        [mu + side * CI_95_Z_SCORE * sigma for mu, sigma in shown] for side in (0.0, -1.0, 1.0)
    )
    curve = Curve("rating", "run-0", [*map(float, games)], *map(round_values, values))
    return Chart("rating, with the 95% confidence interval", "games", [curve])


def _find_common_openings(games: History) -> list[tuple[str, int, int]]:
    """Return the arrows, the numbers of games and of wins of the most frequent openings."""
    played: Counter[str] = Counter()
    won: Counter[str] = Counter()
    for moves, number in sorted(games.openings.items()):
        arrows = _rotate_to_up(moves)
        played[arrows] += number
        won[arrows] += games.openings_won[moves]
    return [(arrows, number, won[arrows]) for arrows, number in played.most_common(_MAX_OPENINGS)]


def _rotate_to_up(moves: str) -> str:
    """Convert initials of moves to arrows, rotated so that the first move is up.

    >>> _rotate_to_up("lluu"), _rotate_to_up("rrdd")
    ('↑↑→→', '↑↑→→')
    """
    turns = [_CLOCKWISE_MOVES.index(move) for move in moves]
    return "".join(_CLOCKWISE_ARROWS[(turn - turns[0]) % 4] for turn in turns)
