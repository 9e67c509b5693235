"""Curves of runs as what an SVG is made of: points in a box of 1000 by 400."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from battlesnake_gym.common.run_dir import ITERATION, smooth
from battlesnake_server.runs.run_view import DEATHS, Run

_WIDTH, _HEIGHT = 1000, 400

MAX_POINTS = 250
"""Of a curve; longer ones are drawn as the means of this many pieces."""

MAX_RUNS = 8
"""Drawn at once: more cannot be distinguished."""


class Axis(NamedTuple):
    """What curves are drawn over."""

    column: str
    title: str
    scale: float = 1.0


AXES = {
    "minutes": Axis("time_total_s", "minutes of training", 1 / 60),
    "cpu": Axis("cpu_minutes", "CPU minutes of training"),
    "turns": Axis("env_steps", "turns played"),
    "iterations": Axis(ITERATION, "iterations"),
}

_CURVES = {
    "elo": "strength, Elo",
    "episode_reward_mean": "reward of a game",
    "episode_len_mean": "length of a game, turns",
    "Longest_snake": "longest snake of a game",
    "Killed_another_snake": "snakes killed in a game",
    "qf_loss": "loss of the Q-values",
}
"""Columns that are drawn, as far as a run has them, and what they are called."""

SPANS = (1, 5, 25)
"""Rows that may be averaged."""

_INTERVAL = {"elo": ("elo_low", "elo_high")}
"""Columns that are drawn around another one."""


class ChartLine(NamedTuple):
    """One run in a chart; ``number`` gives its colour, ``points`` and ``area`` are an SVG's."""

    name: str
    number: int
    points: str
    area: str = ""


class Scale(NamedTuple):
    """Where an axis begins and ends, and what is written beside it at equal distances."""

    low: float
    high: float
    ticks: tuple[str, ...]


class Chart(NamedTuple):
    """Lines over one axis."""

    title: str
    x_title: str
    x: Scale
    y: Scale
    lines: list[ChartLine]


class Layer(NamedTuple):
    """One cause of death: its share of all from piece to piece, as an SVG's points."""

    cause: str
    title: str
    points: str
    last: float


class Deaths(NamedTuple):
    """Causes of death of one run, stacked, as shares of all deaths."""

    name: str
    x_title: str
    x: Scale
    layers: list[Layer]


def charts(runs: Sequence[Run], axis: str = "minutes", span: int = 5) -> list[Chart]:
    """A chart of each of `_CURVES` that one of the runs has, all runs over each other."""
    made = (_chart(runs, column, title, AXES[axis], span) for column, title in _CURVES.items())
    return [chart for chart in made if chart is not None]


def _chart(runs: Sequence[Run], column: str, title: str, axis: Axis, span: int) -> Chart | None:
    drawn: list[tuple[Run, int, _Points, _Points, _Points]] = []
    for number, run in enumerate(runs):
        middle = _points(run, column, axis, span)
        if middle:
            low, high = (
                _points(run, name, axis, span) for name in _INTERVAL.get(column, (column, column))
            )
            drawn.append((run, number, middle, low, high))
    if not drawn:
        return None
    everything = [point for _, _, *all_three in drawn for points in all_three for point in points]
    x = scale([0.0, *(x for x, _ in everything)])
    y = scale([y for _, y in everything])
    return Chart(
        title,
        axis.title,
        x,
        y,
        [
            ChartLine(
                run.name,
                number,
                _svg(middle, x, y),
                _svg([*low, *reversed(high)], x, y) if column in _INTERVAL else "",
            )
            for run, number, middle, low, high in drawn
        ],
    )


def deaths(run: Run, axis: str = "minutes") -> Deaths | None:
    """Causes of death of a run, or None where none were counted."""
    over = AXES[axis]
    counted = run.deaths()
    places = [value * over.scale for value in run.progress.column(over.column)]
    rows = [
        (place, [max(value, 0.0) for value in values])
        for place, *values in zip(places, *counted.values(), strict=False)
        if not any(map(math.isnan, (place, *values))) and sum(values) > 0
    ]
    if not rows:
        return None
    pieces = _pieces(len(rows))
    stacked = [
        (rows[piece.stop - 1][0], [sum(rows[i][1][n] for i in piece) for n in range(len(counted))])
        for piece in pieces
    ]
    x = scale([0.0, *(place for place, _ in stacked)])
    y = Scale(0.0, 1.0, ())
    below = [0.0] * len(stacked)
    layers = []
    for n, column in enumerate(counted):
        shares = [values[n] / sum(values) for _, values in stacked]
        above = [b + share for b, share in zip(below, shares, strict=True)]
        edge = [(place, b) for (place, _), b in zip(stacked, below, strict=True)]
        top = [(place, a) for (place, _), a in zip(stacked, above, strict=True)]
        if len(stacked) == 1:  # a single piece has no width of its own
            edge, top = [(0.0, edge[0][1]), *edge], [(0.0, top[0][1]), *top]
        cause, title = DEATHS[column]
        layers.append(Layer(cause, title, _svg([*edge, *reversed(top)], x, y), shares[-1]))
        below = above
    return Deaths(run.name, over.title, x, layers)


_Points = list[tuple[float, float]]


def _points(run: Run, column: str, axis: Axis, span: int) -> _Points:
    """Where a curve goes, its missing numbers left out."""
    xs, ys = run.progress.column(axis.column), run.progress.column(column)
    known = [
        (x * axis.scale, y)
        for x, y in zip(xs, ys, strict=False)
        if math.isfinite(x) and math.isfinite(y)
    ]
    pieces = _pieces(len(known))
    means = [sum(known[i][1] for i in piece) / len(piece) for piece in pieces]
    if pieces and not column.startswith("elo"):  # that is a mean of games
        # A mean over a piece smooths as much already.
        means = smooth(means, max(1, span * len(pieces) // len(known)))
    return [(known[piece.stop - 1][0], mean) for piece, mean in zip(pieces, means, strict=True)]


def _pieces(count: int) -> list[range]:
    """Row numbers up to ``count`` in at most `MAX_POINTS` pieces, nearly equal."""
    pieces = min(count, MAX_POINTS)
    return [range(n * count // pieces, (n + 1) * count // pieces) for n in range(pieces)]


def scale(values: Iterable[float]) -> Scale:
    """From below the least to above the greatest value, in four to seven round steps.

    >>> scale([3.0, 96.0])
    Scale(low=0.0, high=100.0, ticks=('0', '20', '40', '60', '80', '100'))
    >>> scale([0.0, 0.55]).ticks
    ('0', '0.1', '0.2', '0.3', '0.4', '0.5', '0.6')
    >>> scale([2.0]).ticks
    ('1', '1.5', '2', '2.5', '3')
    """
    numbers = list(values)
    low, high = min(numbers), max(numbers)
    if low == high:
        margin = abs(low) / 2 or 1.0
        low, high = low - margin, high + margin
    rough = (high - low) / 6
    ten = 10.0 ** math.floor(math.log10(rough))
    steps = [ten * part for part in (1, 2, 2.5, 5, 10)]
    # The least of these that needs no more than six steps from a round number to a round number.
    for step in [*steps, 10 * ten * 2]:
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first <= 6:
            break
    ticks = tuple(_shown(number * step, step) for number in range(first, last + 1))
    return Scale(first * step, last * step, ticks)


def _shown(number: float, step: float) -> str:
    """A number as precisely as ``step`` asks for, thousands and millions in short."""
    for unit, sign in ((1e6, "M"), (1e3, "k")):
        if step >= unit / 10 and abs(number) >= unit:
            return f"{number / unit:g}{sign}"
    return f"{round(number, 12):g}"


def _svg(points: _Points, x: Scale, y: Scale) -> str:
    """As an SVG has it: from the top, and between 0 and `_WIDTH` or `_HEIGHT`."""
    points = points * 2 if len(points) == 1 else points  # a line without length is drawn as a dot
    return " ".join(
        f"{_WIDTH * (px - x.low) / (x.high - x.low):.1f},"
        f"{_HEIGHT * (1 - (py - y.low) / (y.high - y.low)):.1f}"
        for px, py in points
    )
