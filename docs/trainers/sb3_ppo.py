"""Stable-Baselines3: PPO, without masks."""

import sys

from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

from battlesnake_gym.env.vector_env import win_rate

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 80_000
GAME = {"width": 7, "height": 7, "observation": "facing", "max_turns": 200}
SCHEME = {"ate_food": 0.1, "won": 1, "died": -1}

envs = make_vec_env(
    "battlesnake_gym:Battlesnake-v0",
    n_envs=16,
    env_kwargs={**GAME, "rewards": SCHEME, "opponents": ["safe-random"]},
)
SETTINGS = {"n_steps": 128, "batch_size": 512, "n_epochs": 6, "learning_rate": 1e-3}
model = PPO("MlpPolicy", envs, gamma=0.97, seed=1, **SETTINGS)
model.learn(STEPS)
model.save("sb3-ppo.zip")


def choose(observations, masks):
    """The most likely action; PPO knows nothing of masks."""
    return model.predict(observations, deterministic=True)[0]


print(f"win rate {win_rate(choose, **GAME):.2f} against safe-random")
