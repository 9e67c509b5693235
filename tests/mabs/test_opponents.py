"""Who sits in training games beside the learner, and that nobody learns from them."""

from typing import Any

import numpy as np
import pytest

from tests.mabs.conftest import SMALL

pytestmark = [
    pytest.mark.rllib,
    pytest.mark.filterwarnings("default"),
    pytest.mark.timeout(150),
]

SHARES = {"past": 0.4, "straight": 0.3}


def seated(shares: dict[str, float], games: int = 400) -> tuple[Any, Any, Any]:
    """Opponents in the first games of a batch, and what stands there."""
    from mabs.environment import make_vector
    from mabs.opponents import Opponents

    vector = make_vector(games, SMALL | {"num_snakes": 3, "width": 7, "height": 7})
    frames, infos = vector.reset(seed=2)
    opponents = Opponents(shares, vector, np.random.default_rng(1))
    opponents.sit_down(infos["reset"])
    return opponents, frames, infos


def test_seats_are_drawn_and_the_learner_always_has_one() -> None:
    opponents, _, _ = seated(SHARES)
    assert opponents.learning.any(-1).all()
    # Without the games in which the learner was given a seat (0.7 ** 3) it would have 0.3.
    assert opponents.learning.mean() == pytest.approx(0.3 + 0.7**3 / 3, abs=0.04)
    assert opponents.learning.mean(0).std() < 0.04  # no seat is special
    assert seated({})[0].learning.all()


def test_only_games_that_begin_are_seated_anew() -> None:
    opponents, _, _ = seated(SHARES)
    before = opponents.learning
    begin = np.arange(len(before)) % 2 == 0
    opponents.sit_down(begin)
    np.testing.assert_array_equal(opponents.learning[~begin], before[~begin])
    assert (opponents.learning[begin] != before[begin]).any()


def test_everybody_makes_its_own_moves() -> None:
    from battlesnake_gym.rules import MOVES

    opponents, frames, infos = seated(SHARES, games=40)
    asked = []

    def always_left(boards: Any) -> Any:
        asked.append(len(boards))
        return np.tile(np.array([0, 1, 9, 2], np.float32), (len(boards), 1))

    unset = 77
    actions = np.full(infos["alive"].shape, unset, np.uint8)
    mask = np.ones((*infos["alive"].shape, 4), np.bool_)
    opponents.move(frames, mask, infos["alive"], always_left, actions)
    np.testing.assert_array_equal(actions == unset, opponents.learning)
    lefts = int((actions == MOVES.index("left")).sum())
    assert asked[0] <= lefts
    assert 0 < asked[0] < (~opponents.learning).sum()
    # The dead are not asked.
    dead = np.zeros_like(infos["alive"])
    actions[:] = unset
    opponents.move(frames, mask, dead, always_left, actions)
    assert (actions == unset).all()
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"nobody": 0.5}, "unknown opponent 'nobody'"),
        ({"past": 1.5}, "the share of 'past' must be between 0 and 1"),
        ({"past": 0.5, "hungry": 0.5}, "must leave the learner some seats"),
        (["past"], "opponents must be like"),
    ],
)
def test_impossible_opponents_are_refused(shares: Any, words: str) -> None:
    from mabs.environment import make_vector

    with pytest.raises(ValueError, match=words):
        make_vector(1, SMALL | {"opponents": shares})


@pytest.fixture
def runner(small_config: Any) -> Any:
    from mabs.runner import BatchedEnvRunner

    config = small_config("DQN", num_snakes=3, opponents=SHARES)
    return BatchedEnvRunner(config=config, worker_index=0, num_workers=0)


def test_nothing_is_learned_from_opponents(runner: Any) -> None:
    moved = []
    step = runner.env.step

    def counted(actions: Any) -> Any:
        learning = runner._opponents.learning
        result = step(actions)
        moved.append((result[4]["acted"] & learning).sum())
        moved_by_all.append(result[4]["acted"].sum())
        return result

    moved_by_all: list[int] = []
    runner.env.step = counted
    fragments = [runner.sample()[0] for _ in range(6)]
    assert sum(fragment.num_agent_steps for fragment in fragments) == sum(moved)
    assert 0 < sum(moved) < sum(moved_by_all)
    assert runner._statistics.num_games > 0


def test_a_past_self_plays_by_the_weights_of_then(runner: Any) -> None:
    runner.sample()
    boards = np.random.default_rng(0).integers(0, 255, (5, *runner.env._observations.shape[2:]))
    boards = boards.astype(np.uint8)
    then = runner._q_values(boards)
    state = runner.get_state()
    weights = state["rl_module"]
    runner.set_state({"rl_module": _halved(weights), "weights_seq_no": state["weights_seq_no"] + 1})
    runner.sample()
    assert not np.allclose(runner._q_values(boards), then)
    np.testing.assert_allclose(runner._past_values(boards), then)


def _halved(weights: Any) -> Any:
    if isinstance(weights, dict):
        return {name: _halved(part) for name, part in weights.items()}
    return weights * 0.5 if hasattr(weights, "dtype") else weights
