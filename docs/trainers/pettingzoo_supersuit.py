"""PettingZoo with SuperSuit: both snakes of a duel share one policy of Stable-Baselines3."""

import sys

import supersuit
from stable_baselines3 import PPO
from stable_baselines3.common.utils import set_random_seed

from battlesnake_gym import parallel_env
from battlesnake_gym.env.vector_env import win_rate

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 120_000
GAME = {"width": 7, "height": 7, "observation": "facing", "max_turns": 200}
SCHEME = {"ate_food": 0.1, "won": 1, "died": -1}

game = parallel_env(num_snakes=2, rewards=SCHEME, **GAME)
games = supersuit.pettingzoo_env_to_vec_env_v1(game)
envs = supersuit.concat_vec_envs_v1(games, 16, base_class="stable_baselines3")

SETTINGS = {"n_steps": 64, "batch_size": 512, "n_epochs": 6, "learning_rate": 1e-3}
set_random_seed(1)  # SuperSuit's games take no seed from Stable-Baselines3
model = PPO("MlpPolicy", envs, gamma=0.97, **SETTINGS)
model.learn(STEPS)
model.save("pettingzoo-supersuit.zip")


def choose(observations, masks):
    """The most likely action; PPO knows nothing of masks."""
    return model.predict(observations, deterministic=True)[0]


print(f"win rate {win_rate(choose, **GAME):.2f} against safe-random")
