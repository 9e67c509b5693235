"""Charts of runs as SVG coordinates in a box of 1000 by 400 units."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from battlesnake_gym.common.run_dir import ITERATION_COLUMN, smooth
from battlesnake_server.runs.run_view import CAUSES_BY_COLUMN, RunView

_WIDTH, _HEIGHT = 1000, 400

MAX_POINTS = 250
"""Maximum number of points of a curve.

Longer curves are averaged over intervals.
"""

MAX_RUNS = 8
"""Maximum number of runs in a chart, limited by the distinguishable colors."""


class Axis(NamedTuple):
    """Quantity on the horizontal axis of the charts.

    Attributes:
        column: Column of the progress table.
        title: Title of the axis.
        scale: Factor that converts values of the column to values of the axis.
    """

    column: str
    title: str
    scale: float = 1.0


AXES = {
    "minutes": Axis("time_total_s", "training minutes", 1 / 60),
    "cpu": Axis("cpu_minutes", "training CPU minutes"),
    "env_steps": Axis("env_steps", "env steps"),
    "iterations": Axis(ITERATION_COLUMN, "iterations"),
}

_CHART_TITLES = {
    "elo": "Elo",
    "episode_reward_mean": "mean reward per game",
    "episode_len_mean": "mean game length, turns",
    "Longest_snake": "longest snake per game",
    "Killed_another_snake": "snakes eliminated per game",
    "qf_loss": "Q loss",
}
"""Titles of the charts, by column of the progress table."""

SMOOTHING_SPANS = (1, 5, 25)
"""Numbers of rows of the moving average that a visitor can select."""

_INTERVAL_COLUMNS = {"elo": ("elo_low", "elo_high")}
"""Columns of the lower and upper bounds, by column of the estimate."""


class ChartLine(NamedTuple):
    """Curve of one run in a chart.

    Attributes:
        number: Index of the run in the chart, which selects the color.
        points: SVG points of the curve.
        area: SVG points of the confidence interval, or "".
    """

    name: str
    number: int
    points: str
    area: str = ""


class Scale(NamedTuple):
    """Bounds of an axis, with tick labels at equal distances."""

    low: float
    high: float
    ticks: tuple[str, ...]


class Chart(NamedTuple):
    """Chart with one curve per run."""

    title: str
    x_title: str
    x: Scale
    y: Scale
    lines: list[ChartLine]


class CauseLayer(NamedTuple):
    """Area of one cause of elimination in a stacked chart.

    Attributes:
        cause: Cause of elimination, which selects the color.
        title: Label of the cause.
        points: SVG points of the area.
        last: Fraction of the cause in the last interval, in [0, 1].
    """

    cause: str
    title: str
    points: str
    last: float


class CauseChart(NamedTuple):
    """Stacked chart of one run's causes of elimination.

    The height of each layer is the fraction of all eliminations, in [0, 1].
    """

    name: str
    x_title: str
    x: Scale
    layers: list[CauseLayer]


def build_charts(runs: Sequence[RunView], axis: str = "minutes", span: int = 5) -> list[Chart]:
    """Return a chart for each column of `_CHART_TITLES` that at least one run has.

    Args:
        runs: Runs to compare; each run has one curve per chart.
        axis: Key of `AXES`.
        span: Number of rows of the moving average.
    """
    made = (
        _build_chart(runs, column, title, AXES[axis], span)
        for column, title in _CHART_TITLES.items()
    )
    return [chart for chart in made if chart is not None]


def _build_chart(
    runs: Sequence[RunView], column: str, title: str, axis: Axis, span: int
) -> Chart | None:
    """Build the chart of one column, or return None if no run has the column."""
    curves: list[tuple[RunView, int, _Points, _Points, _Points]] = []
    for number, run in enumerate(runs):
        middle = _curve_points(run, column, axis, span)
        if middle:
            low, high = (
                _curve_points(run, name, axis, span)
                for name in _INTERVAL_COLUMNS.get(column, (column, column))
            )
            curves.append((run, number, middle, low, high))
    if not curves:
        return None
    all_points = [point for _, _, *all_three in curves for points in all_three for point in points]
    x = build_scale([0.0, *(x for x, _ in all_points)])
    y = build_scale([y for _, y in all_points])
    return Chart(
        title,
        axis.title,
        x,
        y,
        [
            ChartLine(
                run.name,
                number,
                _to_svg_points(middle, x, y),
                _to_svg_points([*low, *reversed(high)], x, y)
                if column in _INTERVAL_COLUMNS
                else "",
            )
            for run, number, middle, low, high in curves
        ],
    )


def build_cause_chart(run: RunView, axis: str = "minutes") -> CauseChart | None:
    """Build the chart of a run's causes of elimination; None if the run has no data."""
    over = AXES[axis]
    counted = run.eliminations()
    places = [value * over.scale for value in run.progress.column(over.column)]
    rows = [
        (place, [max(value, 0.0) for value in values])
        for place, *values in zip(places, *counted.values(), strict=False)
        if not any(map(math.isnan, (place, *values))) and sum(values) > 0
    ]
    if not rows:
        return None
    intervals = _split_rows(len(rows))
    stacked = [
        (
            rows[interval.stop - 1][0],
            [sum(rows[i][1][n] for i in interval) for n in range(len(counted))],
        )
        for interval in intervals
    ]
    x = build_scale([0.0, *(place for place, _ in stacked)])
    y = Scale(0.0, 1.0, ())
    below = [0.0] * len(stacked)
    layers = []
    for n, column in enumerate(counted):
        shares = [values[n] / sum(values) for _, values in stacked]
        above = [b + share for b, share in zip(below, shares, strict=True)]
        edge = [(place, b) for (place, _), b in zip(stacked, below, strict=True)]
        top = [(place, a) for (place, _), a in zip(stacked, above, strict=True)]
        if len(stacked) == 1:  # Start the area at x = 0, because a single point has no width.
            edge, top = [(0.0, edge[0][1]), *edge], [(0.0, top[0][1]), *top]
        cause, title = CAUSES_BY_COLUMN[column]
        layers.append(
            CauseLayer(cause, title, _to_svg_points([*edge, *reversed(top)], x, y), shares[-1])
        )
        below = above
    return CauseChart(run.name, over.title, x, layers)


_Points = list[tuple[float, float]]


def _curve_points(run: RunView, column: str, axis: Axis, span: int) -> _Points:
    """Return the points (x, y) of a curve; missing values are omitted."""
    xs, ys = run.progress.column(axis.column), run.progress.column(column)
    known = [
        (x * axis.scale, y)
        for x, y in zip(xs, ys, strict=False)
        if math.isfinite(x) and math.isfinite(y)
    ]
    intervals = _split_rows(len(known))
    means = [sum(known[i][1] for i in interval) / len(interval) for interval in intervals]
    # Elo needs no smoothing, because each value is an estimate over many games.
    if intervals and not column.startswith("elo"):
        # The mean of an interval already smooths the rows in the interval.
        means = smooth(means, max(1, span * len(intervals) // len(known)))
    return [
        (known[interval.stop - 1][0], mean) for interval, mean in zip(intervals, means, strict=True)
    ]


def _split_rows(count: int) -> list[range]:
    """Split ``count`` rows into at most `MAX_POINTS` nearly equal ranges."""
    intervals = min(count, MAX_POINTS)
    return [range(n * count // intervals, (n + 1) * count // intervals) for n in range(intervals)]


def build_scale(values: Iterable[float]) -> Scale:
    """Return an axis that contains all values, with four to seven round labels.

    >>> build_scale([3.0, 96.0])
    Scale(low=0.0, high=100.0, ticks=('0', '20', '40', '60', '80', '100'))
    >>> build_scale([0.0, 0.55]).ticks
    ('0', '0.1', '0.2', '0.3', '0.4', '0.5', '0.6')
    >>> build_scale([2.0]).ticks
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
    # Choose the smallest step that needs at most six steps between round bounds.
    for step in [*steps, 10 * ten * 2]:
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first <= 6:
            break
    ticks = tuple(_format_tick(number * step, step) for number in range(first, last + 1))
    return Scale(first * step, last * step, ticks)


def _format_tick(number: float, step: float) -> str:
    """Format a number with the precision of ``step`` and the suffix k or M."""
    for unit, sign in ((1e6, "M"), (1e3, "k")):
        if step >= unit / 10 and abs(number) >= unit:
            return f"{number / unit:g}{sign}"
    return f"{round(number, 12):g}"


def _to_svg_points(points: _Points, x: Scale, y: Scale) -> str:
    """Convert points to SVG coordinates in a box of `_WIDTH` by `_HEIGHT`."""
    points = points * 2 if len(points) == 1 else points  # SVG draws a line of length 0 as a dot.
    return " ".join(
        f"{_WIDTH * (px - x.low) / (x.high - x.low):.1f},"
        f"{_HEIGHT * (1 - (py - y.low) / (y.high - y.low)):.1f}"
        for px, py in points
    )
