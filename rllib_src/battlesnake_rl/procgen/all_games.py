"""Many games with one command: ``train-procgen --games all --frames N --seeds K``.

Each game is trained with each seed as a run of its own, one after the other; then its agent plays
on the levels of the training and on all there are. What is done stays done: the same command goes
on where it was interrupted. After each run the table of what is done so far is written.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from battlesnake_gym.common.command_line import refuse
from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.nearest import unknown
from battlesnake_rl.launcher.launch.job import say
from battlesnake_rl.launcher.runs import checkpoints
from battlesnake_rl.procgen import published, rollout
from battlesnake_rl.procgen.procgen_environment import VectorProcgen
from battlesnake_rl.procgen.procgen_games import GAMES
from battlesnake_rl.procgen.procgen_playing import play, score
from battlesnake_rl.procgen.train_procgen import PROG, ProcgenLauncher

DEFAULT_EXPERIMENT = "easy-200"
SCORES = "scores.json"
"""In a run: what its agent reached, and after how many frames."""
GAMES_AT_ONCE = 16
DEFAULTS = {"seeds": 1, "episodes": 100}
OF_EACH_RUN = ("--name", "--env-name", "--env_name", "--seed",
               "--timesteps", "--minutes", "--num-iters")  # fmt: skip
"""Options that are set here for each training."""
COLUMNS = ("game", "frames", "train reward", "test reward", "train score", "test score", "gap",
           "published train", "published test")  # fmt: skip


@dataclass(frozen=True)
class GamesPlan:
    """What is trained."""

    games: tuple[str, ...]
    frames: int
    seeds: int
    episodes: int
    """Played on each kind of levels at the end of a run."""
    experiment: str
    runs: Path
    rest: tuple[str, ...]
    """All other words of the command, which go to each training."""
    check: bool
    """Only look whether the first could be trained."""

    def path(self, name: str) -> Path:
        """A file or folder of these games among the runs."""
        return self.runs / f"{Path(self.experiment).stem}-{name}"

    def run(self, game: str, seed: int) -> Path:
        """The folder of one training."""
        return self.path(f"{game}-seed{seed}")

    @property
    def wanted(self) -> dict[str, Any]:
        """What must be the same for a run's scores to count; runs may be in another folder."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--runs")
        options = parser.parse_known_args(list(self.rest))[1]
        return {"wanted_frames": self.frames, "episodes": self.episodes, "options": options}


def main(arguments: Any, rest: Sequence[str]) -> int:
    """Train, score and tell; the exit status is that of a training that did not end as it should.

    ``arguments`` are the values of `train_procgen.add_games_options`, ``rest`` the other words.
    """
    try:
        plan = plan_of(arguments, rest)
    except ValueError as error:
        return refuse(PROG, error)
    if plan.check:
        return _train(plan, plan.games[0], 0)
    every = [(game, seed) for seed in range(plan.seeds) for game in plan.games]
    try:
        for number, (game, seed) in enumerate(every, 1):
            say(f"[{number}/{len(every)}] {game}, seed {seed}")
            if _scored(plan, game, seed) is not None:
                continue
            if status := _train(plan, game, seed):
                break
            text = json.dumps(scores(plan, game, seed), indent=1) + "\n"
            write_atomically(plan.run(game, seed) / SCORES, lambda path, t=text: path.write_text(t))
            _write_table(plan)
        else:
            status = 0
    except KeyboardInterrupt:
        status = 130
    if status != 0:
        say("not all is done; the same command goes on")
        return status
    sys.stdout.write(_write_table(plan))
    say(f"wrote {plan.path('games.md')}")
    return 0


def plan_of(arguments: Any, rest: Sequence[str]) -> GamesPlan:
    """The plan that a command means.

    Raises:
        ValueError: an impossible number, a game that nobody knows, or an option that cannot be
            given for many games at once.
    """
    games = tuple(GAMES) if arguments.games == "all" else tuple(arguments.games.split(","))
    for game in games:
        if game not in GAMES:
            raise ValueError(unknown("game", game, GAMES))
    if arguments.frames is None:
        raise ValueError("--games needs --frames N: how many frames each training sees")
    numbers = {"frames": arguments.frames, "seeds": arguments.seeds, "episodes": arguments.episodes}
    numbers = DEFAULTS | {name: number for name, number in numbers.items() if number is not None}
    for name, number in numbers.items():
        if number < 1:
            raise ValueError(f"--{name} must be at least 1, got {number}")
    for word in rest:
        if (option := word.partition("=")[0]) in OF_EACH_RUN:
            raise ValueError(f"{option} cannot be given with --games, which sets it for each run")
    given = vars(ProcgenLauncher().parser(PROG).parse_known_args(list(rest))[0])
    experiment = given.get("hyperparameter.experiment", DEFAULT_EXPERIMENT)
    return GamesPlan(
        games=games,
        **numbers,
        experiment=experiment,
        runs=given["runs"],
        check=given["check"],
        rest=(*rest, *(() if "hyperparameter.experiment" in given else ("-f", experiment))),
    )


def _train(plan: GamesPlan, game: str, seed: int) -> int:
    own = ["--env-name", game, "--seed", str(seed), "--timesteps", str(plan.frames)]
    return ProcgenLauncher.train_main(
        [*plan.rest, *own, "--name", plan.run(game, seed).name], prog=PROG
    )


def _scored(plan: GamesPlan, game: str, seed: int) -> dict[str, Any] | None:
    """The scores of a run, where they are those that are wanted."""
    path = plan.run(game, seed) / SCORES
    there: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return there if there and there | plan.wanted == there else None


def scores(plan: GamesPlan, game: str, seed: int) -> dict[str, Any]:
    """What the newest checkpoint of a run reaches on training levels and on all."""
    checkpoint = checkpoints.find(plan.run(game, seed))
    facts = checkpoints.read_facts(checkpoint)
    trained_on = facts["identity"]["env_config"]
    result = {"game": game, "seed": seed, "frames": facts["env_steps"], "env_config": trained_on}
    for kind, levels in (("train", "training"), ("test", "all")):
        env_config = rollout.LEVELS[levels](trained_on)
        games = VectorProcgen(min(GAMES_AT_ONCE, plan.episodes), env_config)
        act = rollout.load_policy(checkpoint, seed=seed)
        result[kind] = score(play(games, act, episodes=plan.episodes, seed=seed), env_config)
        games.close()
    return result | plan.wanted


def _write_table(plan: GamesPlan) -> str:
    every = [_scored(plan, game, seed) for game in plan.games for seed in range(plan.seeds)]
    text = table([one for one in every if one is not None])
    write_atomically(plan.path("games.md"), lambda path: path.write_text(text))
    return text


def table(done: Sequence[dict[str, Any]]) -> str:
    """Markdown of what `scores` returned: a line for each game and the mean of all, over seeds.

    Scores are normalized: 0 is an agent that sees nothing, 1 the best there is. A dash is where
    there is no figure: in other modes than easy and hard, and for what was not published.
    """
    rows = [f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    columns: list[list[float]] = []
    for game in dict.fromkeys(one["game"] for one in done):
        runs = [one for one in done if one["game"] == game]
        frames = int(np.mean([one["frames"] for one in runs]))
        kinds = ("train", "test")
        ours = [[one[kind].get("normalized_score", math.nan) for one in runs] for kind in kinds]
        train, test = (float(np.mean(each)) for each in ours)
        theirs = [published.score(game, kind, frames, runs[0]["env_config"]) for kind in kinds]
        columns.append([train, test, train - test, *theirs])
        rewards = (_reward([one[kind] for one in runs]) for kind in kinds)
        rows.append(f"| {game} | {frames:,} | {' | '.join((*rewards, *map(_text, columns[-1])))} |")
    if len(columns) > 1:
        there = [
            [one for one in each if not math.isnan(one)] for each in zip(*columns, strict=True)
        ]
        means = [float(np.mean(each)) if each else math.nan for each in there]
        rows.append(f"| mean of {len(columns)} | | | | {' | '.join(map(_text, means))} |")
    return "\n".join(rows) + "\n"


def _reward(of_seeds: Sequence[dict[str, float]]) -> str:
    spread = math.hypot(*(one["standard_error"] for one in of_seeds)) / len(of_seeds)
    return f"{np.mean([one['reward'] for one in of_seeds]):.2f} ± {spread:.2f}"


def _text(number: float) -> str:
    return "—" if math.isnan(number) else f"{number:.3f}"
