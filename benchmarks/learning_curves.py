"""Learning curves: how strong each way to train is, in Elo over CPU minutes.

    python benchmarks/learning_curves.py --cpu-minutes 20 --output runs/learning-curves

Trains one after the other with each seed: DQN, APEX, PPO and EXIT, all in duels on 11x11, the
policies with nothing masked. Each run measures its Elo by games on the ladder that it plays beside
training; their CPU time, which is limited, is included in the minutes
(``mabs.measure.strength``). What is drawn are the runs' own ``progress.csv``: the mean over the
seeds, with the band from the lowest to the highest of them. The table shows the CPU minutes until a
run's Elo is above a rung's, which is when it wins more than half against it.

Writes curves.csv, curves.svg, curves.png and table.md. If it is interrupted, the same command goes
on. ``--draw-only`` draws what is there, other folders of runs (``--runs``) too.
"""

from __future__ import annotations

import argparse
import csv
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from battlesnake_gym.common.files import write_atomically
from battlesnake_heuristics.judge import ladder
from battlesnake_rl.launcher.runs import run_folder

ROOT = Path(__file__).resolve().parent.parent
TRAIN = (sys.executable, str(ROOT / "rllib_src" / "train-mabs.py"))
LABEL_ELO = 50.0
"""The height of a label in the picture."""


@dataclass(frozen=True)
class Way:
    """One way to train, with the CPU cores that it keeps busy."""

    name: str
    label: str
    cores: float
    flags: tuple[str, ...]


WAYS = (
    Way("dqn", "DQN", 1, ("--experiment", "winner")),
    Way("dqn-demonstrations", "DQN with demonstrations", 1,
        ("--experiment", "winner-demonstrations")),
    Way("apex", "APEX", 2, ("--experiment", "winner", "--algorithm", "APEX")),
    Way("ppo", "PPO", 2, ("--experiment", "winner-ppo")),
    Way("exit", "EXIT (inside the search)", 2, ("--algorithm", "EXIT")),
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """What a run has measured after ``cpu_minutes``."""

    cpu_minutes: float
    elo: float
    low: float
    high: float


def train(way: Way, seed: int, cpu_minutes: float, runs: Path) -> None:
    """Train until a run has used its CPU time; one that already has is left as it is."""
    folder = runs / f"{way.name}-{seed}"
    while (left := cpu_minutes - spent(folder)) > 0.5:
        # How long that takes depends on what else runs here, so it is asked for in parts.
        before = minutes(folder)
        command = [*TRAIN, *way.flags, "--seed", str(seed), "--runs", str(runs)]
        command += ["--name", folder.name, "--minutes", str(before + max(left / way.cores, 0.5))]
        status = subprocess.run(command, check=False).returncode
        if status:
            sys.exit(f"{folder.name}: training ended with status {status}")


def spent(folder: Path) -> float:
    """CPU minutes of a run so far."""
    rows = run_folder.read_progress(folder / run_folder.CSV_FILE)
    return rows[-1]["cpu_minutes"] if rows else 0.0


def minutes(folder: Path) -> float:
    """Minutes of a run so far, by the clock on the wall."""
    rows = run_folder.read_progress(folder / run_folder.CSV_FILE)
    return rows[-1]["time_total_s"] / 60 if rows else 0.0


def points(folder: Path) -> list[Point]:
    """A run's measurements, each once."""
    found: dict[float, Point] = {}
    for row in run_folder.read_progress(folder / run_folder.CSV_FILE):
        if not math.isnan(row["elo"]):
            at = row["elo_cpu_minutes"]
            found[at] = Point(at, row["elo"], row["elo_low"], row["elo_high"])
    return [found[at] for at in sorted(found)]


def mean_curve(runs: Sequence[Sequence[Point]]) -> list[tuple[float, float, float, float]]:
    """CPU minutes, and the mean, lowest and highest Elo of runs, where all have been measured.

    Between its measurements a run's Elo is taken to change evenly.
    """
    begin = max(run[0].cpu_minutes for run in runs)
    end = min(run[-1].cpu_minutes for run in runs)
    at = sorted({p.cpu_minutes for run in runs for p in run if begin <= p.cpu_minutes <= end})
    elo = np.array(
        [np.interp(at, [p.cpu_minutes for p in run], [p.elo for p in run]) for run in runs]
    )
    if not at:
        return []
    columns = at, elo.mean(0).tolist(), elo.min(0).tolist(), elo.max(0).tolist()
    return list(zip(*columns, strict=True))


def until(run: Sequence[Point], elo: float) -> float:
    """CPU minutes until a run was measured above ``elo``; infinity if it never was."""
    return next((point.cpu_minutes for point in run if point.elo > elo), math.inf)


def table(ways: Mapping[str, Sequence[Sequence[Point]]]) -> str:
    """For each rung, CPU minutes until above half: the median of the seeds, in Markdown."""
    lines = [
        f"| CPU minutes until above half against | Elo | {' | '.join(ways)} |",
        f"|---|---|{'---|' * len(ways)}",
    ]
    for rung in sorted(ladder.load(2).rungs, key=lambda rung: rung.elo):
        cells = []
        for runs in ways.values():
            middle = float(np.median([until(run, rung.elo) for run in runs]))
            cells.append("never" if math.isinf(middle) else f"{middle:.1f}")
        if any(cell != "never" for cell in cells):
            lines.append(f"| {rung.name} | {rung.elo:.0f} | {' | '.join(cells)} |")
    ends = [f"{np.median([run[-1].elo for run in runs]):.0f}" for runs in ways.values()]
    trained = [f"{np.median([run[-1].cpu_minutes for run in runs]):.1f}" for runs in ways.values()]
    lines.append(f"| Elo at the end (median) | | {' | '.join(ends)} |")
    lines.append(f"| after CPU minutes | | {' | '.join(trained)} |")
    lines.append(f"| seeds | | {' | '.join(str(len(runs)) for runs in ways.values())} |")
    return "\n".join(lines) + "\n"


def close_together(rungs: Sequence[ladder.Rung]) -> list[list[ladder.Rung]]:
    """Rungs, the weakest first, in groups that have room for one label."""
    groups: list[list[ladder.Rung]] = []
    for rung in rungs:
        if groups and rung.elo - groups[-1][0].elo < LABEL_ELO:
            groups[-1].append(rung)
        else:
            groups.append([rung])
    return groups


def draw(path: Path, ways: Mapping[str, Sequence[Sequence[Point]]]) -> None:
    """Elo over CPU minutes, with the rungs as lines."""
    plt.switch_backend("Agg")
    figure, axis = plt.subplots(figsize=(9, 5.5), layout="constrained")
    top = 0.0
    for label, runs in ways.items():
        rows = mean_curve(runs)
        x, mean, low, high = zip(*rows, strict=True) if rows else ((),) * 4
        (line,) = axis.plot(x, mean, marker=".", label=label)
        axis.fill_between(x, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        top = max([top, *high])
    rungs = sorted(ladder.load(2).rungs, key=lambda rung: rung.elo)
    beaten = [rung for rung in rungs if rung.elo < top + 150]
    for rung in beaten:
        axis.axhline(rung.elo, color="grey", linewidth=0.5, linestyle=":")
    for together in close_together(beaten):
        middle = float(np.mean([rung.elo for rung in together]))
        axis.annotate(
            ", ".join(rung.name for rung in together), (1, middle), fontsize=7,
            xycoords=("axes fraction", "data"), xytext=(3, -2), textcoords="offset points",
        )  # fmt: skip
    axis.set(xlabel="CPU minutes of training, games on the ladder included", ylabel="Elo (duels)")
    axis.set_xlim(left=0)
    axis.grid(alpha=0.3)
    axis.legend()
    write_atomically(path, lambda part: figure.savefig(part, format=path.suffix[1:], dpi=120))
    plt.close(figure)


def write_csv(path: Path, ways: Mapping[str, Sequence[Sequence[Point]]]) -> None:
    """All measurements, one a row."""

    def write(part: Path) -> None:
        with part.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["way", "run", "cpu_minutes", "elo", "low", "high"])
            for label, runs in ways.items():
                for number, run in enumerate(runs):
                    writer.writerows([label, number, p.cpu_minutes, p.elo, p.low, p.high]
                                     for p in run)  # fmt: skip

    write_atomically(path, write)


def main(argv: list[str] | None = None) -> int:
    """Train what is missing, then write everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [way.name for way in WAYS]
    add = parser.add_argument
    add("--cpu-minutes", type=float, default=20.0, help="of each training (%(default)s)")
    add("--seeds", type=int, nargs="+", default=[1, 2, 3], help="one training each (1 2 3)")
    add("--ways", nargs="+", choices=names, default=names)
    add("--output", type=Path, default=Path("runs/learning-curves"))
    add("--runs", type=Path, help="where the runs are, WAY-SEED each (default: the output)")
    add("--draw-only", action="store_true", help="train nothing")
    arguments = parser.parse_args(argv)
    if arguments.cpu_minutes <= 0:
        parser.error(f"--cpu-minutes must be positive, got {arguments.cpu_minutes}")
    folder = arguments.runs or arguments.output
    wanted = [way for way in WAYS if way.name in arguments.ways]
    if not arguments.draw_only:
        for way in wanted:
            for seed in arguments.seeds:
                train(way, seed, arguments.cpu_minutes, folder)
    measured = {
        way.label: [
            run for seed in arguments.seeds if (run := points(folder / f"{way.name}-{seed}"))
        ]
        for way in wanted
    }
    ways = {label: runs for label, runs in measured.items() if runs}
    if not ways:
        parser.error(f"no run under {folder} has an Elo yet; train for longer")
    arguments.output.mkdir(parents=True, exist_ok=True)
    write_csv(arguments.output / "curves.csv", ways)
    for suffix in (".svg", ".png"):
        draw(arguments.output / f"curves{suffix}", ways)
    text = table(ways)
    write_atomically(arguments.output / "table.md", lambda part: part.write_text(text))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
