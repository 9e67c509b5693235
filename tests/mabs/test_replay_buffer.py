"""The replay against slow, obvious versions of itself."""

import numpy as np
import pytest

from battlesnake_rl.mabs.base.fragment import Fragment
from battlesnake_rl.mabs.dqn.replay_buffer import PRIORITY_FLOOR, ReplayBuffer, _SumTree

FRAME = (2, 3, 3)


def fragment(numbers: list[int], td_error: float = 1.0, step: int = 1) -> Fragment:
    """Transitions from each row to the ``step``-th after it; a frame is filled with its number."""
    count = len(numbers)
    starts = np.arange(count) < count - step
    columns = {
        "obs": np.array(numbers, dtype=np.uint8)[:, None, None, None] * np.ones(FRAME, np.uint8),
        "action_mask": np.tile(np.array(numbers)[:, None] % 2 == 0, (1, 4)),
        "next_offset": step * starts.astype(np.int32),
        "actions": np.array(numbers, dtype=np.uint8) % 4,
        "rewards": np.array(numbers, dtype=np.float32),
        "terminateds": np.zeros(count, dtype=np.bool_),
        "n_step": step * starts.astype(np.uint8),
        "td_errors": np.full(count, td_error, dtype=np.float32),
    }
    return Fragment(columns, num_env_steps=count - 1, num_agent_steps=count - 1)


@pytest.mark.parametrize("size", [1, 2, 5, 64, 1000])
def test_sum_tree_draws_where_the_running_sum_passes(size: int) -> None:
    random = np.random.default_rng(size)
    tree, values = _SumTree(size), np.zeros(size)
    for _ in range(20):
        indices = random.integers(0, size, size=7)
        new = random.random(7) * random.integers(0, 2, 7)
        tree.set(indices, new)
        for index, value in zip(indices, new, strict=True):
            values[index] = value
        assert tree.total == pytest.approx(values.sum())
        if values.sum() == 0:
            continue
        masses = random.random(50) * tree.total
        expected = np.searchsorted(np.cumsum(values), masses, side="right")
        np.testing.assert_array_equal(tree.find(masses), expected)


def test_sum_tree_never_finds_an_empty_leaf_at_the_very_end() -> None:
    tree = _SumTree(8)
    tree.set(np.array([2]), np.array([0.1]))
    found = tree.find(np.array([0.1, 0.1 * (1 + 1e-15), 5.0]))
    np.testing.assert_array_equal(found, [2, 2, 2])


def test_transitions_keep_their_frames_while_the_ring_turns() -> None:
    replay = ReplayBuffer(10, FRAME, seed=0)
    number = 0
    for turn, length in enumerate([4, 3, 5, 3, 6, 4, 7]):
        replay.add(fragment(list(range(number, number + length)), step=1 + turn % 2))
        number += length
        rows, columns = replay.sample(64)
        now, then = columns["obs"][:, 0, 0, 0], columns["new_obs"][:, 0, 0, 0]
        np.testing.assert_array_equal(then, now + columns["n_step"])
        np.testing.assert_array_equal(columns["rewards"], now)
        np.testing.assert_array_equal(columns["actions"], now % 4)
        np.testing.assert_array_equal(columns["new_action_mask"][:, 0], then % 2 == 0)
        np.testing.assert_array_equal(rows, now)
        assert now.min() >= number - 10


def test_rows_are_drawn_in_proportion_to_their_priority() -> None:
    replay = ReplayBuffer(8, FRAME, alpha=0.5, beta=1.0, seed=1)
    replay.add(fragment([0, 1, 2]))
    errors = np.array([0.0, 8.0], dtype=np.float32)
    replay.update_priorities(np.array([0, 1]), errors)
    rows, columns = replay.sample(30_000)
    priority = np.sqrt(errors + PRIORITY_FLOOR)
    share = (rows == 1).mean()
    assert share == pytest.approx(priority[1] / priority.sum(), abs=0.001)
    # Full correction: each weight is the inverse of the probability, the largest is 1.
    light = columns["weights"][rows == 1]
    np.testing.assert_allclose(light, priority[0] / priority[1], rtol=1e-5)
    np.testing.assert_array_equal(columns["weights"][rows == 0], 1.0)


def test_priorities_of_overwritten_rows_are_not_touched() -> None:
    replay = ReplayBuffer(4, FRAME, seed=0)
    replay.add(fragment([0, 1, 2]))
    stale = np.array([0, 1])
    replay.add(fragment([3, 4, 5]))
    before = replay.get_state()["priorities"]
    replay.update_priorities(stale, np.array([100.0, 100.0], dtype=np.float32))
    np.testing.assert_array_equal(replay.get_state()["priorities"], before)
    replay.update_priorities(np.array([1, 2, 3]), np.full(3, 100.0, dtype=np.float32))
    changed = replay.get_state()["priorities"] != before
    assert changed.tolist() == [True, True, False, False], "rows 2 to 5 are there"


def test_priorities_of_a_lost_buffer_do_not_make_empty_rows_transitions() -> None:
    replay = ReplayBuffer(20, FRAME, seed=0)
    replay.add(fragment([1, 2, 3]))
    replay.update_priorities(np.array([0, 5, 33]), np.full(3, 1e9, np.float32))
    _, columns = replay.sample(64)
    assert (columns["n_step"] == 1).all()


def test_a_restored_replay_goes_on_exactly() -> None:
    replay = ReplayBuffer(10, FRAME, seed=3)
    for start in range(0, 30, 4):
        replay.add(fragment(list(range(start, start + 4))))
    copy = ReplayBuffer(10, FRAME, seed=99)
    copy.set_state(replay.get_state())
    for _ in range(3):
        one, other = replay.sample(16), copy.sample(16)
        np.testing.assert_array_equal(one[0], other[0])
        for name in ("obs", "weights"):
            np.testing.assert_array_equal(one[1][name], other[1][name])
        for ring in (replay, copy):
            ring.add(fragment([7, 8, 9]))
    assert copy.stats() == replay.stats()


def test_refusals_name_what_is_wrong() -> None:
    replay = ReplayBuffer(4, FRAME)
    with pytest.raises(ValueError, match="transition"):
        replay.sample(1)
    with pytest.raises(ValueError, match=r"5 rows.* 4"):
        replay.add(fragment([0, 1, 2, 3, 4]))
    replay.add(fragment([0, 1, 2, 3], td_error=0.001))
    assert replay.stats() == {"num_frames": 4, "num_transitions": 3, "num_bytes": 4 * 18}
    assert replay.sample(1)[0] < 3


@pytest.mark.parametrize("capacity", [3, 7, 10])
def test_a_buffer_of_another_capacity_keeps_the_newest_rows(capacity: int) -> None:
    replay = ReplayBuffer(6, FRAME, seed=1)
    for first in (0, 4):
        replay.add(fragment([first, first + 1, first + 2, first + 3]))
    resumed = ReplayBuffer(capacity, FRAME, seed=2)
    resumed.set_state(replay.get_state())
    kept = min(6, capacity)
    assert len(resumed) == kept
    np.testing.assert_array_equal(
        resumed.get_state()["frames"], replay.get_state()["frames"][-kept:]
    )
    _, columns = resumed.sample(64)
    np.testing.assert_array_equal(columns["new_obs"], columns["obs"] + 1)
    resumed.add(fragment([8, 9]))
    assert len(resumed) == min(8, capacity)


@pytest.mark.parametrize("error", [np.nan, np.inf])
def test_errors_that_are_not_finite_leave_the_other_priorities_useful(error: float) -> None:
    """A network that has diverged must not spoil a buffer that a checkpoint keeps."""
    replay = ReplayBuffer(8, FRAME, seed=1)
    replay.add(fragment([0, 1, 2]))
    replay.update_priorities(np.array([0]), np.array([error], dtype=np.float32))
    rows, columns = replay.sample(1000)
    assert (rows == 1).mean() > 0.9
    assert np.isfinite(columns["weights"]).all()
