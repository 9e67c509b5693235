"""Draws the README's picture of strength over CPU time from the measured learning curves.

`python tools/draw_strength.py` reads docs/turns-alive.csv, which came of
`benchmarks/turns_alive.py`, and writes docs/images/strength.svg. It measures nothing.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from battlesnake_gym.files import write_atomically

DOCS = Path(__file__).parents[1] / "docs"
CURVES = {
    "apex-2": ("APEX, two cores", 2, "#2f6fde"),
    "dqn-1": ("DQN, one core", 1, "#e8833a"),
    "mxnet": ("MXNet baseline, one core", 1, "#7b8494"),
}
"""Curves of the file: label, cores that each was kept to, and colour."""


def main() -> None:
    """Write the picture."""
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "strength", "font.size": 10})
    figure = Figure(figsize=(6.4, 3.0), layout="constrained")
    axes = figure.subplots()
    with (DOCS / "turns-alive.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for name, (label, cores, colour) in CURVES.items():
        points = [row for row in rows if row["curve"] == name]
        minutes = [cores * float(row["minutes"]) for row in points]
        axes.plot(minutes, [float(row["reward"]) for row in points], color=colour, label=label)
    random = next(float(row["reward"]) for row in rows if row["curve"] == "safe-random")
    axes.axhline(random, color="#4a4e69", linestyle=":", label="random among safe moves")
    axes.set(xlabel="core-minutes of training", ylabel="turns alive (mean of 5 snakes)", ylim=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, fontsize=9)
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None})
    lines = [line.rstrip() for line in drawn.getvalue().splitlines()]
    target = DOCS / "images" / "strength.svg"
    write_atomically(target, lambda part: part.write_text("\n".join(lines) + "\n"))


if __name__ == "__main__":
    main()
