"""PPO against past selves: copies of the policy, one per CPU minute.

Run this script with OMP_NUM_THREADS=1. A CPU minute is then a minute on one core.
"""

import copy
import os
import time

import torch
from gymnasium.spaces import flatdim
from torch import nn
from torch.distributions import Categorical

from battlesnake_gym.env.vector_env import BattlesnakeVectorEnv, win_rate

N, T, EPOCHS, GAMMA, LAMBDA, MINUTES = 512, 32, 2, 0.98, 0.95, float(os.environ.get("MINUTES", 6))
GAME = {"width": 7, "height": 7, "observation": "facing", "max_turns": 200, "rewards": "winning"}
envs = BattlesnakeVectorEnv(N, ["past"], autoreset_mode="SameStep", **GAME)
inputs = flatdim(envs.single_observation_space)
net = nn.Sequential(nn.Flatten(), nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 5))
adam = torch.optim.Adam(net.parameters(), lr=1e-3)


def evaluate(net, seen, masks):
    """Return the distributions over the allowed actions, and the state values."""
    out = net(torch.as_tensor(seen).float() / 255)
    return Categorical(logits=out[:, :4].where(torch.as_tensor(masks), -1e9)), out[:, 4]


def freeze_policy():
    """Copy the network, and return a function that samples actions with the copy."""
    now = copy.deepcopy(net).requires_grad_(False)
    return lambda seen, masks: evaluate(now, seen, masks)[0].sample().numpy()


(seen, infos), past = envs.reset(seed=1), []
while (minutes := time.process_time() / 60) < MINUTES:
    if minutes >= len(past):
        past.append(freeze_policy())
        envs.add_past_self(past[-1])
    turns, gain = [], 0
    with torch.no_grad():
        for _ in range(T):
            policy, value = evaluate(net, seen, infos["action_mask"])
            move = policy.sample()
            turn = seen, infos["action_mask"], move, policy.log_prob(move), value
            seen, reward, out, cut, infos = envs.step(move.numpy())
            turns.append([torch.as_tensor(x) for x in (*turn, reward, ~(out | cut))])
        then = evaluate(net, seen, infos["action_mask"])[1]
    for turn in reversed(turns):
        *_, value, reward, goes_on = turn
        gain = reward - value + GAMMA * goes_on * (then + LAMBDA * gain)
        turn[4:], then = (gain, gain + value), value
    batch = [torch.cat(x) for x in zip(*turns)]
    for part in torch.cat([torch.randperm(N * T) for _ in range(EPOCHS)]).split(2048):
        old, masks, moves, chances, gain, wanted = (x[part] for x in batch)
        policy, value = evaluate(net, old, masks)
        ratio, gain = (policy.log_prob(moves) - chances).exp(), gain / (gain.std() + 1e-6)
        gain = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain) + 0.01 * policy.entropy()
        (0.5 * (value - wanted).square() - gain).mean().backward()
        adam.step()
        adam.zero_grad()

rate = win_rate(freeze_policy(), ["past"], past_self=past[-5:][0], games=1000, **GAME)
print(f"win rate {rate:.2f} against itself of {min(5, len(past))} CPU minutes before")
