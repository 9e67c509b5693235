"""How strong it is: games on the ladder, their share of the CPU time, the best that is kept."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("battlesnake_heuristics.search._search")

import subprocess
import sys
import time

from battlesnake_gym.rules import Game, start
from battlesnake_heuristics import View, When
from battlesnake_heuristics.rating import ladder
from battlesnake_heuristics.rating.ladder import Placement
from battlesnake_heuristics.rating.match import derive_seed
from battlesnake_rl.commands import evaluate_command
from battlesnake_rl.mabs import algorithms, battlesnake_launcher
from battlesnake_rl.mabs.battlesnake_launcher import BattlesnakeHyperparameters, BattlesnakeLauncher
from battlesnake_rl.mabs.checkpoint_export import export_checkpoint
from battlesnake_rl.mabs.envs.training_env_config import ENV_CONFIG_DEFAULTS
from battlesnake_rl.mabs.policy import policy_loader, q_network
from battlesnake_rl.mabs.ppo.rllib_ppo import SHARED_MODULE_ID
from battlesnake_rl.mabs.settings.algorithm_settings import DQNSettings
from battlesnake_rl.mabs.strength import ladder_evaluator
from battlesnake_rl.mabs.strength.ladder_evaluator import (
    LadderPlayer,
    Measurement,
    StrengthHistory,
)
from sagemaker_rl.runs import checkpoints
from sagemaker_rl.runs.curves import flatten
from tests.algorithms import built
from tests.mabs.conftest import SMALL, TINY
from tests.mabs.test_launcher import train
from tests.progress_csv import rows

pytestmark = pytest.mark.filterwarnings("default")

UNMASKED = ENV_CONFIG_DEFAULTS | {"action_mask": "none"}


def upwards(boards: Any) -> Any:
    return np.array([[3.0, 2.0, 1.0, 0.0]], np.float32).repeat(len(boards), 0)


# -- Games -----------------------------------------------------------------------------------------


def test_who_walks_into_the_wall_loses_and_who_may_not_beats_a_snake_that_may() -> None:
    assert ladder_evaluator._play_pairs(upwards, UNMASKED, ["safe-random"] * 3, seed=1) == [0, 0, 0]
    masked = ladder_evaluator._play_pairs(upwards, ENV_CONFIG_DEFAULTS, ["random"] * 6, seed=1)
    assert sum(masked) >= 20  # of 24


def test_an_elimination_on_the_last_turn_is_a_loss() -> None:
    first = start(Game(seed=2), 11, 11, ["me", "it", "other"])
    hits_wall_on = first.height - first.snakes[0].head[1]
    for limit in (hits_wall_on - 1, hits_wall_on):
        played = ladder_evaluator.play_games_batched(
            upwards,
            UNMASKED | {"max_turns": limit},
            [("cautious", "cautious")],
            np.array([0]),
            1,
            starts=[first],
        )
        assert played.turns_alive == limit
        assert not played.won
        assert played.drawn == (limit < hits_wall_on)


def test_policy_rules_remember_food_with_limited_view() -> None:
    remembered = []

    def remembers(view: View) -> bool:
        remembered.append(view.known_food != view.food)
        return False

    config = UNMASKED | {"settings": {"view_radius": 1}}
    rules = [When(remembers, [])]
    ladder_evaluator.play_games_batched(
        upwards, config, [["hungry"]], np.array([0]), 1, rules=rules
    )
    assert any(remembered)


def test_a_pair_is_one_start_from_both_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def play(values: Any, env_config: Any, opponents: Any, own: Any, seed: int, **more: Any) -> Any:
        seen.update(opponents=opponents, own=own.tolist(), config=env_config, **more)
        won = np.array([True, False, False, True])
        return ladder_evaluator._GameOutcomes(
            won, np.array([False, True, False, False]), np.zeros(4)
        )

    monkeypatch.setattr(ladder_evaluator, "play_games_batched", play)
    rungs = ["hungry", "tree"]
    assert ladder_evaluator._play_pairs(upwards, UNMASKED, rungs, seed=3, first_pair=5) == [3, 2]
    assert seen["opponents"] == [("hungry",), ("hungry",), ("tree",), ("tree",)]
    assert seen["own"] == [0, 1, 0, 1]
    first, again, other, _ = seen["starts"]
    assert first == again != other
    assert first == start(Game(seed=derive_seed(3, 5)), 11, 11, ("0", "1"))
    # Games last as long as the ladder's, whatever training cuts them at.
    assert seen["config"]["max_turns"] == 1000


def test_the_same_seed_places_at_the_same_elo_and_games_end_it() -> None:
    first, _ = ladder_evaluator.place_policy(upwards, UNMASKED, seed=2, games=6)
    again, _ = ladder_evaluator.place_policy(upwards, UNMASKED, seed=2, games=6)
    assert first == again
    assert first.games == 6
    assert first.out_of_range == "below"
    longer, _ = ladder_evaluator.place_policy(upwards, UNMASKED, seed=2, cpu_seconds=0.0)
    assert longer.games == 2 * ladder_evaluator.NUM_PARALLEL_PAIRS


def test_a_placement_begins_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[str] = []

    def play_pairs(values: Any, env_config: Any, rungs: list[str], *_: Any) -> list[int]:
        met.extend(rungs)
        return [2] * len(rungs)

    monkeypatch.setattr(ladder_evaluator, "_play_pairs", play_pairs)
    for expected_elo, nearest in ((500.0, "safe-random"), (1700.0, "minimax-2026@400")):
        met.clear()
        ladder_evaluator.place_policy(
            upwards, ENV_CONFIG_DEFAULTS, seed=1, games=2, expected_elo=expected_elo
        )
        assert met == [nearest]


# -- The budget, and the best ----------------------------------------------------------------------


class Bench(LadderPlayer):
    """A training whose CPU time and strength are what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fraction: float = 0.05) -> None:
        self.seconds = 100.0
        self.worth: dict[float, float] = {}
        self.asked: list[dict[str, Any]] = []
        self.games = 200
        self.config = SimpleNamespace(env_config=ENV_CONFIG_DEFAULTS, seed=4)
        clock = lambda pid: self.seconds  # noqa: E731
        monkeypatch.setattr(ladder_evaluator, "process_tree_cpu_seconds", clock)
        monkeypatch.setattr(ladder_evaluator, "place_policy", self.place_policy)
        self.start_ladder(fraction)

    def place_policy(self, values: Any, env_config: Any, **told: Any) -> tuple[Placement, float]:
        self.asked.append(told)
        self.seconds += told["cpu_seconds"]
        half = 400 / told["cpu_seconds"]
        elo = float(values(np.zeros(0, np.uint8))[0])
        elo = self.worth.get(elo, elo)
        placement = Placement(elo, elo - half, elo + half, self.games, "", {})
        return placement, told["cpu_seconds"]

    def _get_export_weights(self) -> Any:
        return {"weights": np.array(self.elo)}

    def _policy_from_weights(self, weights: Any) -> Any:
        return lambda seen: weights["weights"][np.newaxis]

    def iterate(self, seconds: float, elo: float, at_end: bool = False) -> dict[str, Any]:
        self.seconds += seconds
        self.elo = elo
        return self.evaluate_on_ladder(at_end=at_end)


def test_games_take_their_share_of_the_cpu_time_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(monkeypatch)
    shares = [bench.iterate(seconds=7.0, elo=1000)["ladder_cpu_fraction"] for _ in range(500)]
    assert max(shares) <= 0.035  # the rest is for the end
    assert shares[-1] > 0.025
    assert shares[5] == 0  # nothing, as long as it is not worth it
    # They become longer, and not ever more of them.
    lengths = [asked["cpu_seconds"] for asked in bench.asked]
    assert lengths[0] >= ladder_evaluator.MIN_MEASUREMENT_S
    assert lengths[-1] > 8 * lengths[0]
    assert len(lengths) < 25
    # Each is begun where the last one ended, and plays other games.
    assert [asked["expected_elo"] for asked in bench.asked[:2]] == [None, 1000]
    assert len({asked["seed"] for asked in bench.asked}) == len(lengths)


def test_the_end_spends_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    for _ in range(40):
        bench.iterate(seconds=10.0, elo=1000)
    before = len(bench.asked)
    results = bench.iterate(seconds=1e4, elo=1100, at_end=True)
    assert results["elo"] == 1100
    assert 0.045 < results["ladder_cpu_fraction"] <= 0.05
    # The strongest so far and the last play the same games for as long.
    again, last = bench.asked[before:]
    assert again["seed"] == last["seed"]
    assert again["cpu_seconds"] == last["cpu_seconds"] > ladder_evaluator.MIN_MEASUREMENT_S


@pytest.mark.parametrize(("seconds", "spent"), [(50.0, 2.5), (100.0, 25.0), (400.0, 60.0)])
def test_the_figure_at_the_end_of_a_short_training_is_worth_more_than_its_share(
    monkeypatch: pytest.MonkeyPatch, seconds: float, spent: float
) -> None:
    bench = Bench(monkeypatch)
    bench.iterate(seconds=seconds, elo=1100, at_end=True)
    assert sum(asked["cpu_seconds"] for asked in bench.asked) == pytest.approx(spent)


def test_a_lucky_best_is_found_out_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    for elo in (1000, 1400, 1100, 1100):
        bench.iterate(seconds=200.0, elo=elo)
    history = bench.strength
    lucky = history.measurements[1]
    assert history.best == 1
    bench.worth[1400] = 1150
    results = bench.iterate(seconds=100.0, elo=1200, at_end=True)
    assert history.measurements[1].elo == 1150
    assert history.measurements[1].cpu_minutes == lucky.cpu_minutes
    assert results["elo_best"] == 1200
    assert bench.best_weights == {"weights": np.array(1200.0)}

    bench.iterate(seconds=100.0, elo=1100, at_end=True)
    assert bench.best_weights == {"weights": np.array(1200.0)}


def test_few_games_are_reported_but_select_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch)
    bench.games = ladder_evaluator.MIN_BEST_GAMES - 1
    results = bench.iterate(seconds=200.0, elo=1900)
    assert results["elo"] == 1900
    assert np.isnan(results["elo_best"])
    assert bench.best_weights is None
    assert "not measured" in bench.strength.elo_summary()
    # The last measurement of the run counts, however few games it has.
    results = bench.iterate(seconds=100.0, elo=1200, at_end=True)
    assert results["elo_best"] == 1200
    assert bench.best_weights == {"weights": np.array(1200.0)}


def test_no_share_no_games_and_no_measurement_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(monkeypatch, fraction=0.0)
    results = bench.iterate(seconds=1e6, elo=1000, at_end=True)
    assert np.isnan(results["elo"])
    assert results["cpu_minutes"] == pytest.approx(1e6 / 60)
    assert not bench.asked
    assert re.search("not measured.* with a larger fraction", bench.strength.elo_summary())
    for wrong in (-0.1, 0.6, True, "much"):
        with pytest.raises(ValueError, match=r"ladder_cpu_fraction must be"):
            DQNSettings(ladder_cpu_fraction=wrong)  # type: ignore[arg-type]


def test_the_best_is_kept_by_the_lower_end_through_a_checkpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bench = Bench(monkeypatch)
    for elo in (900, 1200, 1100):
        results = bench.iterate(seconds=100.0, elo=elo)
    assert results["elo"] == 1100
    assert results["elo_best"] == 1200
    assert bench.best_weights == {"weights": np.array(1200.0)}
    bench.save_ladder(tmp_path)

    again = Bench(monkeypatch)
    again.restore_ladder(tmp_path)
    assert again.strength == bench.strength
    # The CPU time before counts on, and so does what the games had of it.
    results = again.iterate(seconds=1.0, elo=2000)
    assert not again.asked
    before = bench.strength.training_seconds
    assert results["cpu_minutes"] == pytest.approx((before + 1) / 60)
    assert again.best_weights == {"weights": np.array(1200.0)}
    again.iterate(seconds=100.0, elo=2000)
    assert again.best_weights == {"weights": np.array(2000.0)}
    # A little higher with a wide interval is not better.
    again.strength.add(Measurement(2010.0, 1500.0, 2500.0, 200, "", {}, 9.0))
    assert again.strength.best == 3


def test_scores_and_their_intervals() -> None:
    measured = Measurement(
        1010, 950, 1070, 24, "", {"hungry": [0, 0, 4, 0, 4], "tree": [4] + [0] * 4}, cpu_minutes=1.5
    )
    results = measured.to_metrics()
    assert 0.4 < results["score_low"]["hungry"] < 0.75 < results["score_high"]["hungry"] < 1
    assert results["score_low"]["tree"] == 0.0
    assert 0.2 < results["score_high"]["tree"] < 0.9
    assert results["score"] == {"hungry": 0.75, "tree": 0.0}
    assert results["elo_cpu_minutes"] == 1.5
    history = StrengthHistory([measured], 0, 600.0, 30.0)
    table = history.score_table()
    assert re.search(r"1010.* \(950.* 1070\).* 24", table)
    assert table.index("hungry") < table.index("tree")
    assert "1.5 of 10.0 CPU minutes (1 measurement);" in table
    assert re.search(r"5\.0%.* CPU", table)


@pytest.mark.parametrize(
    ("native", "said"), [(True, "1581 .* with b"), (False, "1432 .* without b")]
)
def test_the_published_elo_is_that_of_processors_like_this_one(
    monkeypatch: pytest.MonkeyPatch, native: bool, said: str
) -> None:
    monkeypatch.setattr(q_network, "_has_native_bfloat16", lambda device: native)
    assert re.search(said, battlesnake_launcher._published_elo_line())


@pytest.mark.parametrize(
    ("algorithm", "given", "default"),
    [("DISTIL", {}, True), ("DISTIL", {"board_size": 7}, False), ("PPO", {}, False)],
)
def test_the_published_elo_follows_only_the_default_training(
    algorithm: str, given: dict[str, Any], default: bool
) -> None:
    completion = BattlesnakeHyperparameters.complete({})
    hyperparameters: Any = completion.hyperparameters_class(**{**completion.presets, **given})
    config = algorithms.configure(algorithm, hyperparameters.env_config)
    assert battlesnake_launcher._is_default_training(config) is default


def test_all_that_is_reported_has_a_column() -> None:
    numbers = set(ladder_evaluator.LADDER_COLUMNS.values())
    measured = Measurement(1, 0, 2, 2, "", {"hungry": [0, 0, 1, 0, 0]}, cpu_minutes=1.0)
    history = StrengthHistory([measured], 0, 60.0, 3.0)
    assert {name for name, _ in flatten(history.to_metrics())} <= numbers


def test_the_clock_counts_what_was_started() -> None:
    player = LadderPlayer()
    player.start_ladder(0.0)

    def clock() -> float:
        player._read_clock()
        return player.strength.training_seconds

    before, own = clock(), time.process_time()
    busy = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        running = clock()
        process.communicate(b"\n")
    assert running - before >= 0.45
    assert clock() >= running
    assert time.process_time() - own < 0.4


# -- Algorithms ------------------------------------------------------------------------------------


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every iteration has time for two pairs of games, which seem to cost nothing."""
    place = ladder_evaluator.place_policy

    def place_for_nothing(*words: Any, **told: Any) -> tuple[Placement, float]:
        return place(*words, **(told | {"games": 4}))[0], 0.0

    monkeypatch.setattr(ladder_evaluator, "MIN_MEASUREMENT_S", 0.0)
    monkeypatch.setattr(ladder_evaluator, "MIN_BEST_GAMES", 4)
    monkeypatch.setattr(ladder_evaluator, "place_policy", place_for_nothing)


def test_dqn_tells_its_elo_and_exports_its_best(
    at_once: None, small_config: Any, tmp_path: Path
) -> None:
    config = small_config("DQN", action_mask="none")
    with built(config) as algorithm:
        results = algorithm.train()
        assert results["elo_low"] < results["elo"] < results["elo_high"]
        assert results["elo_games"] == 4
        assert set(results["score"]) <= {rung.name for rung in ladder_evaluator.fast_ladder().rungs}
        played = algorithm.best_weights
        boards = np.random.default_rng(0).integers(256, size=(3, 10, 5, 5), dtype=np.uint8)
        expected = algorithm._policy_from_weights(played)(boards)
        # From now on nothing is better.
        algorithm.strength.measurements[0] = Measurement(5000, 4999, 5001, 4, "", {}, cpu_minutes=0)
        for _ in range(2):
            algorithm.train()
        assert len(algorithm.strength.measurements) == 3
        facts = {"identity": BattlesnakeLauncher().checkpoint_identity(algorithm.config),
                 "env_config": algorithm.config.env_config}  # fmt: skip
        kept = checkpoints.CheckpointFolder(tmp_path).save(algorithm, facts)
    best, _ = policy_loader.load_score_fn(kept)
    np.testing.assert_allclose(best(boards), expected, rtol=1e-5)
    last = policy_loader.as_score_fn(policy_loader.PolicyCheckpoint(kept, last=True).load_network())
    assert not np.allclose(last(boards), expected, rtol=1e-5)
    metadata = {}
    for last_one in (False, True):
        target = export_checkpoint(kept, tmp_path / f"{last_one}.onnx", last_one)
        metadata[last_one] = json.loads(target.with_suffix(".json").read_text())["strength"]
        same = np.allclose(policy_loader.load_score_fn(target)[0](boards), expected, rtol=1e-4)
        assert same != last_one
    assert metadata[False]["elo"] == 5000
    assert metadata[True] is None

    with built(config.copy(copy_frozen=False)) as again:
        again.restore_from_path(str(kept))
        assert again.strength == algorithm.strength
        assert again.train()["elo_best"] == 5000
        again.save_to_path(str(tmp_path / "again"))
        strongest = policy_loader.PolicyCheckpoint(tmp_path / "again").load_best_weights()
        np.testing.assert_array_equal(
            strongest["advantage.weight"],  # type: ignore[index]
            played["advantage.weight"],
        )


def test_damaged_best_weights_are_told_of(at_once: None, small_config: Any, tmp_path: Path) -> None:
    with built(small_config("DQN")) as algorithm:
        algorithm.train()
        facts = {"identity": BattlesnakeLauncher().checkpoint_identity(algorithm.config)}
        kept = checkpoints.CheckpointFolder(tmp_path).save(algorithm, facts)
    np.savez(kept / "best.npz", strange=np.zeros(3))
    with pytest.raises(checkpoints.CheckpointError, match="weights"):
        policy_loader.PolicyCheckpoint(kept).load_network()
    (kept / "best.npz").write_bytes(b"PK nonsense")
    with pytest.raises(checkpoints.CheckpointError, match="weights"):
        policy_loader.PolicyCheckpoint(kept).load_network()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "action_mask"), [("APEX", "fatal"), ("RLLIB_PPO", "fatal"), ("RLLIB_PPO", "none")]
)
def test_the_other_algorithms_tell_theirs(
    at_once: None, small_config: Any, name: str, action_mask: str, tmp_path: Path
) -> None:
    if name == "APEX":
        config = small_config(name)
    else:
        config = algorithms.configure(name, SMALL | {"action_mask": action_mask})
        config.env_runners(num_env_runners=1, num_envs_per_env_runner=2, rollout_fragment_length=16)
        config.training(train_batch_size_per_learner=64, minibatch_size=32, num_epochs=1)
        config.rl_module(model_config=TINY)
    config.debugging(log_level="ERROR", seed=3)
    with built(config) as algorithm:
        results = algorithm.train()
        if name == "RLLIB_PPO":
            learned = results["learners"][SHARED_MODULE_ID]
            assert learned["num_module_steps_trained_lifetime"] > 0
            games = results["env_runners"]
            # The reward is 1 per turn; the sum over both snakes would be larger.
            assert 0 < games["episode_return_mean"] <= games["episode_len_mean"]
            assert games["episode_return_max"] <= games["episode_len_max"]
        assert 0 < results["elo_games"] <= 4
        algorithm.conclude(results)
        assert results["elo_cpu_minutes"] > 0
        algorithm.save_to_path(str(tmp_path / "kept"))
        assert policy_loader.PolicyCheckpoint(tmp_path / "kept").load_best_weights()


def test_the_command_writes_it_everywhere_and_ends_with_a_table(
    at_once: None,
    ray_with_games: None,
    run_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert train(run_folder, "--num-iters", "2") == 0
    # What another program took of the processor meanwhile is said of a training alone.
    out = re.sub("^the machine was busy.*\n", "", capsys.readouterr().out, flags=re.MULTILINE)
    table = out[out.index("strength: ") :]
    assert "Elo (" in table
    assert "against" in table
    assert "3 measurements" in table
    run = run_folder / "DQN-5x5-2"
    curve = rows(run)
    assert all(float(row["elo_low"]) < float(row["elo"]) for row in curve)
    scores = {name for name in curve[0] if name.startswith("score_")}
    assert len(scores) == 3 * len(ladder.RUNG_NAMES)
    assert any(row[name] for row in curve for name in scores)
    assert float(curve[-1]["cpu_minutes"]) > float(curve[0]["cpu_minutes"])
    # The last iteration is measured twice: as any, and at the end.
    history = StrengthHistory.load(sorted((run / "checkpoints").iterdir())[-1])
    assert len(history.measurements) == 3
    assert float(curve[-1]["elo"]) == history.measurements[-1].elo
    events = b"".join(path.read_bytes() for path in (run / "tensorboard").iterdir())
    assert b"elo_low" in events
    assert b"score/" in events
    # Again: nothing is trained, and the table stands there again.
    assert train(run_folder, "--num-iters", "2") == 0
    assert capsys.readouterr().out.endswith(table)

    assert evaluate_command.main([str(run), "--games", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["games"] == 4
    assert told["ci_low"] < told["elo"] < told["ci_high"]
    assert sum(rung["games"] for rung in told["rungs"]) == 4
    assert evaluate_command.main([str(run), "--games", "4"]) == 0
    assert "4 duels" in capsys.readouterr().out
    assert evaluate_command.main([str(run), "--opponents", "random", "--games", "4", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["wins"] + told["draws"] + told["losses"] == 4
    assert told["score"] == (told["wins"] + told["draws"] / 2) / 4
    assert told["opponents"] == ["random"]
    for wrong in ("nobody", "hungry@5"):
        with pytest.raises(SystemExit):
            evaluate_command.main([str(run), "--opponents", wrong])
        assert wrong.split("@")[0] in capsys.readouterr().err
    shutil.rmtree(run)
