"""PPO with masks in one file, as CleanRL writes it, on the vector environment."""

import sys
import time

import gymnasium
import numpy as np
import torch
from torch import nn

from battlesnake_gym.vector_env import win_rate

N, T = 512, 32
UPDATES = (int(sys.argv[1]) if len(sys.argv) > 1 else 400_000) // (N * T)
GAME = {"width": 7, "height": 7, "observation": "facing", "max_turns": 200}
SCHEME = {"ate_food": 0.1, "won": 1, "died": -1}

torch.set_num_threads(1)
envs = gymnasium.make_vec(
    "battlesnake_gym:Battlesnake-v0", N, opponents=["safe-random"], rewards=SCHEME, **GAME
)
net = nn.Sequential(nn.Flatten(), nn.Linear(1690, 64), nn.ReLU(), nn.Linear(64, 5))
adam = torch.optim.Adam(net.parameters(), lr=2e-3)


def look(seen, masks):
    """The distribution over the allowed moves, and the value."""
    out = net(torch.as_tensor(seen).float() / 255)
    logits = out[:, :4].masked_fill(~torch.as_tensor(masks), -1e9)
    return torch.distributions.Categorical(logits=logits, validate_args=False), out[:, 4]


(seen, infos), start = envs.reset(seed=1), time.process_time()
for _ in range(UPDATES):
    turns = []
    for _ in range(T):
        masks = infos["action_mask"]
        with torch.no_grad():
            policy, value = look(seen, masks)
            move = policy.sample()
        then, reward, out, cut, infos = envs.step(move.numpy())
        chance = policy.log_prob(move).numpy()
        turns.append(
            (seen, masks, move.numpy(), chance, value.numpy(), reward, out, cut, infos["acted"])
        )
        seen = then
    obs, masks, moves, old, values, rewards, outs, cuts, acted = map(np.stack, zip(*turns))
    with torch.no_grad():
        following = np.vstack([values[1:], look(seen, infos["action_mask"])[1].numpy()])
    delta, gains = rewards + 0.97 * following * ~outs - values, np.zeros_like(values)
    gain = gains[0]
    for t in reversed(range(T)):  # the turn after an end is a reset: nothing to learn from
        gain = gains[t] = (delta[t] + 0.92 * gain * ~(outs[t] | cuts[t])) * acted[t]
    wanted, old, gains = (torch.as_tensor(x[acted]) for x in (gains + values, old, gains))
    obs, masks, moves = obs[acted], masks[acted], torch.as_tensor(moves[acted])
    for part in np.array_split(np.random.permutation(len(gains)), 8):
        policy, value = look(obs[part], masks[part])
        ratio = (policy.log_prob(moves[part]) - old[part]).exp()
        gain = (gains[part] - gains[part].mean()) / (gains[part].std() + 1e-6)
        loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        loss = loss + 0.5 * (value - wanted[part]).square().mean() - 0.01 * policy.entropy().mean()
        adam.zero_grad()
        loss.backward()
        adam.step()

speed = UPDATES * N * T / (time.process_time() - start)
rate = win_rate(lambda seen, masks: look(seen, masks)[0].logits.argmax(1).numpy(), **GAME)
print(f"{speed:,.0f} steps a CPU-second; win rate {rate:.2f} against safe-random")
