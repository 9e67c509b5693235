"""Charts of runs: data that ``static/charts.js`` draws with uPlot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.common.run_dir import ITERATION_COLUMN, smooth
from battlesnake_server.runs.run_view import CAUSES_BY_COLUMN, RunView

MAX_POINTS = 250
"""Maximum number of points of a curve.

Longer curves are averaged over intervals.
"""

MAX_RUNS = 8
"""Maximum number of runs in a chart, limited by the distinguishable colors."""


class _Axis(NamedTuple):
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
    "minutes": _Axis("time_total_s", "training minutes", 1 / 60),
    "cpu": _Axis("cpu_minutes", "training CPU minutes"),
    "env_steps": _Axis("env_steps", "env steps"),
    "iterations": _Axis(ITERATION_COLUMN, "iterations"),
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


class Curve(NamedTuple):
    """Curve or stacked area in a chart.

    Attributes:
        name: Label in the legend.
        look: CSS class of the color.
        x: Horizontal coordinates, in ascending order.
        y: Values.
        low: Lower bounds of the confidence interval or of the area; None without bounds.
        high: Upper bounds; None without bounds.
    """

    name: str
    look: str
    x: list[float]
    y: list[float]
    low: list[float] | None = None
    high: list[float] | None = None


class Chart(NamedTuple):
    """Chart with a legend.

    Attributes:
        title: Title, with the unit of the values.
        x_title: Title of the horizontal axis.
        curves: Curves in the order of the legend.
        stacked: Whether the curves are fractions whose areas are stacked to 1.
    """

    title: str
    x_title: str
    curves: list[Curve]
    stacked: bool = False


def build_charts(runs: Sequence[RunView], axis: str = "minutes", span: int = 5) -> list[Chart]:
    """Return a chart for each column of `_CHART_TITLES` that at least one run has.

    Args:
        runs: Runs to compare; each run has one curve per chart.
        axis: Key of `AXES`.
        span: Number of rows of the moving average.
    """
    charts = []
    for column, title in _CHART_TITLES.items():
        curves = (
            _build_curve(run, f"run-{number}", column, AXES[axis], span)
            for number, run in enumerate(runs)
        )
        found = [curve for curve in curves if curve is not None]
        if found:
            charts.append(Chart(title, AXES[axis].title, found))
    return charts


def _build_curve(run: RunView, look: str, column: str, axis: _Axis, span: int) -> Curve | None:
    """Build a run's curve of one column, or return None if the run has no values."""
    rows = _finite_rows(run, axis, (column, *_INTERVAL_COLUMNS.get(column, ())))
    if not len(rows):
        return None
    intervals = _split_rows(rows)
    values = [interval.mean(axis=0)[1:] for interval in intervals]
    means, *bounds = (list(map(float, ones)) for ones in zip(*values, strict=True))
    # Elo needs no smoothing, because each value is an estimate over many games.
    if column != "elo":
        # The mean of an interval already smooths the rows in the interval.
        means = smooth(means, max(1, span * len(intervals) // len(rows)))
    x = [interval[-1, 0] for interval in intervals]
    return Curve(run.name, look, *map(round_values, (x, means, *bounds)))


def build_cause_chart(run: RunView, axis: str = "minutes") -> Chart | None:
    """Build the chart of a run's causes of elimination; None if the run has no data.

    The height of each area is the fraction of all eliminations, in [0, 1].
    """
    columns = list(run.eliminations())
    rows = _finite_rows(run, AXES[axis], columns)
    rows[:, 1:] = rows[:, 1:].clip(0.0)
    rows = rows[rows[:, 1:].sum(axis=1) > 0]
    if not len(rows):
        return None
    intervals = _split_rows(rows)
    x = [interval[-1, 0] for interval in intervals]
    counts = np.stack([interval[:, 1:].sum(axis=0) for interval in intervals])
    shares = counts / counts.sum(axis=1, keepdims=True)
    if len(x) == 1:  # Start the areas at x = 0, because a single point has no width.
        x, shares = [0.0, *x], shares.repeat(2, axis=0)
    tops = shares.cumsum(axis=1)
    curves = [
        Curve(title, f"end-{cause}", *map(round_values, (x, share, top - share, top)))
        for (cause, title), share, top in zip(
            map(CAUSES_BY_COLUMN.__getitem__, columns), shares.T, tops.T, strict=True
        )
    ]
    return Chart("causes of death", AXES[axis].title, curves[::-1], stacked=True)


def _finite_rows(run: RunView, axis: _Axis, columns: Sequence[str]) -> NDArray[np.float64]:
    """Return the rows without missing values: float64 (T, 1 + columns), the axis first."""
    values = zip(*map(run.progress.column, (axis.column, *columns)), strict=False)
    rows = np.array(list(values), np.float64).reshape(-1, 1 + len(columns))
    rows[:, 0] *= axis.scale
    return rows[np.isfinite(rows).all(axis=1)]


def _split_rows(rows: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Split rows into at most `MAX_POINTS` nearly equal intervals."""
    return np.array_split(rows, min(len(rows), MAX_POINTS))


def round_values(values: Iterable[float]) -> list[float]:
    """Round values to six significant digits, which keeps pages small."""
    return [float(f"{value:.6g}") for value in values]
