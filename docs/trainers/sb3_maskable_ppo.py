"""MaskablePPO of sb3-contrib, which samples only actions that the mask allows."""

import sys

from sb3_contrib import MaskablePPO
from stable_baselines3.common.env_util import make_vec_env

from battlesnake_gym.env.vector_env import win_rate

NUM_STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 60_000
GAME_SETTINGS = {"width": 7, "height": 7, "observation": "facing", "max_turns": 200}
REWARDS = {"ate_food": 0.1, "won": 1, "died": -1}

envs = make_vec_env(
    "battlesnake_gym:Battlesnake-v0",
    n_envs=16,
    env_kwargs={**GAME_SETTINGS, "rewards": REWARDS, "opponents": ["safe-random"]},
)
model = MaskablePPO(
    "MlpPolicy",
    envs,
    n_steps=128,
    batch_size=512,
    n_epochs=6,
    learning_rate=1e-3,
    gamma=0.97,
    seed=1,
)
model.learn(NUM_STEPS)
model.save("sb3-maskable-ppo.zip")


def choose_actions(observations, masks):
    """Return the most probable allowed action for each observation."""
    return model.predict(observations, action_masks=masks, deterministic=True)[0]


print(f"win rate {win_rate(choose_actions, **GAME_SETTINGS):.2f} against safe-random")
