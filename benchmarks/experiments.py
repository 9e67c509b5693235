"""Knowledge in the loop, compared: what each ``hill-*`` experiment gains, in one table and picture.

    python -m benchmarks.experiments --cpu-minutes 3 --output runs/experiments

Trains each experiment file of the starter pack's comparison with each seed until it has used so
many CPU minutes, and then measures what the run would deliver (its strongest weights) in two ways:

* Elo by duels on 11x11 against the rungs of the ladder, whatever the experiment trained for.
* Games of five copies on 11x11, played greedily under the experiment's own action mask: turns that
  a snake lives, and what ends it.

Writes experiments.csv (a row a run), experiments.svg, experiments.png and table.md. If it is
interrupted, the same command goes on. ``--draw-only`` draws what has been measured.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from battlesnake_gym.files import write_atomically
from battlesnake_gym.rules import CAUSES
from benchmarks.learning_curves import Way, train
from benchmarks.turns_alive import play_copies
from mabs import policies, strength
from mabs.experiments import FOLDER

EXPERIMENTS = sorted(path.stem for path in FOLDER.glob("hill-*.yaml"))
SNAKES = 5
MEASURED_FILE = "measured.json"

ENDS = {
    "wall": ("wall-collision",),
    "own body": ("snake-self-collision",),
    "another's body": ("snake-collision",),
    "head": ("head-collision",),
    "starved": ("out-of-health",),
}
"""What may end a snake here, and the rules' words for it."""


@dataclass(frozen=True)
class Measured:
    """One run: its Elo with the 95 % interval, turns a snake lived, and how many of them ended so.

    ``ends`` are shares of all snakes; who wins, or is there after the last turn, has none of them.
    """

    elo: float
    low: float
    high: float
    turns: float
    ends: dict[str, float]


def measure(run: Path, games: int, seed: int) -> Measured:
    """Play the strongest weights of a run."""
    values, env_config = policies.load(run)
    placement, _ = strength.place(values, env_config, seed=seed, games=games, interval=0.0)
    turns, ends = among_copies(values, env_config, games, seed)
    return Measured(placement.elo, placement.low, placement.high, turns, ends)


def among_copies(
    values: policies.Values, env_config: Mapping[str, Any], games: int, seed: int
) -> tuple[float, dict[str, float]]:
    """Games of five copies to their end: mean turns of a snake, and the share of each end."""
    alive = {**env_config, "num_snakes": SNAKES, "rewards": "survival"}  # a reward a turn
    played = play_copies(values, alive, games, seed)
    indices = {end: [CAUSES.index(cause) for cause in of] for end, of in ENDS.items()}
    shares = {end: float(np.isin(played.causes, of).mean()) for end, of in indices.items()}
    return float(played.rewards.mean()), shares


def measured_once(run: Path, games: int, seed: int) -> Measured:
    """What was measured, read if it is there."""
    file = run / MEASURED_FILE
    if not file.is_file():
        text = json.dumps(asdict(measure(run, games, seed)), indent=1) + "\n"
        write_atomically(file, lambda part: part.write_text(text))
    return Measured(**json.loads(file.read_text()))


def table(experiments: Mapping[str, Sequence[Measured]]) -> str:
    """Means over the seeds and, of the Elo, the lowest and the highest; the strongest first."""
    ends = " | ".join(ENDS)
    lines = [
        f"| experiment | Elo (lowest to highest seed) | turns alive | {ends} |",
        f"|---|---|---|{'---|' * len(ENDS)}",
    ]
    for name, runs in by_strength(experiments):
        elos = [run.elo for run in runs]
        shares = [f"{np.mean([run.ends[end] for run in runs]):.0%}" for end in ENDS]
        cells = [
            f"`{name}`",
            f"{np.mean(elos):.0f} ({min(elos):.0f} to {max(elos):.0f})",
            f"{np.mean([run.turns for run in runs]):.0f}",
            *shares,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def by_strength(
    experiments: Mapping[str, Sequence[Measured]],
) -> list[tuple[str, Sequence[Measured]]]:
    """The experiments, that with the highest mean Elo first."""
    return sorted(experiments.items(), key=lambda one: -float(np.mean([r.elo for r in one[1]])))


def draw(path: Path, experiments: Mapping[str, Sequence[Measured]]) -> None:
    """Elo, turns alive and what ended the snakes, side by side."""
    plt.switch_backend("Agg")
    rows = by_strength(experiments)[::-1]
    names = [name.removeprefix("hill-") for name, _ in rows]
    figure, axes = plt.subplots(1, 3, figsize=(12, 4.5), layout="constrained", sharey=True)
    columns: list[tuple[str, list[list[float]]]] = [
        ("Elo (duels against the ladder)", [[run.elo for run in runs] for _, runs in rows]),
        ("turns alive (five copies)", [[run.turns for run in runs] for _, runs in rows]),
    ]
    for axis, (title, values) in zip(axes, columns, strict=False):
        axis.barh(names, [float(np.mean(of)) for of in values], color="tab:blue", alpha=0.5)
        for name, of in zip(names, values, strict=True):
            axis.plot(of, [name] * len(of), "k.", markersize=5)  # a dot a seed
        axis.set_title(title)
    left = np.zeros(len(rows))
    for end in ENDS:
        shares = np.array([np.mean([run.ends[end] for run in runs]) for _, runs in rows])
        axes[2].barh(names, shares, left=left, label=end)
        left += shares
    axes[2].set(title="what ended the snakes (five copies)", xlim=(0, 1))
    axes[2].set_xlabel("share of the snakes; the rest won")
    told = axes[2].get_legend_handles_labels()
    figure.legend(*told, fontsize=8, loc="outside lower right", ncols=len(ENDS))
    write_atomically(path, lambda part: figure.savefig(part, format=path.suffix[1:], dpi=120))
    plt.close(figure)


def write_csv(path: Path, experiments: Mapping[str, Mapping[int, Measured]]) -> None:
    """A row a run."""

    def write(part: Path) -> None:
        with part.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["experiment", "seed", "elo", "low", "high", "turns", *ENDS])
            for name, runs in experiments.items():
                for seed, run in runs.items():
                    shares = [round(run.ends[end], 4) for end in ENDS]
                    facts = run.elo, run.low, run.high, round(run.turns, 1)
                    writer.writerow([name, seed, *facts, *shares])

    write_atomically(path, write)


def main(argv: list[str] | None = None) -> int:
    """Train and measure what is missing, then write everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--cpu-minutes", type=float, default=20.0, help="of each training (%(default)s)")
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], help="one training each (1 2 3)")
    add("--games", type=int, default=200, help="of each of the two measurements (%(default)s)")
    add("--experiments", nargs="+", choices=EXPERIMENTS, default=EXPERIMENTS)
    add("--output", type=Path, default=Path("runs/experiments"))
    add("--draw-only", action="store_true", help="train and measure nothing")
    arguments = parser.parse_args(argv)
    if arguments.cpu_minutes <= 0 or arguments.games < 2:
        parser.error("--cpu-minutes must be positive and --games at least 2")
    output = arguments.output
    measured: dict[str, dict[int, Measured]] = {}
    for seed in arguments.seeds:
        for name in arguments.experiments:
            run = output / f"{name}-{seed}"
            if not arguments.draw_only:
                way = Way(name, name, 1, ("--experiment", name))
                train(way, seed, arguments.cpu_minutes, output)
            elif not (run / MEASURED_FILE).is_file():
                continue
            measured.setdefault(name, {})[seed] = measured_once(run, arguments.games, seed)
    if not measured:
        parser.error(f"nothing under {output} has been measured yet; leave --draw-only out")
    write_csv(output / "experiments.csv", measured)
    experiments = {name: list(runs.values()) for name, runs in measured.items()}
    for suffix in (".svg", ".png"):
        draw(output / f"experiments{suffix}", experiments)
    text = table(experiments)
    write_atomically(output / "table.md", lambda part: part.write_text(text))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
