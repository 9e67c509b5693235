"""Folders as training runs leave them, made without training."""

import csv
import math
import time
from pathlib import Path
from typing import Any

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common import run_dir
from battlesnake_gym.common.run_dir import CSV_FILE, GAMES_DIR, RunStatus
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import MOVES, Game
from battlesnake_gym.snakes import Decision

COLUMNS = (
    *("training_iteration", "time_total_s", "env_steps", "episode_reward_mean"),
    *("episode_len_mean", "Snake_hit_wall", "Snake_hit_body", "Starved", "cpu_minutes"),
    *("elo", "elo_low", "elo_high", "elo_games", "elo_best"),
    *("score_hungry", "score_hungry_low", "score_hungry_high"),
)

SETTINGS: dict[str, Any] = {"algorithm": "DQN", "board_size": 11, "minutes": 3.0, "seed": None}


def row(iteration: int) -> list[float]:
    """What is written after an iteration, ten seconds each; measured from the third on."""
    n = float(iteration)
    measured = iteration >= 3
    elo = 700 + 20 * n if measured else math.nan
    return [
        *(n, 10 * n, 1000 * n, 20 + n, 30 + 2 * n, 0.5 / n, 1.0, 0.25, n / 6),
        *(elo, elo - 50, elo + 60, 16.0 if measured else math.nan, elo),
        *((0.5, 0.4, 0.6) if measured else (math.nan,) * 3),
    ]


def append(run: Path, *iterations: int) -> None:
    """Write rows, as the trainer does."""
    with (run / CSV_FILE).open("a", newline="") as file:
        for iteration in iterations:
            csv.writer(file).writerow(
                "" if math.isnan(number) else f"{number:.10g}" for number in row(iteration)
            )


def make(
    folder: Path,
    name: str,
    iterations: int = 6,
    state: str = "done",
    *,
    why: str = "",
    games: tuple[int, ...] = (),
    minutes: float = 3.0,
    **settings: Any,
) -> Path:
    """A run of so many iterations, with recorded games of some of them."""
    run = folder / name
    run.mkdir(parents=True)
    (run / CSV_FILE).write_text(",".join(COLUMNS) + "\r\n")
    (run / run_dir.LOCK_FILE).touch()
    append(run, *range(1, iterations + 1))
    now = time.time()
    RunStatus(
        state, now - 60, None if state == "running" else now, why,
        stop_conditions={"num_iters": None, "minutes": minutes, "env_steps": None},
        settings=SETTINGS | {"minutes": minutes} | settings,
        identity={"algorithm": "DQN", "board_size": [11, 11]},
        versions={"battlesnake-gym": "0.1.0"},
    ).save(run)  # fmt: skip
    for iteration in games:
        played(iteration).save(run / GAMES_DIR / f"iteration-{iteration:06d}.jsonl.gz")
    return run


def played(seed: int, turns: int = 6) -> Replay:
    """A game of some safe turns."""
    board = Board.new(7, 7, 2, game=Game(seed=seed))
    return Replay.from_play(
        board, dict.fromkeys(("snake_0", "snake_1"), first_safe), max_turns=turns
    )


def first_safe(board: Board, seconds: float | None = None) -> Decision:
    """A strategy that needs no dice."""
    return Decision((board.safe_moves() or MOVES)[0])
