"""RLlib's own DQN on the new API stack, on the vector environment, with masks."""

import sys

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers.vector import DtypeObservation, FlattenObservation, RescaleObservation
from ray.rllib.algorithms.dqn import DQNConfig
from ray.tune.registry import register_env

from battlesnake_gym.env.vector_env import win_rate

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000
GAME = {"width": 7, "height": 7, "observation": "facing", "max_turns": 200}
LEARNER = {"opponents": ["safe-random"], "rewards": {"ate_food": 0.1, "won": 1, "died": -1}}


class Allowed(gymnasium.vector.VectorWrapper):
    """Plays the first allowed action for one that is not: RLlib's DQN knows no masks."""

    def reset(self, **how):
        """Keep the masks."""
        seen, self.infos = self.env.reset(**how)
        return seen, self.infos

    def step(self, actions):
        """Play what is allowed."""
        masks = self.infos["action_mask"]
        allowed = masks[np.arange(self.num_envs), actions]
        *results, self.infos = self.env.step(np.where(allowed, actions, masks.argmax(axis=1)))
        return *results, self.infos


def make(options):
    """Games seen as rows of floats: RLlib has no network for bytes."""
    games = Allowed(gymnasium.make_vec("battlesnake_gym:Battlesnake-v0", **options))
    return RescaleObservation(DtypeObservation(FlattenObservation(games), np.float32), 0, 1)


register_env("snakes", make)
config = DQNConfig().environment("snakes", env_config={**GAME, **LEARNER}).debugging(seed=1)
config.env_runners(gym_env_vectorize_mode="vector_entry_point", num_envs_per_env_runner=32)
config.env_runners(num_env_runners=0, rollout_fragment_length=4)
config.training(train_batch_size=128, lr=5e-4, gamma=0.97, n_step=4, training_intensity=6)
config.training(replay_buffer_config={"type": "EpisodeReplayBuffer", "capacity": 50_000})
config.training(epsilon=[(0, 1.0), (10_000, 0.05)], target_network_update_freq=1000)
config.rl_module(model_config={"fcnet_hiddens": [64], "head_fcnet_hiddens": [64]})
algorithm = config.reporting(min_sample_timesteps_per_iteration=STEPS).build_algo()
algorithm.train()


def choose(observations, masks):
    """The allowed action of the highest value."""
    seen = {"obs": torch.from_numpy(observations).flatten(1).float() / 255}
    values = algorithm.get_module().compute_q_values(seen)["qf_preds"]
    return values.masked_fill(~torch.from_numpy(masks), -1e9).argmax(1)


print(f"win rate {win_rate(choose, **GAME):.2f} against safe-random")
