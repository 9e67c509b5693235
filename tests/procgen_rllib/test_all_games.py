"""Many games with one command: trained, scored, told, and gone on with after an interruption."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = [pytest.mark.rllib, pytest.mark.filterwarnings("default")]

all_games = pytest.importorskip("battlesnake_rl.procgen.all_games", reason="needs the extra rllib")

SMALL = [
    *("--run", "ProcgenPPO", "-f", "starter-example", "--num-workers", "0"),
    *("--rl.training.config.train_batch_size_per_learner", "128"),
    *("--rl.training.config.minibatch_size", "64", "--rl.training.config.num_epochs", "1"),
    *("--rl.training.config.games", "null", "--rl.training.config.num_envs_per_env_runner", "4"),
    *("--hyperparameter", 'env_config={"num_levels": 5}'),
]


def command(runs: Path, *words: str) -> int:
    from battlesnake_rl.procgen.procgen_command import main

    return main([*words, "--runs", str(runs)])


def test_two_games_in_two_parts(
    ray_session: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--games", "bossfight,leaper", "--frames", "100", "--episodes", "3", *SMALL]
    train = all_games.ProcgenLauncher.train_main
    trained: list[str] = []

    def recorded(argv: list[str], prog: str) -> int:
        trained.append(argv[argv.index("--env-name") + 1])
        # The second training is stopped by a signal, the first time.
        return 143 if trained == ["bossfight", "leaper"] else int(train(argv, prog=prog))

    monkeypatch.setattr(all_games.ProcgenLauncher, "train_main", recorded)
    assert command(tmp_path, *words) == 143
    assert "the same command goes on" in capsys.readouterr().out
    assert command(tmp_path, *words) == 0
    assert trained == ["bossfight", "leaper", "leaper"]
    out = capsys.readouterr().out
    table = (tmp_path / "starter-example-games.md").read_text()
    assert table in out
    assert [line.split(" | ")[0] for line in table.splitlines()[2:5]] == [
        "| bossfight",
        "| leaper",
        "| mean of 2",
    ]
    first, second = (
        json.loads((tmp_path / f"starter-example-{game}-seed0" / "scores.json").read_text())
        for game in ("bossfight", "leaper")
    )
    assert (first["game"], second["game"], first["train"]["episodes"]) == ("bossfight", "leaper", 3)
    assert first["frames"] >= 100
    assert first["env_config"]["num_levels"] == 5
    # More episodes are another measurement of the same training.
    assert command(tmp_path, *words, "--episodes", "4") == 0
    first = json.loads((tmp_path / "starter-example-bossfight-seed0/scores.json").read_text())
    assert first["test"]["episodes"] == 4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--games", "all"], "--games needs --frames N"),
        (["--games", "maze,bigfisch", "--frames", "9"], "did you mean bigfish"),
        (["--games", "maze", "--frames", "0"], "--frames must be at least 1, got 0"),
        (
            ["--games", "maze", "--frames", "9", "--seed", "3"],
            "--seed cannot be given with --games",
        ),
        (["--games", "maze", "--frames", "9", "--minutes=3"], "--minutes cannot be given"),
        (["--frames", "9"], "--frames needs --games"),
    ],
)
def test_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path, *words) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_all_are_the_sixteen(tmp_path: Path) -> None:
    from argparse import Namespace

    from battlesnake_rl.procgen.procgen_games import GAMES

    words = ["--runs", "elsewhere"]
    plan = all_games.plan_of(Namespace(games="all", frames=7, seeds=3, episodes=None), words)
    assert plan.games == tuple(GAMES)
    assert (plan.experiment, plan.episodes) == ("easy-200", 100)
    assert plan.rest == (*words, "-f", "easy-200")
    options = plan.wanted["options"]
    assert options == ["-f", "easy-200"], "a folder that moves is not trained again"
    assert plan.run("maze", 2) == Path("elsewhere/easy-200-maze-seed2")


def run_of(game: str, seed: int, train: float, test: float, frames: int, **config: Any) -> Any:
    from battlesnake_rl.procgen.procgen_games import normalized_score

    def score(reward: float) -> dict[str, float]:
        normal = normalized_score(reward, game)
        return {"reward": reward, "standard_error": 0.3, "normalized_score": normal}

    return {
        "game": game,
        "seed": seed,
        "frames": frames,
        "env_config": {"num_levels": 200, "distribution_mode": "easy"} | config,
        "train": score(train),
        "test": score(test),
    }


def test_a_table_tells_means_over_seeds() -> None:
    runs = [
        run_of("bigfish", 0, 20.5, 1.0, 10**9),
        run_of("bigfish", 1, 40.0, 1.0, 10**9),
        run_of("maze", 0, 7.5, 7.5, 10**9),
    ]
    bigfish, maze, mean = all_games.table(runs).splitlines()[2:5]
    # Each error is 0.3, so that of a mean of two is 0.3 / sqrt(2).
    assert bigfish == (
        "| bigfish | 1,000,000,000 | 30.25 ± 0.21 | 1.00 ± 0.21 | 0.750 | 0.000 | 0.750 | — | — |"
    )
    assert (
        maze
        == "| maze | 1,000,000,000 | 7.50 ± 0.30 | 7.50 ± 0.30 | 0.500 | 0.500 | 0.000 | — | — |"
    )
    assert mean == "| mean of 2 | | | | 0.625 | 0.250 | 0.375 | — | — |"


def test_published_figures_are_at_as_many_frames_on_the_same_levels() -> None:
    from battlesnake_rl.procgen import published
    from battlesnake_rl.procgen.procgen_games import GAMES, normalized_score

    protocol = {"num_levels": 200, "distribution_mode": "easy", "start_level": 0}
    for game in GAMES:
        for levels in ("train", "test"):
            frames, scores = published.curves()[game, levels]
            assert (np.diff(frames) > 0).all()
            assert frames[0] == 16_384, "one iteration"
            assert (np.abs(scores) <= 1).all()
    last = normalized_score((1.36 + 1.69 + 1.23) / 3, "bigfish")
    assert published.score("bigfish", "test", 999_424, protocol) == pytest.approx(last)
    frames, scores = published.curves()["bigfish", "train"]
    between, expected = int(frames[1:3].mean()), scores[1:3].mean()
    assert published.score("bigfish", "train", between, protocol) == pytest.approx(expected)
    run = run_of("bigfish", 0, 3.0, 2.0, between)
    assert f"| {expected:.3f} |" in all_games.table([run])
    for other in ({"num_levels": 0}, {"distribution_mode": "hard"}):
        assert math.isnan(published.score("bigfish", "test", between, protocol | other))
    for frames in (16_383, 10**9):
        assert math.isnan(published.score("bigfish", "test", frames, protocol))
