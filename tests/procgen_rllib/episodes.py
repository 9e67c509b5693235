"""Learners as algorithms build them, and episodes for them that nobody has played."""

import math
from typing import Any

import numpy as np

SMALL = {"channels": [2, 3, 4], "width": 6}
"""A network that is done in no time."""
WIDER = {"channels": [4, 6, 8], "width": 48}
"""One that learns what there is to be learned, too."""


def learner_of(
    algorithm: str, *, network: dict[str, Any] = SMALL, side: int = 16, **settings: Any
) -> Any:
    """The learner of an algorithm on 200 levels, with these settings and so large pictures."""
    import gymnasium
    import torch

    from battlesnake_rl.procgen.train_procgen import ProcgenHyperparameters, configure

    config = configure(
        ProcgenHyperparameters(
            algorithm=algorithm,
            env_config={"num_levels": 200},
            custom_options={"bfloat16": False} | network,
        )
    )
    training = [
        *("gamma", "lambda_", "lr", "num_epochs", "minibatch_size"),
        "train_batch_size_per_learner",
    ]
    config.training(**{name: settings.pop(name) for name in training if name in settings})
    for name, value in settings.items():
        assert hasattr(config, name)
        setattr(config, name, value)
    config.learners(num_gpus_per_learner=0)
    torch.manual_seed(0)
    config.validate()
    pictures = gymnasium.spaces.Box(0, 255, (side, side, 3), np.uint8)
    spaces: Any = (pictures, gymnasium.spaces.Discrete(15))
    return config.build_learner(spaces={"default_policy": spaces})


def rewards_and_ends(games: int, turns: int) -> tuple[np.ndarray, np.ndarray]:
    """Rewards of very different sizes and the ends of episodes, both (turns, games)."""
    draw = np.random.default_rng(3)
    rewards = draw.normal(0, 1, (turns, games)) * draw.choice([0, 0.01, 30], (turns, games))
    return rewards, draw.random((turns, games)) < 0.15


def episodes_of(rewards: np.ndarray, ends: np.ndarray, side: int = 16) -> list[Any]:
    """Parts of episodes as a runner hands them over, in its order; game n plays level 100 + n."""
    from ray.rllib.env.single_agent_episode import SingleAgentEpisode

    draw = np.random.default_rng(0)
    over, going = [], []
    for game in range(rewards.shape[1]):
        fresh = True
        for turn in range(len(rewards)):
            if fresh:
                going.append(SingleAgentEpisode())
                going[-1].add_env_reset(
                    picture(draw, side), {"clock": -1, "level_seed": 100 + game}
                )
            fresh = bool(ends[turn, game])
            going[-1].add_env_step(
                picture(draw, side),
                int(draw.integers(15)),
                rewards[turn, game],
                {"clock": turn, "level_seed": 100 + game},
                terminated=fresh,
                extra_model_outputs={
                    "action_logp": np.float32(-math.log(15)),
                    "action_dist_inputs": np.zeros(15, np.float32),
                },
            )
            if fresh:
                over.append(going.pop())
    return [one.to_numpy() for one in (*over, *going)]


def batch_of(learner: Any, episodes: list[Any]) -> Any:
    """What the learner makes of episodes before it learns from them."""
    batch = learner._learner_connector(
        rl_module=learner.module,
        batch={},
        episodes=episodes,
        shared_data={},
        metrics=learner.metrics,
    )
    return batch["default_policy"]


def picture(draw: np.random.Generator, side: int) -> np.ndarray:
    return draw.integers(0, 256, (side, side, 3), dtype=np.uint8)
