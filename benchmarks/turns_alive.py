"""Turns alive, the starter pack's measure: how long snakes live among themselves after training.

    python benchmarks/turns_alive.py --minutes 20 --output runs/turns-alive

Trains one after the other, each for so many minutes: the MXNet baseline on one core, our DQN on
one core and on two, APEX on two, all with nothing masked; then DQN on two cores with masks. 11x11,
5 snakes, reward 1 for every turn that a snake is alive and nothing else. Whatever is trained is
kept to its cores. The checkpoints that training writes, about one a minute, are set aside, and when
it is over each plays greedy games against itself, under the mask it was trained with: none of that
counts as training time. Score: mean over the snakes of a game. Safe-random play (any move that does
not lose at once) is the line below which nothing counts as learning.

Writes curves.csv, curves.svg, curves.png and table.md. If it is interrupted, the same command goes
on: finished curves are not trained again, and an unfinished one goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import csv
import json
import logging
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from battlesnake_gym.files import write_atomically
from heuristics.sprt import Z95
from mabs import policies
from mabs.environment import make_vector
from mabs.export import export_checkpoint
from sagemaker_rl.runs import checkpoints

ROOT = Path(__file__).resolve().parent.parent
TRAIN = (sys.executable, str(ROOT / "rllib_src" / "train-mabs.py"))
GAME = (
    *("--num-agents", "5", "--map-size", "11", "--rewards", "survival"),
    *("--rl.training.config.ladder_share", "0"),
)
BOARDS_AT_ONCE = 512


@dataclass(frozen=True)
class Curve:
    """One thing to train."""

    name: str
    label: str
    cores: int
    flags: tuple[str, ...]
    threads: int = 1
    """In each process; all processes together have ``cores``."""


LONG_VIEW = ("--rl.training.config.gamma", "0.99")
EXPLORATION = ("--rl.training.config.epsilon_ladder", "[0.4, 7.0]")
"""DQN explores as APEX does by default. Without masks a random move is often the last, and a single
epsilon of 0.05 for all games leaves few turns to learn from in which snakes are long."""

UNMASKED = ("--action-mask", "none")
DQN = ("--algorithm", "DQN", *LONG_VIEW, *EXPLORATION)

CURVES = (
    Curve("mxnet", "MXNet DQN, 1 core", 1, ("--algorithm", "MXNET", *UNMASKED)),
    Curve("dqn-1", "DQN, 1 core", 1, (*DQN, *UNMASKED)),
    Curve("dqn-2", "DQN, 2 cores", 2, (*DQN, *UNMASKED), threads=2),
    Curve("apex-2", "APEX, 2 cores", 2, ("--algorithm", "APEX", *LONG_VIEW, *UNMASKED)),
    Curve(
        "dqn-2-masked",
        "DQN, 2 cores, masked",
        2,
        (*DQN, "--action-mask", "forbidden"),
        threads=2,
    ),
)
BASELINE = CURVES[0].name


@dataclass(frozen=True)
class Point:
    """What a policy scored after ``minutes`` of training; means over games, 95 % half-widths."""

    minutes: float
    reward: float
    reward_error: float
    length: float
    length_error: float


# -- Training --------------------------------------------------------------------------------------


def train(curve: Curve, folder: Path, minutes: float, seed: int) -> None:
    """Train to the end, setting each checkpoint aside under ``folder``/kept."""
    command = [*TRAIN, *GAME, *curve.flags, "--minutes", str(minutes), "--seed", str(seed)]
    cores = sorted(os.sched_getaffinity(0))[: curve.cores]
    process = subprocess.Popen(
        [*command, "--runs", str(folder.parent), "--name", folder.name],
        env={**os.environ, "OMP_NUM_THREADS": str(curve.threads)},
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
        start_new_session=True,  # Ctrl-C is ours to pass on
    )
    try:
        while process.poll() is None:
            set_aside(folder)
            time.sleep(1)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGTERM)
        process.wait()
        raise
    if process.returncode:
        sys.exit(f"{curve.name}: training ended with status {process.returncode}")
    set_aside(folder)


def set_aside(folder: Path) -> None:
    """Copy checkpoints that are not kept yet; training deletes all but the last two."""
    for checkpoint in (folder / "checkpoints").glob("checkpoint_*"):
        kept = folder / "kept" / checkpoint.name
        if (checkpoint / checkpoints.FACTS_FILE).is_file() and not checkpoint.suffix:
            if kept.is_dir():
                continue
            draft = kept.with_suffix(".unfinished")
            shutil.rmtree(draft, ignore_errors=True)
            shutil.copytree(checkpoint, draft)
            draft.rename(kept)


# -- Scores ----------------------------------------------------------------------------------------


def scores(kept: Path, games: int, seed: int) -> Point:
    """Play the network of a checkpoint greedily."""
    policy = export_checkpoint(kept, kept / "policy.onnx", last=True)
    values, env_config = policies.load(policy)
    minutes = checkpoints.read_facts(kept)["time_total_s"] / 60
    return play(values, env_config, games, seed, minutes)


def safe_random(games: int, seed: int) -> Point:
    """Any move that the mask "forbidden" leaves."""
    random = np.random.default_rng(seed)
    env_config = {"num_snakes": 5, "rewards": "survival", "action_mask": "forbidden"}
    return play(
        lambda boards: random.random((len(boards), 4), dtype=np.float32), env_config, games, seed, 0
    )


def play(
    values: policies.Values, env_config: Mapping[str, Any], games: int, seed: int, minutes: float
) -> Point:
    """What copies of a policy score in ``games`` games."""
    played = play_copies(values, env_config, games, seed)
    by_game = played.rewards.mean(-1)
    return Point(
        minutes=round(minutes, 3),
        reward=float(by_game.mean()),
        reward_error=half_width(by_game),
        length=float(played.lengths.mean()),
        length_error=half_width(played.lengths),
    )


class Played(NamedTuple):
    """What came of N games with S seats: rewards [N, S], turns [N], and `rules.CAUSES` [N, S]."""

    rewards: NDArray[np.float64]
    lengths: NDArray[np.float64]
    causes: NDArray[np.uint8]


def play_copies(
    values: policies.Values, env_config: Mapping[str, Any], games: int, seed: int
) -> Played:
    """Play one game on each of ``games`` boards to its end, all snakes by the same policy."""
    env = make_vector(games, env_config)
    shape = games, env.num_snakes
    played = Played(np.zeros(shape), np.zeros(games), np.zeros(shape, dtype=np.uint8))
    playing = np.ones(games, dtype=np.bool_)
    boards, infos = env.reset(seed=seed)
    while playing.any():
        actions = np.zeros(shape, dtype=np.uint8)
        # Boards whose game is over begin another one, which nobody looks at.
        asked = infos["alive"] & playing[:, None]
        preference = np.where(infos["action_mask"][asked], in_parts(values, boards[asked]), -np.inf)
        actions[asked] = preference.argmax(-1)
        boards, gained, _, _, infos = env.step(actions)
        played.rewards[playing] += gained[playing]
        played.lengths[playing] = infos["turn"][playing]
        played.causes[playing] = infos["cause"][playing]
        playing &= infos["alive"].any(-1)
    return played


def in_parts(values: policies.Values, boards: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The values of many boards, a cache's worth at a time."""
    starts = range(0, len(boards), BOARDS_AT_ONCE)
    return np.concatenate([values(boards[start : start + BOARDS_AT_ONCE]) for start in starts])


def half_width(numbers: NDArray[np.float64]) -> float:
    """Of the mean's 95 % confidence interval."""
    return float(Z95 * numbers.std(ddof=1) / math.sqrt(len(numbers)))


# -- One curve, done once --------------------------------------------------------------------------


def curve_points(curve: Curve, output: Path, settings: Mapping[str, Any]) -> list[Point]:
    """The curve's points: read, if it is finished, else trained and scored."""
    folder = output / curve.name
    told = {**asdict(curve), **settings, "flags": list(curve.flags)}
    # Written before training begins: a curve is never continued by other settings.
    described, finished = folder / "curve.json", folder / "points.json"
    if described.is_file() and json.loads(described.read_text()) != told:
        sys.exit(f"{folder} was made with other settings; give another --output, or delete it")
    if finished.is_file():
        return [Point(**point) for point in json.loads(finished.read_text())]
    write_json(described, told)
    train(curve, folder, settings["minutes"], settings["seed"])
    kept = sorted((folder / "kept").glob("checkpoint_??????"))
    bar = tqdm(kept, desc=f"{curve.name}: games", unit="checkpoint")
    points = [scores(checkpoint, settings["games"], settings["seed"]) for checkpoint in bar]
    write_json(finished, [asdict(point) for point in points])
    return points


def write_json(path: Path, content: Any) -> None:
    """Write all of it or nothing."""
    write_atomically(path, lambda part: part.write_text(json.dumps(content, indent=1) + "\n"))


# -- Results ---------------------------------------------------------------------------------------


def write_csv(path: Path, points: Mapping[str, Sequence[Point]]) -> None:
    """All points, one a row."""

    def write(part: Path) -> None:
        with part.open("w", newline="") as file:
            writer = csv.DictWriter(file, ["curve", *Point.__dataclass_fields__])
            writer.writeheader()
            for name, rows in points.items():
                writer.writerows({"curve": name, **asdict(row)} for row in rows)

    write_atomically(path, write)


def draw(path: Path, points: Mapping[str, Sequence[Point]], floor: Point) -> None:
    """Reward and length over minutes, with safe-random play as a line."""
    plt.switch_backend("Agg")
    figure, axes = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
    for axis, what in zip(axes, ("reward", "length"), strict=True):
        for curve in (curve for curve in CURVES if curve.name in points):
            rows = points[curve.name]
            axis.errorbar(
                [row.minutes for row in rows],
                [getattr(row, what) for row in rows],
                [getattr(row, f"{what}_error") for row in rows],
                label=curve.label,
                marker=".",
                capsize=2,
            )
        axis.axhline(getattr(floor, what), color="grey", linestyle="--", label="safe-random play")
        axis.set(xlabel="minutes of training", xlim=(0, None), ylim=(0, None))
        axis.grid(alpha=0.3)
    axes[0].set_title("mean reward of a snake (turns alive)")
    axes[1].set_title("mean length of a game (turns)")
    axes[0].legend()
    write_atomically(path, lambda part: figure.savefig(part, format=path.suffix[1:], dpi=120))
    plt.close(figure)


def table(points: Mapping[str, Sequence[Point]], floor: Point) -> str:
    """What the last checkpoint of each curve scores, in Markdown."""
    lines = [
        "| trained | minutes | reward | length | reward x baseline | length x baseline |",
        "|---|---|---|---|---|---|",
    ]
    baseline = points[BASELINE][-1] if BASELINE in points else None
    last = {curve.label: points[curve.name][-1] for curve in CURVES if curve.name in points}
    for label, point in {**last, "safe-random play": floor}.items():
        ratios = (
            (f"{point.reward / baseline.reward:.1f}", f"{point.length / baseline.length:.1f}")
            if baseline
            else ("", "")
        )
        cells = (
            label,
            f"{point.minutes:.1f}",
            f"{point.reward:.1f} ± {point.reward_error:.1f}",
            f"{point.length:.1f} ± {point.length_error:.1f}",
            *ratios,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Train what is missing, then write everything."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [curve.name for curve in CURVES]
    parser.add_argument("--minutes", type=float, default=20.0, help="of training, for each curve")
    parser.add_argument("--games", type=int, default=200, help="played by each checkpoint")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("runs/turns-alive"))
    parser.add_argument("--curves", nargs="+", choices=names, default=names)
    arguments = parser.parse_args(argv)
    if arguments.minutes <= 0 or arguments.games < 2:
        parser.error("--minutes must be positive and --games at least 2")
    cores = len(os.sched_getaffinity(0))
    wanted = [curve for curve in CURVES if curve.name in arguments.curves]
    if (needed := max(curve.cores for curve in wanted)) > cores:
        parser.error(f"the curves need {needed} cores, and there are {cores}; leave some out")
    settings = {key: getattr(arguments, key) for key in ("minutes", "games", "seed")}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        points = {
            curve.name: curve_points(curve, arguments.output, settings)
            for curve in tqdm(wanted, desc="curves", unit="curve")
        }
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here")
        return 130
    floor = safe_random(arguments.games, arguments.seed)
    write_csv(arguments.output / "curves.csv", {**points, "safe-random": [floor]})
    for suffix in (".svg", ".png"):
        draw(arguments.output / f"curves{suffix}", points, floor)
    text = table(points, floor)
    write_atomically(arguments.output / "table.md", lambda part: part.write_text(text))
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
