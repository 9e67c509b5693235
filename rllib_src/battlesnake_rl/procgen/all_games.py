"""Many games with one command: ``train-procgen --games all --frames N --seeds K``.

Each game is trained with each seed as a run of its own, one after the other; then its agent plays
on the levels of the training and on all there are. What is done stays done: the same command goes
on where it was interrupted. After each run the table, the picture and their figures are written.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from battlesnake_gym.common.command_line import refuse
from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.nearest import unknown
from battlesnake_rl.launcher.launch.job import say
from battlesnake_rl.launcher.runs import checkpoints
from battlesnake_rl.procgen import games_report, rollout
from battlesnake_rl.procgen.procgen_environment import VectorProcgen
from battlesnake_rl.procgen.procgen_games import GAMES
from battlesnake_rl.procgen.procgen_playing import play, score
from battlesnake_rl.procgen.train_procgen import PROG, ProcgenLauncher

DEFAULT_EXPERIMENT = "easy-200"
SCORES = "scores.json"
"""In a run: what its agent reached, and after how many frames."""
CPU = "cpu_seconds.json"
"""In a run: what it has cost so far."""
GAMES_AT_ONCE = 16
DEFAULTS = {"seeds": 1, "episodes": 100}


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

    @property
    def label(self) -> str:
        """Begins the names of runs and results."""
        return Path(self.experiment).stem

    @property
    def options(self) -> list[str]:
        """Of ``rest`` what tells one measurement from another: all but the folder of the runs."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--runs")
        return parser.parse_known_args(list(self.rest))[1]

    def run(self, game: str, seed: int) -> Path:
        """The folder of one training."""
        return self.runs / f"{self.label}-{game}-seed{seed}"


def main(arguments: Any, rest: Sequence[str]) -> int:
    """Train, score and tell; the exit status is that of a training that did not end as it should.

    ``arguments`` are the values of `launcher.add_games_options`, ``rest`` the other words.
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
            status = _train_and_score(plan, game, seed)
            if status != 0:
                break
            _report(plan)
    except KeyboardInterrupt:
        status = 130
    if status != 0:
        say("not all is done; the same command goes on")
        return status
    text, files = _report(plan)
    sys.stdout.write(text)
    say("wrote " + ", ".join(str(path) for path in files))
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
    own = (
        "--name",
        "--env-name",
        "--env_name",
        "--seed",
        "--timesteps",
        "--minutes",
        "--num-iters",
    )
    for word in rest:
        if word.partition("=")[0] in own:
            raise ValueError(
                f"{word.partition('=')[0]} cannot be given with --games, which sets it for each run"
            )
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


def _train_and_score(plan: GamesPlan, game: str, seed: int) -> int:
    run = plan.run(game, seed)
    if _scored(plan, run):
        return 0
    before = _cpu_seconds()
    try:
        status = _train(plan, game, seed)
        if status == 0:
            _write(run / SCORES, scores(plan, game, seed))
    finally:
        if run.is_dir():
            spent = _read(run / CPU).get("cpu_seconds", 0.0) + _cpu_seconds() - before
            _write(run / CPU, {"cpu_seconds": round(spent, 1)})
    return status


def _train(plan: GamesPlan, game: str, seed: int) -> int:
    own = ["--env-name", game, "--seed", str(seed), "--timesteps", str(plan.frames)]
    return ProcgenLauncher.train_main(
        [*plan.rest, *own, "--name", plan.run(game, seed).name], prog=PROG
    )


def _scored(plan: GamesPlan, run: Path) -> bool:
    there = _read(run / SCORES)
    wanted = {"wanted_frames": plan.frames, "episodes": plan.episodes, "options": plan.options}
    return all(there.get(name) == value for name, value in wanted.items())


def scores(plan: GamesPlan, game: str, seed: int) -> dict[str, Any]:
    """What the newest checkpoint of a run reaches on training levels and on all."""
    checkpoint = checkpoints.find(plan.run(game, seed))
    facts = checkpoints.read_facts(checkpoint)
    trained_on = facts["identity"]["env_config"]
    result = {
        "game": game,
        "seed": seed,
        "frames": facts["env_steps"],
        "wanted_frames": plan.frames,
        "episodes": plan.episodes,
        "options": plan.options,
        "env_config": trained_on,
        "algorithm": facts["identity"]["algorithm"],
        "network settings": facts["identity"]["network settings"],
    }
    for kind, levels in (("train", "training"), ("test", "all")):
        env_config = rollout.LEVELS[levels](trained_on)
        games = VectorProcgen(min(GAMES_AT_ONCE, plan.episodes), env_config)
        act = rollout.load_policy(checkpoint, seed=seed)
        result[kind] = score(play(games, act, episodes=plan.episodes, seed=seed), env_config)
        games.close()
    return result


def _report(plan: GamesPlan) -> tuple[str, list[Path]]:
    """Write table, picture and figures of what is there so far; the table, and the files."""
    done = [
        _read(plan.run(game, seed) / SCORES) | _read(plan.run(game, seed) / CPU)
        for game in plan.games
        for seed in range(plan.seeds)
        if _scored(plan, plan.run(game, seed))
    ]
    files = [plan.runs / f"{plan.label}-games{suffix}" for suffix in (".json", ".md", ".svg")]
    text = games_report.table(done)
    _write(files[0], done)
    write_atomically(files[1], lambda path: path.write_text(text))
    curves = {game: [plan.run(game, seed) for seed in range(plan.seeds)] for game in plan.games}
    games_report.draw(curves, done, files[2])
    return text, files


def _cpu_seconds() -> float:
    """Of this process and those that it has seen end, but not of runners on other machines."""
    own = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in own)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def _write(path: Path, content: Any) -> None:
    write_atomically(path, lambda part: part.write_text(json.dumps(content, indent=1) + "\n"))
