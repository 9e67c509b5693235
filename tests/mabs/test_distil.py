"""DISTIL: labels, the memory, turned boards, learning, refusals, and PPO that goes on from it."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ray
import torch

from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.rules import MOVES, Game
from battlesnake_heuristics.search.evaluation import load_builtin, score_to_probability
from battlesnake_heuristics.search.search import Search
from battlesnake_rl.mabs.base.fragment import Fragment
from battlesnake_rl.mabs.distil.distil import MAX_REGRET
from battlesnake_rl.mabs.policy import symmetry_transforms, warm_start
from battlesnake_rl.mabs.policy.actor_critic import _PolicyNetwork
from battlesnake_rl.mabs.policy.q_network import TRUNK_DEFAULTS, DuelingQNetwork
from battlesnake_rl.mabs.ppo.ppo import KICKSTART_PROBS
from battlesnake_rl.mabs.settings.algorithm_settings import DISTILSettings
from sagemaker_rl.runs.training_run import TrainingRun
from tests.algorithms import built
from tests.mabs.conftest import TINY, small_policy
from tests.processes import PATIENCE

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def made(ray_with_games: None) -> Callable[..., Any]:
    """A function that makes a configuration which trains in seconds."""
    return make


def make(name: str = "DISTIL", **env_config: Any) -> Any:
    return small_policy(name, **{"observation": "territory"} | env_config)


@pytest.mark.parametrize(
    ("snakes", "observation"), [(2, "territory"), ([2, 3], "territory"), (2, "facing")]
)
def test_labels_are_what_the_search_says_of_each_position(
    made: Any, snakes: Any, observation: str
) -> None:
    config = made(action_mask="fatal", num_snakes=snakes, observation=observation)
    config.env_runners(rollout_fragment_length=1)
    config.symmetry_augmentation = observation != "facing"
    config.expert_action_fraction = 0.0
    search = Search(evaluation=load_builtin(), nodes=100, exact=True)
    with built(config) as algorithm:
        runner = algorithm.env_runner
        for _ in range(12):
            runner.sample()
        observations, mask, alive, _ = runner._position
        counts = [len(runner.env.games.state(game).snakes) for game in range(8)]
        assert counts == [2, 2 if snakes == 2 else 3] * 4
        rules = replace(runner.env.game, seed=UNKNOWN_SEED)
        wanted = []
        for game, seat in np.argwhere(alive).tolist():
            board = Board.from_state(runner.env.games.state(game), rules)
            board.you_id = board.snakes[seat].id
            scores = search(board).scores
            facing = np.full(4, runner.env.games.facing[game, seat])
            moves = [
                MOVES[m] for m in runner.env.observation.absolute_actions(np.arange(4), facing)
            ]
            allowed = {
                a: scores[m] for a, m in enumerate(moves) if mask[game, seat, a] and m in scores
            }
            if allowed:
                best = max(allowed.values())
                row = [
                    min(best - allowed[a], MAX_REGRET) if a in allowed else MAX_REGRET
                    for a in range(4)
                ]
                wanted.append(
                    (observations[game, seat].copy(), row, 2 * score_to_probability(best) - 1)
                )
        (labels,) = runner.sample()
    assert len(wanted) > 8
    frames, regrets, chances = (np.array(one) for one in zip(*wanted, strict=True))
    np.testing.assert_array_equal(labels.columns["obs"], frames)
    np.testing.assert_allclose(labels.columns["regrets"], regrets, rtol=1e-3)
    np.testing.assert_allclose(labels.columns["value_targets"], chances, rtol=1e-5)
    assert (labels.columns["regrets"][~labels.columns["action_mask"]] == MAX_REGRET).all()


@pytest.mark.parametrize("snakes", [2, 4, 8])
def test_the_smallest_search_values_all_moves(ray_session: None, snakes: int) -> None:
    fewest = DISTILSettings.__dataclass_fields__["expert_nodes"].metadata["bounds"]["minimum"]
    small, large = (
        Search(evaluation=load_builtin(), nodes=nodes, exact=True) for nodes in (fewest, 500)
    )
    for seed in range(1, 6):
        board = Board.new(7, 7, snakes, game=Game(seed=seed))
        for snake in board.snakes:
            board.you_id = snake.id
            assert small.move_scores(board).keys() == large.move_scores(board).keys()


def test_in_games_that_the_search_leads_its_best_move_is_played(made: Any) -> None:
    config = made().env_runners(rollout_fragment_length=1)
    config.expert_action_fraction = 0.5
    with built(config) as algorithm:
        runner, played = algorithm.env_runner, []
        step = runner._step

        def noted(actions: Any) -> Any:
            played.append(actions.copy())
            return step(actions)

        runner._step = noted
        runner.sample()
        alive = runner._position[2].copy()
        (labels,) = runner.sample()
    led = np.nonzero(alive)[0] < 4
    assert len(labels.columns["regrets"]) == len(led)
    chosen = played[-1][alive]
    regrets = np.take_along_axis(labels.columns["regrets"], chosen[:, None].astype(int), 1)[:, 0]
    assert (regrets[led] == 0).all()
    assert (regrets[~led] > 0).any()


def test_labels_turn_with_their_boards(made: Any) -> None:
    with built(made()) as algorithm:
        (labels,) = algorithm.env_runner.sample()
        learner, seen = algorithm.learner_group._learner, []

        def noted(batch: Any) -> Any:
            seen.append(batch)
            raise ZeroDivisionError

        learner.module.forward_train = noted
        columns = {
            "obs": labels.columns["obs"],
            "new_obs": labels.columns["obs"],
            "actions": labels.columns["regrets"].argmin(-1),
            "mask": labels.columns["action_mask"],
        }
        for symmetry in range(8):
            learner._random = SimpleNamespace(integers=lambda n, symmetry=symmetry: symmetry)
            with pytest.raises(ZeroDivisionError):
                learner._train_on(labels.columns)
            (batch,) = seen.pop().values()
            wanted = symmetry_transforms.transform_batch(
                columns, symmetry, ["mask"], learner._observation
            )
            np.testing.assert_array_equal(batch["obs"], wanted["obs"])
            np.testing.assert_array_equal(batch["action_mask"], wanted["mask"])
            regrets = batch["regrets"].numpy()
            assert (np.take_along_axis(regrets, wanted["actions"][:, None], 1) == 0).all()


def test_the_memory_keeps_the_newest(made: Any) -> None:
    with built(made()) as algorithm:
        learner = algorithm.learner_group._learner
        for first in range(0, 1300, 130):
            numbers = np.arange(first, first + 130, dtype=np.float32)
            regrets = np.zeros((130, 4), np.float16)
            columns: dict[str, Any] = {"regrets": regrets, "value_targets": numbers}
            learner.add([Fragment(columns, 130, 130)])
        kept = learner._label_buffer["value_targets"]
    np.testing.assert_array_equal(np.sort(kept), np.arange(800, 1300))


def test_batches_prefer_labels_with_a_high_expected_regret(made: Any) -> None:
    with built(made().training(lr=1e-9, symmetry_augmentation=False)) as algorithm:
        learner, (labels,) = algorithm.learner_group._learner, algorithm.env_runner.sample()
        learner.learn([labels], 0)
        columns = labels.columns
        logits, _ = learner.module["default_policy"].unwrapped().evaluate(columns["obs"])
        weights = np.exp(logits - logits.max(-1, keepdims=True)) * columns["action_mask"]
        regrets = (weights * columns["regrets"]).sum(-1) / weights.sum(-1)
        priorities = learner._priorities[: len(regrets)]
        trained = priorities != 1
        wanted = np.clip(regrets[trained], 0.1, 20)
        np.testing.assert_allclose(priorities[trained], wanted, rtol=0.1)
        assert 0 < trained.mean() < 1
        learner._priorities[:500] = [20] * 50 + [0.1] * 450
        drawn, weights = map(
            np.concatenate, zip(*(learner._draw_labels(500) for _ in range(1000)), strict=True)
        )
        assert weights.dtype == np.float32
        assert (drawn < 50).mean() > 0.3, "ten percent of the labels"
        assert (weights * (drawn < 50)).mean() == pytest.approx(0.1, rel=0.1)
        assert (weights * (drawn >= 50)).mean() == pytest.approx(0.9, rel=0.1)


def test_metrics_are_those_of_uniform_batches(made: Any) -> None:
    with built(made().training(lr=1e-9, symmetry_augmentation=False)) as algorithm:
        learner, (labels,) = algorithm.learner_group._learner, algorithm.env_runner.sample()
        for _ in range(40):
            learner.learn([labels], 0)
        reported = torch.stack(learner._pending_metrics).mean(0)
        learner._pending_metrics.clear()
        learner._train_on(labels.columns | {"weights": np.ones(labels.num_agent_steps, np.float32)})
        (uniform,) = learner._pending_metrics
        assert reported.numpy() == pytest.approx(uniform.numpy(), rel=0.05)


@pytest.mark.parametrize("runners", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_resumed_run_first_fills_its_memory(made: Any, tmp_path: Path, runners: int) -> None:
    """Updates on the first fragment alone would fit the network to openings."""
    config = made().env_runners(num_env_runners=runners)
    with built(config.copy(copy_frozen=False)) as algorithm:
        for _ in range(3):
            algorithm.train()
        algorithm.save_to_path(str(tmp_path / "checkpoint"))
        steps = algorithm.num_env_steps_sampled
    with built(config) as algorithm:
        algorithm.restore_from_path(str(tmp_path / "checkpoint"))
        learner = algorithm.learner_group._learner
        before = learner._weights_seq_no
        assert algorithm._learning_starts == 2 * steps, "no longer than it has trained"
        while algorithm.num_env_steps_sampled < 2 * steps:
            assert learner._weights_seq_no == before
            algorithm.training_step()
        assert learner._num_added > 2 * config.minibatch_size
        algorithm.training_step()
        assert learner._weights_seq_no > before


def test_it_comes_to_prefer_what_the_search_prefers(made: Any) -> None:
    with built(made(width=7, height=7).training(lr=3e-3)) as algorithm:
        results = [algorithm.train()["learners"]["default_policy"] for _ in range(30)]
    losses, agreements = (
        [one[name] for one in results] for name in ("policy_loss", "expert_agreement")
    )
    assert np.mean(losses[-5:]) < 0.85 * losses[0]
    assert np.mean(agreements[-5:]) > agreements[0] + 0.05


def test_what_runners_bring_at_once_is_learned_from_as_one_fragment(made: Any) -> None:
    updates = []
    for count in (1, 3):
        with built(made()) as algorithm:
            learner, (labels,) = algorithm.learner_group._learner, algorithm.env_runner.sample()
            for _ in range(2):
                learner.learn([labels] * count, 10_000)
            updates.append(len(learner._pending_metrics))
            report = learner.report()["default_policy"]
            assert report["replay_ratio"].peek() == pytest.approx(16 / count, rel=0.1)
            assert learner._num_added == 2 * count * len(labels.columns["regrets"])
    assert updates[0] == updates[1] == 2 * 16 * len(labels.columns["regrets"]) // 32


@pytest.mark.parametrize("end", [1, 160])
def test_the_learning_rate_falls_with_the_run_or_with_env_steps(made: Any, end: int) -> None:
    with built(made().training(lr=[[0, 0.01], [end, 0.002]])) as algorithm:
        learner, rates, positions = algorithm.learner_group._learner, [], []
        (optimizer,) = learner._named_optimizers.values()
        for progress in (0.0, 0.5, 1.0):
            algorithm.run_progress = progress
            algorithm.train()
            rates.append(optimizer.param_groups[0]["lr"])
            positions.append(progress if end == 1 else algorithm.num_env_steps_sampled / end)
    assert positions[1] < 1 <= positions[2]
    assert rates == pytest.approx([max(0.01 - 0.008 * position, 0.002) for position in positions])


def test_evaluation_plays_games_without_the_search(made: Any) -> None:
    with built(made().evaluation(evaluation_interval=1, evaluation_duration=3)) as algorithm:
        games = algorithm.train()["evaluation"]["env_runners"]
    assert games["num_episodes"] == 3
    assert games["episode_len_mean"] > 0


@pytest.fixture(scope="module")
def asked(ray_with_games: None) -> Iterator[Any]:
    """An algorithm with two runners, which start in seconds."""
    config = make().env_runners(num_env_runners=2)
    with built(config.reporting(min_sample_timesteps_per_iteration=300)) as algorithm:
        yield algorithm


def test_several_runners_ask_for_one_learner(asked: Any) -> None:
    results = [asked.train() for _ in range(2)][-1]
    learned = results["learners"]["default_policy"]["num_module_steps_trained_lifetime"]
    count = results["env_runners"]["num_agent_steps_sampled_lifetime"]["default_agent"]
    assert 0 < learned <= 16 * count + 64
    assert count > 600


def test_runners_go_on_asking_while_the_learner_learns(asked: Any) -> None:
    for _ in range(2):
        asked._collect_fragments()
    assert list(asked._requests.in_flight.values()) == [4, 4]


def test_an_iteration_waits_for_slow_runners_and_says_so(
    asked: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("battlesnake_rl.mabs.base.batched_algorithm.WAIT_TIMEOUT_S", 0.001)
    monkeypatch.setattr(asked._requests, "_stall_timeout_s", 0.01)
    asked.env_runner_group.foreach_env_runner_async(lambda _: time.sleep(2), tag="slow")
    warning = re.compile(r"0\.01.* \(sample_timeout_s\)")
    for _ in range(20):  # Each runner may have made four fragments before, on a busy machine.
        if not warning.search(caplog.text):
            asked.train()
    assert warning.search(caplog.text)


def test_the_learner_waits_for_the_first_fragment_alone(
    asked: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("battlesnake_rl.mabs.base.batched_algorithm.WAIT_TIMEOUT_S", 60)
    group = asked.env_runner_group
    slow = group.healthy_worker_ids()[0]
    released = tmp_path / "released"

    def sleep(runner: Any) -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and not released.exists():
            time.sleep(0.05)

    group.foreach_env_runner_async(sleep, tag="slow", remote_worker_ids=[slow])
    before = [info for info, (runner, _) in asked._requests._pending.items() if runner == slow]
    ray.wait(before, num_returns=len(before))
    asked._collect_fragments()
    began = time.monotonic()
    assert asked._collect_fragments()
    assert time.monotonic() - began < 30
    released.touch()


def test_a_killed_runner_restarts_without_the_object_store(
    made: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ray warns about actors whose restart needs an argument in the object store."""
    monkeypatch.setattr("battlesnake_rl.mabs.base.batched_algorithm.HEALTH_CHECK_INTERVAL_S", 1.0)
    config = made().env_runners(num_env_runners=1)
    config.fault_tolerance(restart_failed_env_runners=True)
    algorithm = TrainingRun.build_algorithm(SimpleNamespace(config=config))  # type: ignore[arg-type]
    try:
        group = algorithm.env_runner_group
        (lost,) = group.foreach_env_runner(lambda _: os.getpid(), local_env_runner=False)
        os.kill(lost, signal.SIGKILL)
        deadline = time.monotonic() + PATIENCE
        played = 0
        while not played and time.monotonic() < deadline:
            algorithm.train()
            pids = group.foreach_env_runner(lambda _: os.getpid(), local_env_runner=False)
            if pids and pids[0] != lost:
                played = algorithm.train()["env_runners"]["num_env_steps_sampled"]
        assert played > 0
    finally:
        algorithm.stop()
    assert "max_restarts" not in capfd.readouterr().err


def test_ppo_goes_on_from_it_with_policy_and_value_and_stays_near_at_first(
    made: Any, tmp_path: Path
) -> None:
    with built(made()) as algorithm:
        for _ in range(3):
            algorithm.train()
        module = algorithm.learner_group._learner.module["default_policy"]
        value = {name: one.clone() for name, one in module.value.state_dict().items()}
        policy = algorithm._get_export_weights()
    weights = policy | {f"value.{name}": one.numpy() for name, one in value.items()}
    config = made("PPO").training(kickstart_coeff=[[0, 0.5], [100, 0.0]])
    config.start_from = str(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm_start, "_load_policy_weights", lambda path: weights)
        with built(config) as algorithm:
            patch.undo()  # A learner on another machine cannot read the policy.
            learner = algorithm.learner_group._learner
            begun = learner.module["default_policy"]
            for name, one in begun.value.state_dict().items():
                assert torch.equal(one, value[name])
            (rollout,) = algorithm.env_runner.sample()
            learner._kickstart_coeff = 0.5  # Its value at env step 0.
            columns = learner._to_batch(rollout)
            logits = np.where(
                rollout.columns["action_mask"],
                begun.evaluate(rollout.columns["obs"])[0],
                -np.inf,
            )
            likely = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
            np.testing.assert_allclose(columns[KICKSTART_PROBS], likely, atol=1e-2)
            for _ in range(5):
                learner.learn([rollout], 0)
            again = learner._to_batch(rollout)
            np.testing.assert_array_equal(columns[KICKSTART_PROBS], again[KICKSTART_PROBS])
            learner.learn([rollout], 100)
            assert KICKSTART_PROBS not in learner._to_batch(rollout)


def test_ppo_begins_with_the_moves_of_a_policy_by_dqn(made: Any) -> None:
    torch.manual_seed(1)
    settings: dict[str, Any] = {**TRUNK_DEFAULTS, **TINY}
    theirs, ours = (
        DuelingQNetwork((16, 7, 7), **settings),
        _PolicyNetwork((16, 7, 7), 4, **settings),
    )
    weights = {name: one.numpy() for name, one in theirs.state_dict().items()}
    warm_start._load_into_network(ours, weights, Path("policy.onnx"))
    frames = torch.randint(0, 256, (50, 16, 7, 7), dtype=torch.uint8)
    assert torch.equal(theirs(frames).argmax(-1), ours(frames).argmax(-1))
