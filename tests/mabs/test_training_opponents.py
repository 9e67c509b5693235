"""Who sits in training games beside the learner, and that nobody learns from them."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from battlesnake_gym.env import opponent_names
from battlesnake_gym.env.past_selves import MAX_PAST_SELVES, PastSelves
from battlesnake_gym.rules import MOVES
from battlesnake_rl.mabs import algorithms
from battlesnake_rl.mabs.base import batched_algorithm
from battlesnake_rl.mabs.dqn.dqn import DQNEnvRunner
from battlesnake_rl.mabs.envs.env_factory import make_vector_env, sample_opponents
from battlesnake_rl.mabs.envs.training_env_config import env_options
from battlesnake_rl.mabs.policy.policy_loader import greedy_policy
from tests.algorithms import built
from tests.mabs.conftest import SMALL
from tests.server.conftest import write_policy

pytestmark = pytest.mark.filterwarnings("default")

SHARES = {"past": 0.4, "straight": 0.3}


def seated(
    shares: dict[str, float], games: int = 400, past: Sequence[Any] = (None,)
) -> tuple[Any, Any, Any]:
    """Opponents in the first games of a batch, the games, and their infos.

    Those of ``past`` are functions from boards to values.
    """
    selves = PastSelves(greedy_policy)
    for function in past:
        selves.add(function)

    vector = make_vector_env(games, SMALL | {"num_snakes": 3, "width": 7, "height": 7})
    _, infos = vector.reset(seed=2)
    opponents = sample_opponents(vector, shares, np.random.default_rng(1), selves)
    opponents.draw_seats(infos["reset"])
    return opponents, vector, infos


def test_seats_are_drawn_and_the_learner_always_has_one() -> None:
    opponents, _, _ = seated(SHARES)
    assert (~opponents.occupied).any(-1).all()
    # Without the games in which the learner was given a seat (0.7 ** 3) it would have 0.3.
    assert (~opponents.occupied).mean() == pytest.approx(0.3 + 0.7**3 / 3, abs=0.04)
    assert opponents.occupied.mean(0).std() < 0.04  # no seat is special
    assert not seated({})[0].occupied.any()


def test_only_games_that_begin_are_seated_anew() -> None:
    opponents, _, _ = seated(SHARES)
    before = opponents.occupied.copy()
    begin = np.arange(len(before)) % 2 == 0
    opponents.draw_seats(begin)
    np.testing.assert_array_equal(opponents.occupied[~begin], before[~begin])
    assert (opponents.occupied[begin] != before[begin]).any()


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"nobody": 0.5}, r"'nobody'.* `battlesnake-gym snakes`"),
        ({"past": 1.5}, r"'past'.* 0.* 1"),
        ({"past": 0.5, "hungry": 0.5}, r"sum.* 1"),
        ([0.3], "opponents"),
    ],
)
def test_impossible_opponents_are_refused(shares: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_vector_env(1, SMALL | {"opponents": shares})


def test_a_single_snake_has_no_opponents() -> None:
    with pytest.raises(ValueError, match=r"opponents needs .* num_snakes 1"):
        algorithms.configure("PPO", SMALL | {"num_snakes": 1, "opponents": {"past": 0.5}})


def test_a_past_self_keeps_its_seats_until_the_game_is_over_and_hears_how_it_went() -> None:
    opponents, _, _ = seated({"past": 0.6}, games=30, past=[1, 2, 3, 4, 5])
    past, who = opponents._past_selves, opponents.occupied.copy()
    selves = opponents._past_self.copy()
    assert len(opponents._active_past_selves()) == 3  # not more at once
    none = np.zeros(30, np.bool_)
    alive = np.zeros((30, 3), np.uint8)
    turn = np.full(30, 7)
    for _ in range(20):
        opponents.after_step({"reset": none, "cause": alive, "turn": turn})
    np.testing.assert_array_equal(opponents.occupied, who)
    np.testing.assert_array_equal(opponents._past_self, selves)
    # In the first game the learner dies first, in the second the past self, in a third nobody.
    with_past = np.flatnonzero(who.any(-1))[:3]
    lost, won, _ = with_past
    opponents._past_self[with_past] = 1, 2, 3
    cause = alive.copy()
    cause[lost, ~who[lost]] = 1
    cause[won, who[won]] = 1
    opponents.after_step({"reset": none, "cause": cause, "turn": turn})
    over = none.copy()
    over[with_past] = True
    opponents.after_step({"reset": over, "cause": alive, "turn": np.zeros(30, int)})
    state = past.get_state()
    assert state["num_results"][:3] == [1, 1, 1]
    assert state["wins"][:3] == [0, 1, 0.5]
    chances = past.sampling_probabilities()
    assert chances[0] > chances[2] > chances[1]


def test_hard_past_selves_are_drawn_more_often_and_all_of_training_is_kept() -> None:
    selves = PastSelves(lambda weights: lambda frames: np.full((1, 4), weights, np.float32))
    for number in range(1, 101):
        selves.add(float(number))
    assert selves.numbers[0] == 1  # the first
    assert MAX_PAST_SELVES / 2 <= len(selves) <= MAX_PAST_SELVES
    assert set(np.diff(selves.numbers)) == {16}  # evenly over all of training
    # One that was given up is stood in for by the one before it.
    assert selves.act_fn(20)(np.zeros((1, 1), np.uint8))[0, 0] == 17.0
    hard, easy = selves.numbers[2], selves.numbers[4]
    for _ in range(20):
        for number in selves.numbers:
            selves.record_result(number, {hard: 0.0, easy: 1.0}.get(number, 0.7))
    random = np.random.default_rng(1)
    drawn = [selves.draw(random, set()) for _ in range(500)]
    assert drawn.count(hard) > 0.5 * len(drawn) > 20 * drawn.count(easy)
    playing = set(selves.numbers[3:6])
    assert {selves.draw(random, playing) for _ in range(50)} <= playing
    copy = PastSelves(lambda weights: lambda frames: np.full((1, 4), weights, np.float32))
    copy.set_state(selves.get_state())
    assert copy.get_state() == selves.get_state()
    np.testing.assert_array_equal(copy.sampling_probabilities(), selves.sampling_probabilities())


def test_seats_without_a_snake_have_no_opponents_and_no_results() -> None:
    vector = make_vector_env(200, SMALL | {"num_snakes": [2, 4], "width": 7, "height": 7})
    _, infos = vector.reset(seed=2)
    past = PastSelves(greedy_policy)
    past.add(None)
    opponents = sample_opponents(vector, {"past": 0.6}, np.random.default_rng(1), past)
    opponents.draw_seats(infos["reset"])
    ours = infos["alive"] & ~opponents.occupied
    assert ours.any(-1).all()
    assert not (opponents.occupied & ~infos["alive"]).any()
    # The learner is eliminated in every game.
    opponents.after_step({"reset": np.zeros(200, np.bool_), "cause": ours, "turn": np.full(200, 7)})
    opponents.record_results(np.ones(200, np.bool_))
    assert past.get_state()["wins"] == [0]


def test_as_long_as_there_is_no_past_self_the_seats_are_the_learners() -> None:
    assert not seated({"past": 0.6}, past=[])[0].occupied.any()


GAMES = {"num_snakes": 3, "width": 7, "height": 7}


@pytest.fixture
def frozen(tmp_path: Path) -> Callable[..., str]:
    """A function that makes a policy which likes "left" best, and names it as an opponent."""
    pytest.importorskip("onnxruntime", reason="needs the extra server")

    def make(**games: Any) -> str:
        facts = {"training": {"env_config": SMALL | {"observation": "planes"} | GAMES | games}}
        path = write_policy(tmp_path / "frozen", (0.0, 1.0, 9.0, 2.0), [(7, 7)], changes=facts)
        return f"policy:{path}"

    return make


def test_everybody_makes_its_own_moves(frozen: Callable[..., str]) -> None:
    asked = []

    def always_up(boards: Any) -> Any:
        asked.append(len(boards))
        return np.tile(np.array([1, 0, 0, 0], np.float32), (len(boards), 1))

    policy = frozen()
    shares = {policy: 0.4, "past": 0.2, "straight": 0.2}
    opponents, vector, infos = seated(shares, games=40, past=[always_up])
    unset = 77
    actions = np.full(infos["alive"].shape, unset, np.uint8)
    vector.last_action_mask = np.ones((*infos["alive"].shape, 4), np.bool_)
    vector.last_action_mask[:, 0, MOVES.index("left")] = False
    opponents.move(actions, infos["alive"])
    np.testing.assert_array_equal(actions == unset, ~opponents.occupied)
    frozen_seats = opponents._policy_seats[policy]
    assert 0.2 < frozen_seats.mean() < 0.5
    # Where "left" is forbidden it plays what it likes next.
    expected = np.full(actions.shape, MOVES.index("left"))
    expected[:, 0] = MOVES.index("right")
    np.testing.assert_array_equal(actions[frozen_seats], expected[frozen_seats])
    assert (actions[opponents._past_seats] == MOVES.index("up")).all()
    assert 0 < asked[0] == opponents._past_seats.sum() < (opponents.occupied & ~frozen_seats).sum()
    # The dead are not asked.
    actions[:] = unset
    opponents.move(actions, np.zeros_like(infos["alive"]))
    assert (actions == unset).all()
    assert len(asked) == 1


def test_a_list_of_opponents_shares_the_seats_evenly_and_policies_see_their_own() -> None:
    pytest.importorskip("onnxruntime", reason="needs the extra server")
    shares = env_options({"opponents": ["shipped", "past"]}).opponents
    assert shares == {"shipped": 1 / 3, "past": 1 / 3}
    opponents, _, infos = seated(shares, games=40, past=[lambda boards: boards[:, 0, 0, :4]])
    unset = 77
    actions = np.full(infos["alive"].shape, unset, np.uint8)
    opponents.move(actions, infos["alive"])
    np.testing.assert_array_equal(actions == unset, ~opponents.occupied)


@pytest.mark.parametrize("other", [{"width": 5}, {"observation": "centered"}])
def test_a_policy_for_other_games_is_refused(
    frozen: Callable[..., str], other: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match="observation"):
        seated({frozen(**other): 0.5})


@pytest.fixture
def runner(small_config: Any) -> Any:
    config = small_config("DQN", num_snakes=3, opponents=SHARES)
    one = DQNEnvRunner(config=config, worker_index=0, num_env_runners=0)
    one.add_past_self(one.module.get_state())
    return one


def test_a_moved_file_of_an_opponent_does_not_stop_an_env_runner(
    runner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opponent_names, "check_name", Mock(side_effect=ValueError("unknown")))
    assert runner.sample()


def test_nothing_is_learned_from_opponents_who_stay_until_a_game_is_over(runner: Any) -> None:
    moved, seats = [], [np.zeros((4, 3), np.bool_)]
    step = runner.env.step

    def counted(actions: Any) -> Any:
        learning, running = ~runner._opponents.occupied, runner.env.games.turn > 0
        np.testing.assert_array_equal(learning[running], seats[-1][running])
        seats.append(learning)
        result = step(actions)
        moved.append((result[4]["acted"] & learning).sum())
        moved_by_all.append(result[4]["acted"].sum())
        return result

    moved_by_all: list[int] = []
    runner.env.step = counted
    fragments = [runner.sample()[0] for _ in range(6)]
    assert sum(fragment.num_agent_steps for fragment in fragments) == sum(moved)
    assert 0 < sum(moved) < sum(moved_by_all)
    assert runner._statistics.drain()["num_episodes"] > 0


@pytest.mark.parametrize("algorithm", ["DQN", pytest.param("APEX", marks=pytest.mark.slow)])
def test_past_selves_play_by_the_weights_of_then_and_survive_a_checkpoint(
    small_config: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    monkeypatch.setattr(batched_algorithm, "_PAST_SELF_INTERVAL_STEPS", 200)
    config = small_config(algorithm, num_snakes=3, opponents=SHARES)
    one = config.build_algo()
    for _ in range(3):
        one.train()
    runners = values_of_runners(one)
    values = runners[-1]
    steps = one.num_env_steps_sampled
    one.save_to_path(str(tmp_path / "checkpoint"))
    one.stop()
    # The first is of before any training, and then at most one an iteration.
    assert 2 <= len(values["past"]) <= 4
    everybody = [*values["past"], values["now"]]
    for i in range(len(everybody) - 1):
        assert not np.allclose(everybody[0], everybody[i + 1])
    for number, then in zip(values["numbers"], values["past"], strict=True):
        np.testing.assert_array_equal(values["playing"][number], then.argmax(-1))

    with built(config.copy(copy_frozen=False)) as copy:
        copy.restore_from_path(str(tmp_path / "checkpoint"))
        playing = runners[1:] or runners  # The local runner plays only if there is no other.
        results = [list(runner["results"].values()) for runner in playing]
        assert np.max(results) > 0
        for restored in values_of_runners(copy):
            np.testing.assert_allclose(restored["past"], values["past"])
            np.testing.assert_allclose(list(restored["results"].values()), np.mean(results, axis=0))
        assert copy._next_past_self_step > steps
        copy.train()


def values_of_runners(algorithm: Any) -> list[dict[str, Any]]:
    """What the runners, the local one first, think of some boards, now and as past selves."""

    def ask(runner: Any) -> dict[str, Any]:
        module = copy.deepcopy(runner.module)
        shape = (5, *module["default_policy"].observation_space.shape)
        boards = np.random.default_rng(0).integers(0, 255, shape).astype(np.uint8)

        def values(weights: Any) -> Any:
            module.set_state(weights)
            return runner.action_scores(module["default_policy"], boards)

        return {
            "now": values(runner.module.get_state()),
            "past": [values(weights) for weights in runner.past_selves.get_state()["weights"]],
            "numbers": runner.past_selves.numbers,
            "results": runner.past_selves.results(),
            "playing": {
                number: runner.past_selves.act_fn(number)(boards, np.ones((5, 4), np.bool_))
                for number in runner.past_selves.numbers
            },
        }

    return list(algorithm.env_runner_group.foreach_env_runner(ask))
