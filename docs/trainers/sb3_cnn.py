"""Stable-Baselines3: PPO with a convolutional network, on a board of 7x7."""

import sys

import gymnasium
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv

from battlesnake_gym.env.vector_env import win_rate
from battlesnake_gym.env.wrappers import Enlarged

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000
GAME = {"width": 7, "height": 7, "observation": "facing", "max_turns": 200}
SCHEME = {"ate_food": 0.1, "won": 1, "died": -1}


def make():
    """A game whose cells are as large as the network's first convolution wants them."""
    options = {**GAME, "rewards": SCHEME, "opponents": ["safe-random"]}
    return Enlarged(gymnasium.make("battlesnake_gym:Battlesnake-v0", **options))


envs = DummyVecEnv([make] * 16)
SETTINGS = {"n_steps": 128, "batch_size": 512, "n_epochs": 4, "learning_rate": 1e-3}
model = PPO("CnnPolicy", envs, gamma=0.97, seed=1, **SETTINGS)
model.learn(STEPS)
model.save("sb3-cnn.zip")


def choose(observations, masks):
    """The most likely action for each enlarged observation."""
    pictures = envs.envs[0].observation(observations)
    return model.predict(pictures, deterministic=True)[0]


print(f"win rate {win_rate(choose, **GAME):.2f} against safe-random")
