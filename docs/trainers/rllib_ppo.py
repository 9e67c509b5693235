"""RLlib's own PPO on the new API stack, on the vector environment."""

import sys

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers.vector import DtypeObservation, FlattenObservation, RescaleObservation
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

from battlesnake_gym.env.vector_env import win_rate

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 80_000
GAME = {"width": 7, "height": 7, "observation": "facing", "max_turns": 200}
LEARNER = {"opponents": ["safe-random"], "rewards": {"ate_food": 0.1, "won": 1, "died": -1}}


def make(options):
    """Games seen as rows of floats: RLlib has no network for bytes."""
    games = gymnasium.make_vec("battlesnake_gym:Battlesnake-v0", **options)
    return RescaleObservation(DtypeObservation(FlattenObservation(games), np.float32), 0, 1)


register_env("snakes", make)
config = PPOConfig().environment("snakes", env_config={**GAME, **LEARNER}).debugging(seed=1)
config.env_runners(gym_env_vectorize_mode="vector_entry_point", num_envs_per_env_runner=64)
config.env_runners(num_env_runners=0, rollout_fragment_length=64)
config.training(train_batch_size=4096, minibatch_size=512, num_epochs=6, lr=1e-3, gamma=0.97)
algorithm = config.rl_module(model_config={"fcnet_hiddens": [64, 64]}).build_algo()
for _ in range(STEPS // 4096):
    algorithm.train()


def choose(observations, masks):
    """The most likely action."""
    seen = {"obs": torch.from_numpy(observations).flatten(1).float() / 255}
    return algorithm.get_module().forward_inference(seen)["action_dist_inputs"].argmax(1)


print(f"win rate {win_rate(choose, **GAME):.2f} against safe-random")
