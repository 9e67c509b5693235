"""The batched runner: what it plays, counts and takes over."""

import functools
import math
from typing import Any

import numpy as np
import pytest
from ray.rllib.callbacks.callbacks import RLlibCallback

from battlesnake_rl.mabs.base.game_metrics import GameStatistics, RecentGames
from battlesnake_rl.mabs.dqn.dqn import DQNEnvRunner, _choose_moves
from battlesnake_rl.mabs.envs.env_factory import make_vector_env

pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def runner(small_config: Any) -> Any:
    return DQNEnvRunner(config=small_config("DQN"), worker_index=0, num_env_runners=0)


def test_callbacks_may_be_made_by_a_function(small_config: Any) -> None:
    class Listener(RLlibCallback):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            self.name = name

        def on_episode_start(self, *, env_runner: Any, **_: Any) -> None:
            env_runner.started = self.name

    config = small_config("DQN").callbacks(functools.partial(Listener, "mine"))
    runner: Any = DQNEnvRunner(config=config, worker_index=0, num_env_runners=0)
    runner.sample()
    assert runner.started == "mine"


def test_moves_are_the_best_allowed_or_any_allowed(ray_session: None) -> None:
    random = np.random.default_rng(0)
    q_values = random.normal(size=(3000, 2, 4)).astype(np.float32)
    mask = random.random((3000, 2, 4)) < 0.6
    mask[~mask.any(-1)] = True
    exploring = np.zeros((3000, 2), dtype=np.bool_)
    exploring[:, 1] = True
    moves = _choose_moves(q_values, mask, exploring, random)
    assert np.take_along_axis(mask, moves[..., None].astype(int), -1).all()
    best = np.where(mask, q_values, -np.inf).argmax(-1)
    np.testing.assert_array_equal(moves[:, 0], best[:, 0])
    # Exploring: each allowed move equally often.
    all_allowed = mask[:, 1].all(-1)
    counts = np.bincount(moves[all_allowed, 1], minlength=4) / all_allowed.sum()
    np.testing.assert_allclose(counts, 0.25, atol=0.07)


def test_random_actions_are_explored_in_every_game(
    runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    play, shares = runner._play, []

    def watched(turns: int, epsilon: Any) -> Any:
        shares.append(epsilon)
        return play(turns, epsilon)

    monkeypatch.setattr(runner, "_play", watched)
    for options in ({"explore": False}, {"explore": False, "random_actions": True}):
        runner.sample(**options)
    assert [set(epsilon) for epsilon in shares] == [{0}, {1}]


def test_counters_and_statistics_agree_with_the_fragments(runner: Any) -> None:
    fragments = [runner.sample()[0] for _ in range(20)]
    metrics = runner.get_metrics()
    agent_steps = sum(fragment.agent_steps() for fragment in fragments)
    env_steps = sum(fragment.env_steps() for fragment in fragments)
    assert metrics["num_agent_steps_sampled_lifetime"]["default_agent"].peek() == agent_steps
    assert metrics["num_env_steps_sampled_lifetime"].peek() == env_steps
    assert runner.num_env_steps_sampled_lifetime == env_steps
    assert env_steps < agent_steps <= 2 * env_steps
    # Survival rewards: every move but the last of each dead snake is worth 1.
    ended = sum(int(fragment.columns["terminateds"].sum()) for fragment in fragments)
    assert ended > 0
    games = metrics["num_episodes"].peek()
    assert 0 < games <= 20 * 8 * 4
    assert 0 < metrics["episode_return_mean_sum"].peek() <= agent_steps


def test_statistics_equal_a_count_by_hand(ray_session: None) -> None:
    vector = make_vector_env(3, {"num_snakes": 2, "width": 5, "height": 5, "action_mask": "none"})
    statistics = GameStatistics(3, 2)
    random = np.random.default_rng(2)
    vector.reset(seed=1)
    lengths: list[int] = []
    returns: list[float] = []
    hits = 0
    running = np.zeros(3)
    for _ in range(60):
        _, rewards, _, _, infos = vector.step(random.integers(0, 4, (3, 2)))
        assert vector.last_turn is not None
        statistics.update(vector.last_turn, infos["acted"], rewards, infos)
        running[infos["reset"]] = 0
        running += rewards.sum(-1)
        for game in np.flatnonzero(~infos["alive"].any(-1) & infos["acted"].any(-1)):
            lengths.append(int(infos["turn"][game]))
            returns.append(float(running[game]) / 2)
            hits += int((infos["cause"][game] == 1).sum())
    results: dict[str, Any] = dict(statistics.drain())
    RecentGames(0).average(results)
    assert len(lengths) > 20
    assert results["num_episodes"] == len(lengths)
    assert results["episode_len_mean"] == pytest.approx(np.mean(lengths))
    assert results["episode_return_mean"] == pytest.approx(np.mean(returns))
    assert (results["episode_len_min"], results["episode_len_max"]) == (min(lengths), max(lengths))
    assert results["episode_return_min"] == pytest.approx(min(returns))
    assert results["episode_return_max"] == pytest.approx(max(returns))
    assert results["Snake_hit_wall"] == pytest.approx(hits / len(lengths))
    assert results["Snake_hit_wall"] > 0
    empty: dict[str, Any] = dict(statistics.drain())
    assert empty["num_episodes"] == 0
    RecentGames(0).average(empty)
    assert np.isnan(empty["episode_len_mean"])
    assert np.isnan(empty["episode_len_max"])


def test_kills_of_opponents_count_but_not_kills_by_opponents() -> None:
    vector = make_vector_env(50, {"num_snakes": 2, "width": 5, "height": 5, "action_mask": "none"})
    statistics = GameStatistics(50, 2)
    random = np.random.default_rng(2)
    vector.reset(seed=1)
    kills = np.zeros(2)
    for _ in range(30):
        _, rewards, _, _, infos = vector.step(random.integers(0, 4, (50, 2)))
        assert vector.last_turn is not None
        ours = infos["acted"] & [True, False]
        statistics.update(vector.last_turn, ours, rewards, infos)
        for cause in ("head-collision", "snake-collision"):
            kills += vector.last_turn.kills(cause).sum(0)
    assert statistics.drain()["Killed_another_snake_sum"] == kills[0] != kills[1]


def test_few_games_are_averaged_with_those_of_iterations_before(ray_session: None) -> None:
    recent = RecentGames(min_games=10)
    most: list[float] = []

    def mean(games: int, length: float) -> float:
        results = {"num_episodes": games, "episode_len_mean_sum": games * length}
        if games:
            results["episode_len_max"] = length + 1
        recent.average(results)
        assert results["num_episodes"] == games
        most.append(results["episode_len_max"])
        return results["episode_len_mean"]

    assert np.isnan(mean(0, 0))
    assert mean(4, 50) == 50
    assert mean(4, 100) == 75
    assert mean(0, 0) == 75
    # These and the four before make ten: the first four go.
    assert mean(6, 50) == 70
    assert mean(25, 30) == 30
    assert mean(5, 60) == 35
    assert np.isnan(most[0])
    assert most[1:] == [51, 101, 101, 101, 31, 61]


def test_an_iteration_without_a_fragment_leaves_no_gap_in_the_curves() -> None:
    recent = RecentGames(min_games=10)
    for games, length in ((4, 50.0), (math.nan, math.nan), (4, 100.0), (10, 30.0)):
        results = {"num_episodes": games, "episode_len_mean_sum": games * length}
        recent.average(results)
    assert results["episode_len_mean"] == 30
    assert len(recent.iterations) == 1


def test_older_weights_are_not_taken_over(runner: Any) -> None:
    def state(number: int, fill: float) -> dict[str, Any]:
        weights = runner.get_state()["rl_module"]
        for array in weights["default_policy"].values():
            array[...] = fill
        return {"rl_module": weights, "weights_seq_no": number}

    def held() -> float:
        weights = runner.get_state()["rl_module"]["default_policy"]
        return float(next(iter(weights.values())).flat[0])

    for number, fill, expected in [(5, 1.0, 1.0), (4, 2.0, 1.0), (5, 3.0, 1.0), (6, 4.0, 4.0),
                                   (0, 5.0, 5.0), (6, 6.0, 5.0)]:  # fmt: skip
        runner.set_state(state(number, fill))
        assert held() == expected


def test_epsilon_follows_the_schedule(runner: Any) -> None:
    runner.config.epsilon = [(0, 1.0), (1000, 0.0)]
    np.testing.assert_allclose(runner._get_epsilons(), 1.0)
    runner.set_state({"num_env_steps_sampled_lifetime": 750})
    np.testing.assert_allclose(runner._get_epsilons(), 0.25)
    runner.config.epsilon = 0.3
    np.testing.assert_allclose(runner._get_epsilons(), 0.3)


def test_runners_of_a_grown_cluster_share_the_range_of_epsilon(
    runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner.config, "epsilon_per_game", [0.4, 7.0])
    monkeypatch.setattr(runner, "worker_index", 3)
    monkeypatch.setattr(runner, "num_workers", 3)
    assert runner._get_epsilons().min() == pytest.approx(0.4**8)


def test_greedy_play_repeats_itself(runner: Any) -> None:
    moves = []
    for _ in range(2):
        runner._random = np.random.default_rng(3)
        fragment = runner.sample(explore=False, force_reset=True, num_timesteps=40)[0]
        assert fragment.num_env_steps <= 40
        moves.append(fragment.columns["actions"])
    np.testing.assert_array_equal(moves[0], moves[1])


def test_a_number_of_games_can_be_asked_for(runner: Any) -> None:
    runner.sample(num_episodes=30)
    assert 30 <= runner.get_metrics()["num_episodes"].peek() < 30 + 4 * 8
