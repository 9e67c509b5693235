"""What all environments have in common: the order of calls, and copies that continue the games."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ClosedEnvironmentError, ResetNeeded

from battlesnake_gym import SelfPlayVectorEnv, VectorBattlesnake, parallel_env
from battlesnake_gym.env.vector_env import BattlesnakeVectorEnv

NAME = "battlesnake_gym:Battlesnake-v0"

MAKE: dict[str, Callable[..., Any]] = {
    "one learner": lambda **o: gymnasium.make(NAME, opponents=["hungry", "tree"], **o),
    "learners": lambda **o: BattlesnakeVectorEnv(4, ["hungry", "tail-chaser"], **o),
    "seats": lambda **o: SelfPlayVectorEnv(2, num_snakes=3, **o),
    "games": lambda **o: VectorBattlesnake(2, 3, **o),
    "agents": lambda **o: parallel_env(num_snakes=3, **o),
}
"""Functions that make an environment from options."""

EVERY = pytest.mark.parametrize("kind", MAKE)
SMALL = {"width": 7, "height": 7}


def actions(env: Any, infos: dict[str, Any]) -> Any:
    """The first allowed action of every learner."""
    if hasattr(env, "agents"):
        return {agent: int(infos[agent]["action_mask"].argmax()) for agent in env.agents}
    return infos["action_mask"].argmax(axis=-1)


def play_on(env: Any, infos: dict[str, Any]) -> list[Any]:
    """The next 40 steps, also of later games, whose seeds the earlier games determine."""
    trace = []
    for _ in range(40):
        step = env.step(actions(env, infos))
        infos = step[-1]
        trace.append(copy.deepcopy(step))
        if step[2] is True or step[3] is True or not getattr(env, "agents", True):
            _, infos = env.reset()
    return trace


@EVERY
@pytest.mark.parametrize("frame_stack", [1, 3])
def test_copies_and_pickles_continue_the_same_games(kind: str, frame_stack: int) -> None:
    env = MAKE[kind](**SMALL, frame_stack=frame_stack)
    _, infos = env.reset(seed=3)
    for _ in range(3):
        infos = env.step(actions(env, infos))[-1]
    others = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    infos = copy.deepcopy(infos)
    expected = play_on(env, infos)
    for other in others:
        np.testing.assert_equal(play_on(other, infos), expected)


@EVERY
def test_rewards_by_seat_require_fixed_seats(kind: str) -> None:
    rewards = ["winning", "survival", "winning"]
    if kind in ("one learner", "learners"):
        with pytest.raises(ValueError, match="rewards must not be a list"):
            MAKE[kind](rewards=rewards)
    else:
        MAKE[kind](rewards=rewards)


@EVERY
def test_order_of_calls(kind: str) -> None:
    env, other = MAKE[kind](**SMALL), MAKE[kind](**SMALL)
    if kind == "one learner":
        env = env.unwrapped  # Gymnasium's wrappers have errors of their own.
    action = actions(other, other.reset(seed=1)[1])
    calls: list[Callable[[], Any]] = [lambda: env.step(action)]
    if kind in ("one learner", "agents"):
        calls.append(env.render)
    if kind == "one learner":
        calls.append(env.action_masks)
    for call in calls:
        with pytest.raises(ResetNeeded, match="reset"):
            call()
    env.reset(seed=1)
    env.close()
    env.close()
    for call in (env.reset, *calls):
        with pytest.raises(ClosedEnvironmentError, match="closed"):
            call()
