"""TorchRL: PPO with masks on the vector environment."""

import sys

import gymnasium
import torch
from tensordict.nn import TensorDictModule as Named
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper
from torchrl.modules import MaskedCategorical, ProbabilisticActor
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from battlesnake_gym.env.vector_env import win_rate

torch.set_num_threads(1)
STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 150_000
GAME = {"width": 7, "height": 7, "observation": "facing", "max_turns": 200}
LEARNER = {"opponents": ["safe-random"], "rewards": {"ate_food": 0.1, "won": 1, "died": -1}}
snake, how = "battlesnake_gym:Battlesnake-v0", {"autoreset_mode": "SameStep", **GAME, **LEARNER}
envs = GymWrapper(gymnasium.make_vec(snake, 256, **how), categorical_action_encoding=True)
nets = [nn.Sequential(nn.Linear(1690, 64), nn.ReLU(), nn.Linear(64, size)) for size in (4, 1)]
policy, value = (lambda seen, net=net: net(seen.flatten(-3).float() / 255) for net in nets)
keys = {"logits": "logits", "mask": "action_mask"}  # infos are in TorchRL's dictionaries, too
keep = {"distribution_class": MaskedCategorical, "return_log_prob": True}
actor = ProbabilisticActor(Named(policy, ["observation"], ["logits"]), keys, **keep)
critic = Named(value, ["observation"], ["state_value"])
gae, loss = GAE(gamma=0.97, lmbda=0.92, value_network=critic), ClipPPOLoss(actor, critic)
adam = torch.optim.Adam([*nets[0].parameters(), *nets[1].parameters()], lr=1e-3)
for batch in Collector(envs, actor, frames_per_batch=8192, total_frames=STEPS):
    for part in gae(batch).reshape(-1)[torch.randint(8192, (32, 1024))]:  # four times each
        losses = loss(part)
        adam.zero_grad()
        (losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]).backward()
        adam.step()


def choose(observations, masks):
    """The most likely of the allowed actions."""
    logits = policy(torch.as_tensor(observations))
    return logits.masked_fill(~torch.as_tensor(masks), -1e9).argmax(1)


print(f"win rate {win_rate(choose, **GAME):.2f} against safe-random")
