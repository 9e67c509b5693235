"""skrl: PPO on the vector environment, which it takes as it is."""

import sys

import gymnasium
import torch
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.trainers.torch import SequentialTrainer
from skrl.utils.model_instantiators.torch import categorical_model, deterministic_model

from battlesnake_gym.env.vector_env import win_rate

torch.set_num_threads(1)
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 300_000
GAME = {"width": 7, "height": 7, "observation": "facing", "max_turns": 200}
LEARNER = {"opponents": ["safe-random"], "rewards": {"ate_food": 0.1, "won": 1, "died": -1}}
snake, how = "battlesnake_gym:Battlesnake-v0", {"autoreset_mode": "SameStep", **GAME, **LEARNER}
envs = wrap_env(gymnasium.make_vec(snake, 256, **how), wrapper="gymnasium", verbose=False)
spaces = {"observation_space": envs.observation_space, "action_space": envs.action_space}
net = [{"name": "net", "input": "OBSERVATIONS / 255", "layers": ["flatten", 64]}]
net[0]["activations"] = ["", "relu"]
policy = categorical_model(**spaces, network=net, output="ACTIONS")
value = deterministic_model(**spaces, network=net, output="ONE")
config = PPO_CFG(rollouts=32, mini_batches=8, learning_epochs=4, discount_factor=0.97)
config.experiment.write_interval = config.experiment.checkpoint_interval = 0
memory = RandomMemory(memory_size=32, num_envs=256)
agent = PPO(models={"policy": policy, "value": value}, memory=memory, cfg=config, **spaces)
trainer = {"timesteps": STEPS // 256, "headless": True, "disable_progressbar": True}
SequentialTrainer(env=envs, agents=agent, cfg=trainer).train()


def choose(observations, masks):
    """The most likely action."""
    seen = torch.as_tensor(observations).flatten(1).float()
    return policy.act({"observations": seen}, role="policy")[1]["net_output"].argmax(1)


print(f"win rate {win_rate(choose, **GAME):.2f} against safe-random")
