"""Double, dueling, n-step DQN with prioritized replay for Battlesnake.

    python reference/dqn.py --minutes 2

One network plays all snakes of all games. The snakes learn from each other, and each game has a
different epsilon. `battlesnake-gym train --algorithm DQN` (`battlesnake_rl.mabs`) implements the
same algorithm for long runs. The command stores each observation once, samples from a sum tree,
infers in bfloat16 and uses many processes. It adds opponents, curricula and checkpoints. A test
compares the two implementations.

References: Mnih et al. 2015 (DQN), van Hasselt et al. 2016 (double), Wang et al. 2016 (dueling),
Schaul et al. 2016 (prioritized replay), Horgan et al. 2018 (one epsilon per game). Axes: T turns,
N games, S seats, B transitions; an observation is uint8 [C, H, W].
"""

from __future__ import annotations

import argparse
import copy
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import huber_loss, pad
from torch.optim.swa_utils import AveragedModel

from battlesnake_gym import VectorBattlesnake
from battlesnake_gym.config import TRAINING_DEFAULTS
from battlesnake_gym.env.vector_env import win_rate

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Batch = dict[str, NDArray[Any]]  # Batch of B transitions by column name, see `make_transitions`.


@dataclass(frozen=True)
class Settings:
    """Settings of the games and of the algorithm. An env step is one turn of one game."""

    minutes: float = 2.0
    env_steps: int = 10**9  # Training stops at the first of `minutes` and `env_steps`.
    num_snakes: int = 2  # Number of snakes per game.
    board_size: int = 7  # Width and height of the board in cells.
    seed: int = 0
    num_envs: int = 64  # Number of games in parallel.
    rollout_turns: int = 16  # Number of turns of each game between updates.
    epsilon_base: float = 0.4  # Game i of N has epsilon base ** (1 + exponent * i / (N - 1)).
    epsilon_exponent: float = 7.0
    gamma: float = 0.97
    n_step: int = 3
    reward_scale: float = 0.03  # Most TD errors stay in the quadratic part of the Huber loss.
    buffer_size: int = 100_000  # Number of transitions in the replay buffer.
    alpha: float = 0.6  # Exponent of the priorities; 0 samples uniformly.
    beta: float = 0.4  # Exponent of the importance weights; 1 corrects the priorities fully.
    learning_starts: int = 5_000  # Number of env steps before the first update.
    replay_ratio: float = 2.0  # Number of transitions in updates per transition played.
    batch_size: int = 512
    lr: float = 1e-4
    target_every: int = 10_000  # Number of env steps between updates of the target network.


class QNetwork(nn.Module):
    """Network that maps observations, uint8 [B, C, H, W], to Q-values, float32 [B, 4].

    The Q-values are the sum of a state value and four advantages (dueling).
    """

    def __init__(self, games: VectorBattlesnake) -> None:
        super().__init__()
        side = games.single_observation_space.shape[-1]
        planes, self.head_crop_size = len(games.observation.planes), 7
        self.head_plane = games.observation.planes.index("own_body")
        layers: list[nn.Module] = []
        for before, after, stride in ((planes, 32, 2), (32, 64, 2), (64, 64, 1)):
            layers += [nn.Conv2d(before, after, 3, stride, padding=1), nn.ReLU()]
        self.convolutions = nn.Sequential(*layers, nn.Flatten())
        # Two convolutions with stride 2 reduce the width and the height to a quarter.
        self.dense = nn.Linear(64 * (-(-side // 4)) ** 2 + planes * self.head_crop_size**2, 256)
        self.value, self.advantage = nn.Linear(256, 1), nn.Linear(256, 4)

    def forward(self, observations: Tensor) -> Tensor:
        """Compute the Q-values of observations, which are divided by 255 first."""
        scaled = observations.float() / 255
        seen = torch.cat((self.convolutions(scaled), self.head_crop(scaled)), dim=1)
        features = torch.relu(self.dense(seen))
        advantage = self.advantage(features)
        q_values: Tensor = self.value(features) + advantage - advantage.mean(1, keepdim=True)
        return q_values

    def compute_q_values(self, obs: NDArray[np.uint8]) -> Floats:
        """Compute Q-values without gradients, for self-play."""
        with torch.inference_mode():
            return np.asarray(self(torch.from_numpy(obs)))

    def head_crop(self, scaled: Tensor) -> Tensor:
        """Return the cells around the head at full resolution, [B, head_crop_size**2 * C]."""
        width, margin = scaled.shape[3], self.head_crop_size // 2
        head = scaled[:, self.head_plane].flatten(1).argmax(1)
        window = torch.arange(self.head_crop_size)
        rows = (head // width)[:, None, None] + window[:, None]
        columns = (head % width)[:, None, None] + window
        padded = pad(scaled, (margin,) * 4).permute(0, 2, 3, 1)
        return padded[torch.arange(len(scaled))[:, None, None], rows, columns].flatten(1)


@dataclass
class TurnBuffer:
    """Observations and Q-values of T + 1 turns, and moves and rewards of T turns."""

    obs: NDArray[np.uint8]  # uint8 [T + 1, N, S, C, H, W]
    action_mask: Flags  # bool [T + 1, N, S, 4]
    q_values: Floats  # float32 [T + 1, N, S, 4], Q-values of the behavior network
    actions: NDArray[np.int64]  # int64 [T, N, S]; all following fields have the same shape.
    rewards: Floats
    acted: Flags
    terminated: Flags
    truncated: Flags


class VectorPlayer:
    """Player of all snakes in all games with one network."""

    def __init__(self, games: VectorBattlesnake, network: QNetwork, settings: Settings) -> None:
        self.games, self.network, self.settings = games, network, settings
        self.random = np.random.default_rng(settings.seed)
        # Epsilon decreases with the index of the game: the last games are almost greedy.
        height = np.arange(settings.num_envs) / max(settings.num_envs - 1, 1)
        self.epsilon = settings.epsilon_base ** (1 + settings.epsilon_exponent * height)
        obs, infos = games.reset(seed=settings.seed)
        # Observations, action masks, and a mask of the seats that act next or were truncated.
        self.position = obs, infos["action_mask"], infos["alive"]

    def play(self) -> TurnBuffer:
        """Play ``settings.rollout_turns`` turns of all games and return the turns."""
        looks, deeds = [], []
        for turn in range(self.settings.rollout_turns + 1):
            obs, allowed, thinks = self.position
            q_values = np.zeros(allowed.shape, np.float32)
            q_values[thinks] = self.network.compute_q_values(obs[thinks])
            looks.append((obs.copy(), allowed.copy(), q_values))
            if turn == self.settings.rollout_turns:
                break
            exploring = self.random.random(allowed.shape[:2]) < self.epsilon[:, None]
            wanted = np.where(exploring[..., None], self.random.random(allowed.shape), q_values)
            actions = np.where(allowed, wanted, -np.inf).argmax(-1)
            obs, rewards, died, cut, infos = self.games.step(actions)
            rewards = rewards * np.float32(self.settings.reward_scale)
            deeds.append((actions, rewards, infos["acted"], died, cut))
            self.position = obs, infos["action_mask"], infos["alive"] | cut
        columns = (column for rows in (looks, deeds) for column in zip(*rows, strict=True))
        return TurnBuffer(*(np.stack(column) for column in columns))


def n_step_returns(
    turns: TurnBuffer, n: int, gamma: float
) -> tuple[Floats, NDArray[np.int64], Flags]:
    """Compute n-step returns, numbers of steps, and elimination flags.

    All arrays are [T, N, S]. The number of steps is less than ``n`` if the game of the snake or the
    buffer ends earlier. A flag is True if the snake was eliminated within these steps.
    """
    returns = np.zeros_like(turns.rewards)
    steps = np.zeros(turns.rewards.shape, np.int64)
    terminated = np.zeros_like(turns.terminated)
    for t in range(len(returns)):
        going = turns.acted[t].copy()
        for k in range(min(n, len(returns) - t)):
            returns[t] += going * np.float32(gamma**k) * turns.rewards[t + k]
            steps[t] += going
            terminated[t] |= going & turns.terminated[t + k]
            going &= ~(turns.terminated | turns.truncated)[t + k]
    return returns, steps, terminated


def make_transitions(turns: TurnBuffer, n: int, gamma: float) -> tuple[Batch, Floats]:
    """Return all transitions of a buffer and their absolute TD errors.

    The TD errors use the Q-values of the behavior network. ``discount`` multiplies the value of the
    next state. ``discount`` is 0 if the snake was eliminated before the next state.
    """
    returns, steps, terminated = n_step_returns(turns, n, gamma)
    begin = np.nonzero(turns.acted)
    end = begin[0] + steps[begin], *begin[1:]
    batch = {
        "obs": turns.obs[begin],
        "action": turns.actions[begin],
        "returns": returns[begin],
        "discount": np.where(terminated[begin], 0.0, gamma ** steps[begin]).astype(np.float32),
        "next_obs": turns.obs[end],
        "next_mask": turns.action_mask[end],
    }
    best = np.where(turns.action_mask[end], turns.q_values[end], -np.inf).max(-1)
    best[terminated[begin]] = 0.0  # An eliminated snake may have no allowed move.
    q_played = turns.q_values[begin][np.arange(len(best)), batch["action"]]
    return batch, np.abs(batch["returns"] + batch["discount"] * best - q_played)


class PrioritizedReplayBuffer:
    """Buffer of transitions, sampled in proportion to ``(error + 0.001) ** alpha``."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.random = settings, np.random.default_rng(settings.seed)
        self.columns: Batch = {}
        self.priorities = np.zeros(settings.buffer_size)
        self.added = 0

    def add(self, batch: Batch, errors: Floats) -> None:
        """Add transitions; the new transitions overwrite the oldest transitions."""
        slots = (self.added + np.arange(len(errors))) % len(self.priorities)
        for name, column in batch.items():
            if name not in self.columns:
                shape = len(self.priorities), *column.shape[1:]
                self.columns[name] = np.zeros(shape, column.dtype)
            self.columns[name][slots] = column
        self.update(slots, errors)
        self.added += len(errors)

    def sample(self, count: int) -> tuple[NDArray[np.int64], Batch]:
        """Return the indices and the columns of ``count`` transitions, with their weights."""
        sums = self.priorities[: self.added].cumsum()
        # One sample from each of ``count`` equal intervals has less variance.
        masses = (np.arange(count) + self.random.random(count)) * (sums[-1] / count)
        slots = np.searchsorted(sums[:-1], masses, side="right")
        weights = self.priorities[slots] ** -self.settings.beta
        batch = {name: column[slots] for name, column in self.columns.items()}
        return slots, batch | {"weights": (weights / weights.max()).astype(np.float32)}

    def update(self, slots: NDArray[np.int64], errors: Floats) -> None:
        """Compute the priorities of the transitions ``slots`` from new TD errors."""
        self.priorities[slots] = (errors.astype(np.float64) + 1e-3) ** self.settings.alpha


def td_loss(network: nn.Module, target: nn.Module, batch: Batch) -> tuple[Tensor, Tensor]:
    """Compute the weighted Huber loss and the absolute TD errors, float32 [B]."""
    columns = {name: torch.from_numpy(column) for name, column in batch.items()}
    q_played = network(columns["obs"]).gather(1, columns["action"][:, None])[:, 0]
    with torch.no_grad():
        forbidden = ~columns["next_mask"]
        # Double DQN: the network selects the next action, and the target network evaluates it.
        best = network(columns["next_obs"]).masked_fill(forbidden, -torch.inf).argmax(1)
        q_target = target(columns["next_obs"]).masked_fill(forbidden, -torch.inf)
        future = q_target.gather(1, best[:, None])[:, 0].nan_to_num(neginf=0.0)
        targets = columns["returns"] + columns["discount"] * future
    each = huber_loss(q_played, targets, reduction="none")
    return (columns["weights"] * each).mean(), (q_played.detach() - targets).abs()


def train(settings: Settings) -> QNetwork:
    """Alternate between self-play and updates until a limit is reached.

    Returns:
        The weight average of the network.
    """
    torch.manual_seed(settings.seed)
    side = settings.board_size
    config = replace(TRAINING_DEFAULTS, num_snakes=settings.num_snakes, width=side, height=side)
    games = VectorBattlesnake.from_config(config, settings.num_envs)
    network = QNetwork(games)
    target = copy.deepcopy(network)
    # The weight average is much stronger than the last weights. Half of the average comes from the
    # last sixth of the training.
    mean = AveragedModel(network, avg_fn=lambda mean, now, n: mean + (now - mean) * 4 / (n + 4))
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.lr)
    player, replay = VectorPlayer(games, network, settings), PrioritizedReplayBuffer(settings)
    start, next_target = time.monotonic(), settings.target_every
    env_steps, updates, owed = 0, 0, 0.0
    while time.monotonic() - start < settings.minutes * 60 and env_steps < settings.env_steps:
        turns = player.play()
        replay.add(*make_transitions(turns, settings.n_step, settings.gamma))
        env_steps += int(turns.acted.any(2).sum())
        if env_steps >= settings.learning_starts:
            owed += settings.replay_ratio * int(turns.acted.sum())
        while owed >= settings.batch_size:
            slots, batch = replay.sample(settings.batch_size)
            loss, td_errors = td_loss(network, target, batch)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 40.0)
            optimizer.step()
            mean.update_parameters(network)
            replay.update(slots, td_errors.numpy())
            owed, updates = owed - settings.batch_size, updates + 1
        if env_steps >= next_target:
            target.load_state_dict(network.state_dict())
            next_target = env_steps + settings.target_every
            lives = turns.acted.sum() / max((turns.terminated | turns.truncated).sum(), 1)
            print(f"{env_steps:9,} env steps {updates:6,} updates; snakes live {lives:.0f} turns")
    return mean.module  # type: ignore[return-value]


def measure_win_rate(network: QNetwork, settings: Settings, games: int = 200) -> float:
    """Play ``games`` games against `safe-random` snakes and return the win rate."""
    others, side = ["safe-random"] * (settings.num_snakes - 1), settings.board_size
    return win_rate(
        lambda obs, mask: np.where(mask, network.compute_q_values(obs), -np.inf).argmax(1),
        others, games=games, seed=settings.seed, width=side, height=side,
    )  # fmt: skip


def main() -> None:
    """Train with the settings from the command line, and print the win rate."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, default in asdict(Settings()).items():
        parser.add_argument("--" + name.replace("_", "-"), type=type(default), default=default)
    settings = Settings(**vars(parser.parse_args()))
    rate = measure_win_rate(train(settings), settings)
    print(f"wins {rate:.0%} of 200 games against safe-random")


if __name__ == "__main__":
    main()
