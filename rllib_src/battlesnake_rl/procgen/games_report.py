"""A table and a picture of many games: normalized scores on training levels and on all."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike, NDArray

from battlesnake_gym.common.files import write_atomically
from battlesnake_rl.launcher.runs import run_folder
from battlesnake_rl.procgen import published
from battlesnake_rl.procgen.procgen_games import normalized_score

matplotlib.use("agg")
from matplotlib import pyplot as plt

Scores = Mapping[str, Any]
"""What `all_games.scores` makes of one run."""

NO_FIGURE = "—"


def table(done: Sequence[Scores]) -> str:
    """Markdown: a line for each game and the mean of all; means over seeds, with their spread.

    Scores are normalized: 0 is an agent that sees nothing, 1 the best there is.
    """
    rows = [
        "| game | frames | train reward | test reward | train score | test score | gap "
        "| published train | published test |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    games = list(dict.fromkeys(one["game"] for one in done))
    columns: list[list[float]] = []
    for game in games:
        runs = [one for one in done if one["game"] == game]
        train, test = (normalized(runs, kind) for kind in ("train", "test"))
        frames = int(np.mean([one["frames"] for one in runs]))
        config = runs[0]["env_config"]
        theirs = [published.score(game, kind, frames, config) for kind in ("train", "test")]
        numbers = [train, test, train - test, *theirs]
        columns.append(numbers)
        rewards = (_reward(runs, kind) for kind in ("train", "test"))
        rows.append(f"| {game} | {frames:,} | {' | '.join((*rewards, *map(_text, numbers)))} |")
    if len(games) > 1:
        means = [_mean(column) for column in zip(*columns, strict=True)]
        rows.append(f"| mean of {len(games)} | | | | {' | '.join(map(_text, means))} |")
    return "\n".join([*rows, "", *_words(done)]) + "\n"


def _words(done: Sequence[Scores]) -> list[str]:
    """What the figures are of."""
    if not done:
        return ["Nothing is trained yet."]
    first = done[0]
    config = first["env_config"]
    seeds = len({one["seed"] for one in done})
    hours = sum(one.get("cpu_seconds", 0.0) for one in done) / 3600
    levels = f"{config['num_levels']} levels" if config["num_levels"] else "all levels"
    return [
        f"`{shlex.join(first['options'])}`: {first['algorithm']} with "
        f"{json_text(first['network settings'])}, "
        f"{config['distribution_mode']}, trained on {levels}, tested on all; {seeds} seed"
        f"{'s' if seeds > 1 else ''}; {first['episodes']} episodes each, ± the standard error; "
        f"{hours:.2f} CPU hours with the tests.",
        "Published: normalized scores of OpenAI's agents after as many frames on 200 easy levels, "
        f"means of three trainings and of their last 100 episodes; {NO_FIGURE} where there is no "
        "figure for this.",
    ]


def json_text(settings: Mapping[str, Any]) -> str:
    """Settings of the network in a few words."""
    return ", ".join(f"{key} {value}" for key, value in settings.items()) or "its defaults"


def normalized(runs: Sequence[Scores], kind: str) -> float:
    """The mean normalized score over seeds; NaN in modes that have no published range."""
    return _mean([one[kind].get("normalized_score", math.nan) for one in runs])


def _reward(runs: Sequence[Scores], kind: str) -> str:
    rewards = [one[kind]["reward"] for one in runs]
    errors = [one[kind]["standard_error"] for one in runs]
    spread = math.sqrt(sum(error**2 for error in errors)) / len(runs)
    return f"{np.mean(rewards):.2f} ± {spread:.2f}"


def draw(runs: Mapping[str, Sequence[Path]], done: Sequence[Scores], target: Path) -> None:
    """A panel for each game: its curves over all seeds, and what its agents reach in the end.

    Lines are means over seeds, bands reach from the lowest to the highest. Published ones are
    broken.
    """
    across = min(4, len(runs))
    down = math.ceil(len(runs) / across)
    figure, axes = plt.subplots(
        down, across, figsize=(3.4 * across, 2.6 * down), squeeze=False, layout="constrained"
    )
    for axis in axes.flat[len(runs) :]:
        axis.set_visible(False)
    for axis, (game, folders) in zip(axes.flat, runs.items(), strict=False):
        ours = [one for one in done if one["game"] == game]
        mode = ours[0]["env_config"]["distribution_mode"] if ours else "easy"
        tables = [rows for rows in map(_rows, folders) if rows]
        for color, (kind, column) in zip(
            ("C0", "C1"),
            (("train", "episode_reward_mean"), ("test", "test_reward_mean")),
            strict=True,
        ):
            _curve(axis, tables, column, game, mode, color, kind)
            for one in ours:
                height = one[kind].get("normalized_score", math.nan)
                axis.plot(one["frames"], height, "o", color=color, markersize=4)
            if ours:
                _published(axis, ours[0], kind, color)
        axis.axhline(0, color="grey", linewidth=0.6)
        axis.set(title=game, xlabel="frames")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("normalized score")
    if axes[0][0].get_legend_handles_labels()[0]:
        axes[0][0].legend(fontsize="x-small")
    write_atomically(target, lambda path: figure.savefig(path, format=target.suffix[1:], dpi=120))
    plt.close(figure)


def _rows(run: Path) -> list[dict[str, float]]:
    return run_folder.read_progress(run / run_folder.CSV_FILE)


def _curve(
    axis: Axes,
    tables: Sequence[Sequence[Mapping[str, float]]],
    column: str,
    game: str,
    mode: str,
    color: str,
    label: str,
) -> None:
    """The mean of a column over runs, and a band; drawn where all of them have a number."""
    if not tables or mode not in ("easy", "hard"):
        return
    lines = []
    for rows in tables:
        there = [row for row in rows if not math.isnan(row.get(column, math.nan))]
        if not there:
            return
        lines.append(([row["env_steps"] for row in there], [row[column] for row in there]))
    x = lines[0][0]
    heights = np.array([np.interp(x, *line) for line in lines])
    scaled = np.vectorize(lambda reward: normalized_score(reward, game, mode))(heights)
    _line_and_band(axis, x, scaled, color=color, label=label)


def _published(axis: Axes, run: Scores, kind: str, color: str) -> None:
    """The published curve of the run's game and protocol, as far as the run went."""
    theirs = published.curve(run["game"], kind, run["env_config"])
    if theirs is None:
        return
    near = theirs.frames <= 1.1 * run["frames"]
    x, lines, label = theirs.frames[near], theirs.scores[:, near], f"{kind}, published"
    _line_and_band(axis, x, lines, color=color, label=label, linestyle="--")


def _line_and_band(
    axis: Axes, x: ArrayLike, lines: NDArray[np.float64], *, color: str, **line: Any
) -> None:
    """The mean of several lines [lines, points], and from the lowest to the highest of them."""
    axis.plot(x, lines.mean(0), color=color, linewidth=1, **line)
    if len(lines) > 1:
        axis.fill_between(x, lines.min(0), lines.max(0), color=color, alpha=0.15, linewidth=0)


def _mean(values: Sequence[float]) -> float:
    there = [value for value in values if not math.isnan(value)]
    return float(np.mean(there)) if there else math.nan


def _text(number: float) -> str:
    return NO_FIGURE if math.isnan(number) else f"{number:.3f}"
