"""Distillation: a policy without a search learns from the search.

The search says in every position what each move is worth, and the policy learns to prefer what it
prefers (cross-entropy to its values' softmax, in the eight ways of a board). In the first round the
search itself plays; in later ones mostly the policy, so that it learns what to do in the
positions it gets into (DAgger: Ross, Gordon and Bagnell 2011, https://arxiv.org/abs/1011.0686).

    python -m battlesnake_rl.mabs.exit.distillation --folder distilled --minutes 60

Everything is in the folder, whole after every round; the same command goes on from it. The newest
policy is ``policy.onnx``.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from tqdm import tqdm

from battlesnake_gym import policy_file
from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.common.files import save_arrays, write_atomically
from battlesnake_gym.env.rivals import Rivals
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_gym.rules import MOVES, Game
from battlesnake_gym.see import observations
from battlesnake_heuristics.search.evaluation import shipped
from battlesnake_heuristics.search.search import Search
from battlesnake_heuristics.search.selfplay import SelfPlaySetup
from battlesnake_rl.mabs.exit.exit_games import RoundProgress
from battlesnake_rl.mabs.policy import symmetry
from battlesnake_rl.mabs.policy.policies import Values, values_of
from battlesnake_rl.mabs.policy.pooled_network import PooledNetwork
from battlesnake_rl.mabs.policy.q_network import bfloat16_pays
from battlesnake_rl.policy_export import export

OBSERVATION, ACTION_MASK = "reach", "forbidden+head"

_SEEN = observations.get(OBSERVATION)


_setup = partial(SelfPlaySetup, opening=11, random_moves=0.04, max_turns=600)

MIX = (
    (0.40, _setup()),
    (0.25, _setup(snakes=4)),
    (0.10, _setup(7, 7)),
    (0.08, _setup(19, 19)),
    (0.06, _setup(ruleset="royale")),
    (0.06, _setup(ruleset="wrapped")),
    (0.05, _setup(ruleset="constrictor")),
)
"""What is played, by its share of the labels."""

AT_ONCE = 32
"""Games."""

NAMED = ("hungry", "cautious", "hunter", "territory", "territory", "territory")
"""Who else plays; the engine moves them."""

SEARCH, POLICY, OTHERS = range(3)
"""Who plays a seat."""

FIRST_ROUND, LATER_ROUNDS = (0.75, 0.0, 0.25), (0.1, 0.7, 0.2)
"""How often each of them does."""

UNIT = 1.0
"""Cells (a tenth of a logit) by which a move is worse that is wanted e times less often."""

WORST = 60.0
"""No move counts as worse than the best by more cells."""

LOSSES, HELD_OUT = 500, 2000
"""Batches whose mean loss is reported; positions of each size that are not learned from."""

BATCH, RATE, WEIGHT_DECAY, WARM_UP, MEAN_OF = 256, 1e-3, 1e-3, 200, 500
"""Of the fit: boards a batch, Adam's rate at first, decoupled decay, batches until the rate is
whole, and batches over which weights are averaged."""


@dataclass(frozen=True, slots=True)
class Labels:
    """Positions as the policy sees them, and what the search says about each move.

    ``frames`` uint8 [n, C, H, W]; ``worse`` float16 [n, 4]: by how many cells a move is worse than
    the best (0) to the search, up to `WORST`, as which moves count that the action mask forbids.
    """

    frames: NDArray[np.uint8]
    worse: NDArray[np.float16]

    def save(self, path: Path) -> None:
        """Write them whole."""
        save_arrays(path, frames=self.frames, worse=self.worse)

    @classmethod
    def load(cls, path: Path) -> Labels:
        """What `save` wrote."""
        with np.load(path) as arrays:
            return cls(arrays["frames"], arrays["worse"])


class SearchPlayers:
    """Who plays which seat, drawn anew for each game."""

    def __init__(
        self,
        vector: VectorBattlesnake,
        setup: SelfPlaySetup,
        shares: Sequence[float],
        rng: np.random.Generator,
    ) -> None:
        self.rivals = Rivals(vector)
        self.kinds = np.zeros((vector.num_games, vector.num_snakes), np.uint8)
        self.opening = np.zeros(vector.num_games, int)
        self.slips = np.zeros(vector.num_games)
        self._setup, self._shares, self._rng = setup, shares, rng
        self.draw(np.ones(vector.num_games, bool))

    def draw(self, games: NDArray[np.bool_]) -> None:
        """New players for these games; not all are others."""
        self.rivals.leave(games)
        learners = [kind for kind in (SEARCH, POLICY) if self._shares[kind]]
        for game in np.flatnonzero(games).tolist():
            self.opening[game] = self._rng.integers(self._setup.opening + 1)
            self.slips[game] = self._rng.choice((0.0, self._setup.random_moves))
            seats = self.kinds.shape[1]
            self.kinds[game] = self._rng.choice(3, seats, p=self._shares)
            self.kinds[game, self._rng.integers(seats)] = learners[-1]
            for seat in np.flatnonzero(self.kinds[game] == OTHERS).tolist():
                name, seed = str(self._rng.choice(NAMED)), int(self._rng.integers(1 << 30))
                self.rivals.seat(game, seat, name, seed)


class Asked:
    """The search, asked for all seats of a batch of games."""

    def __init__(self, vector: VectorBattlesnake, positions: int) -> None:
        self._vector = vector
        self._search = Search(evaluation=shipped(), nodes=positions, exact=True)

    def worse(self, game: int, seat: int, allowed: NDArray[np.bool_]) -> NDArray[np.float16] | None:
        """By how much each move is worse than the best one that is ``allowed`` (bool [4]).

        None where the search sees no choice: every move but one, or every one, ends the game.
        """
        rules = replace(self._vector.game, seed=UNKNOWN_SEED)
        board = Board.from_state(self._vector.games.state(game), rules)
        board.you_id = board.snakes[seat].id
        scores = self._search(board).scores
        values = np.array([scores.get(move, -math.inf) for move in MOVES])
        values[~allowed] = -math.inf
        if np.isfinite(values).sum() < 2:
            return None
        worse: NDArray[np.float16] = np.minimum(values.max() - values, WORST).astype(np.float16)
        return worse


def play(
    setup: SelfPlaySetup,
    moves: int,
    positions: int,
    policy: Values | None,
    seed: int,
    bar: tqdm[Any],
) -> Labels:
    """Play until the search has valued each move of ``moves`` positions.

    The ``policy`` plays most of the seats where there is one.
    """
    rng = np.random.default_rng(seed)
    vector = VectorBattlesnake(
        AT_ONCE,
        setup.snakes,
        setup.width,
        setup.height,
        game=Game(setup.ruleset, settings=setup.settings),
        observation=OBSERVATION,
        action_mask=ACTION_MASK,
        max_turns=setup.max_turns,
    )
    frames, infos = vector.reset(seed=seed)
    players = SearchPlayers(vector, setup, LATER_ROUNDS if policy else FIRST_ROUND, rng)
    search = Asked(vector, positions)
    actions = np.zeros((AT_ONCE, setup.snakes), np.uint8)
    turn = np.zeros(AT_ONCE, int)
    seen: list[NDArray[np.uint8]] = []
    said: list[NDArray[np.float16]] = []
    while len(seen) < moves:
        allowed, before = infos["action_mask"], len(seen)
        players.rivals.move(actions, infos["alive"])
        if policy is not None:
            flat = frames.reshape(-1, *frames.shape[2:]).copy()
            values = np.where(allowed, policy(flat).reshape(allowed.shape), -np.inf)
        for game, seat in np.argwhere(infos["alive"] & (players.kinds != OTHERS)).tolist():
            choices = np.flatnonzero(allowed[game, seat])
            move = choices[0]
            if len(choices) > 1:
                worse = search.worse(game, seat, allowed[game, seat])
                if worse is not None:
                    seen.append(frames[game, seat].copy())
                    said.append(worse)
                    move = worse.argmin()
                if players.kinds[game, seat] == POLICY:
                    move = values[game, seat].argmax()
            if turn[game] < players.opening[game] or rng.random() < players.slips[game]:
                move = rng.choice(choices)
            actions[game, seat] = move
        frames, *_, infos = vector.step(actions)
        turn = np.where(infos["reset"], 0, turn + 1)
        if infos["reset"].any():
            players.draw(infos["reset"])
        bar.update(len(seen) - before)
    return Labels(np.stack(seen), np.stack(said))


def wanted(worse: Tensor) -> Tensor:
    """How often each move is wanted, float [B, 4], from by how much it is worse (`Labels`).

    >>> wanted(torch.tensor([[0.0, 1.0, 60.0, 60.0]])).round(decimals=2).tolist()
    [[0.7300000190734863, 0.27000001072883606, 0.0, 0.0]]
    """
    return torch.softmax(-worse.float() / UNIT, -1)


def loss(values: Tensor, worse: Tensor) -> Tensor:
    """Cross-entropy of what the network (float [B, 4]) prefers to what is wanted, in nats."""
    return -(wanted(worse) * torch.log_softmax(values, -1)).sum(-1).mean()


class Learner:
    """The network, the mean of its weights, and all positions by the size of their boards."""

    def __init__(self, planes: int, seed: int) -> None:
        torch.manual_seed(seed)
        self.network = PooledNetwork(planes)
        self.mean = PooledNetwork(planes)
        self.mean.load_state_dict(self.network.state_dict())
        self._rng = np.random.default_rng(seed)
        self._half = bfloat16_pays(torch.device("cpu"))

    def fit(self, labels: Sequence[Labels], cpu_seconds: float) -> dict[str, float]:
        """Learn for so long, all positions equally; the mean loss and what is known of others."""
        pools, held_out = self._pools(labels)
        shares = np.array([len(pool.worse) for pool in pools], float)
        weights: list[Tensor] = list(self.network.parameters())
        means: list[Tensor] = list(self.mean.parameters())
        optimizer = torch.optim.AdamW(weights, RATE, weight_decay=WEIGHT_DECAY, fused=True)
        losses: list[float] = []
        began = time.process_time()
        while (passed := (time.process_time() - began) / cpu_seconds) < 1:
            rate = RATE * (1 + math.cos(math.pi * passed)) / 2 * min(1, (len(losses) + 1) / WARM_UP)
            optimizer.param_groups[0]["lr"] = rate
            pool = pools[self._rng.choice(len(pools), p=shares / shares.sum())]
            value = self._loss(*self._batch(pool))
            optimizer.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(value.item())
            with torch.no_grad():
                torch._foreach_lerp_(means, weights, max(1 / MEAN_OF, 1 / (len(losses) + 1)))
        return {"loss": float(np.mean(losses[-LOSSES:])), **self._known(held_out)}

    def _pools(self, labels: Sequence[Labels]) -> tuple[list[Labels], list[Labels]]:
        """The positions of each size, and those of them that are not learned."""
        pools, held_out = [], []
        for side in sorted({part.frames.shape[-1] for part in labels}):
            parts = [part for part in labels if part.frames.shape[-1] == side]
            frames = np.concatenate([part.frames for part in parts])
            worse = np.concatenate([part.worse for part in parts])
            kept = np.arange(len(worse)) % max(10, len(worse) // HELD_OUT) == 0
            pools.append(Labels(frames[~kept], worse[~kept]))
            held_out.append(Labels(frames[kept], worse[kept]))
        return pools, held_out

    def _batch(self, pool: Labels) -> tuple[Tensor, Tensor]:
        chosen = self._rng.integers(len(pool.worse), size=BATCH)
        way = int(self._rng.integers(symmetry.WAYS))
        frames = symmetry.turned_frames(pool.frames[chosen], way, _SEEN)
        worse = pool.worse[chosen][:, np.argsort(symmetry.ACTIONS[way])]
        return torch.from_numpy(frames), torch.from_numpy(worse)

    def _loss(self, frames: Tensor, worse: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self._half):
            values = self.network(frames)
        return loss(values, worse)

    @torch.no_grad()
    def _known(self, pools: Sequence[Labels]) -> dict[str, float]:
        """By how many cells what the mean prefers is worse, and how often it is the best move."""
        given: list[NDArray[np.float16]] = []
        for pool in pools:
            for begin in range(0, len(pool.worse), BATCH):
                frames = torch.from_numpy(pool.frames[begin : begin + BATCH])
                worse = pool.worse[begin : begin + BATCH]
                values = np.where(worse < WORST, self.mean(frames).numpy(), -np.inf)
                given.append(np.take_along_axis(worse, values.argmax(-1)[:, None], -1))
        lost = np.concatenate(given).astype(float)
        return {"regret": float(lost.mean()), "best": float((lost == 0).mean())}

    def state(self) -> dict[str, Any]:
        """What `restore` takes."""
        return {"network": self.network.state_dict(), "mean": self.mean.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave."""
        self.network.load_state_dict(state["network"])
        self.mean.load_state_dict(state["mean"])


class DistillationRun:
    """A folder in which a policy learns; `round` is one round more."""

    def __init__(self, folder: Path, seed: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.progress = RoundProgress.of(folder)
        self.learner = Learner(len(_SEEN.planes), seed)
        self._seed = seed
        if self.progress.rounds:
            self.learner.restore(torch.load(folder / "network.pt", weights_only=True))

    def round(self, moves: int, positions: int, fit_minutes: float) -> dict[str, Any]:
        """Play, ask, learn, save; returns the figures of the round."""
        began, number = time.process_time(), self.progress.rounds
        policy = values_of(self.learner.mean) if number else None
        for index, (share, setup) in enumerate(MIX):
            path = self.folder / f"labels-{number:02}-{index}.npz"
            if path.exists():  # of a round that was interrupted
                continue
            count = round(moves * share)
            seed = 1 + 1000 * self._seed + 100 * number + index
            title = f"round {number}, {setup.snakes} on {setup.width}, {setup.ruleset}"
            with tqdm(total=count, desc=title, unit="position", leave=False, disable=None) as bar:
                play(setup, count, positions, policy, seed, bar).save(path)
        played = time.process_time() - began
        labels = [Labels.load(path) for path in sorted(self.folder.glob("labels-*.npz"))]
        losses = self.learner.fit(labels, 60 * fit_minutes)
        self.progress.rounds += 1
        self.progress.moves = sum(len(part.worse) for part in labels)
        self.progress.cpu_seconds += time.process_time() - began
        self._save()
        return {
            "round": number,
            "cpu_seconds": round(self.progress.cpu_seconds),
            "playing": round(played),
            "positions": self.progress.moves,
            **{name: round(value, 4) for name, value in losses.items()},
        }

    def _save(self) -> None:
        state = self.learner.state()
        write_atomically(self.folder / "network.pt", lambda part: torch.save(state, part))
        export_policy(self.learner.mean, self.folder / "policy.onnx", self.progress)
        self.progress.save(self.folder)


def export_policy(network: nn.Module, path: Path, progress: RoundProgress) -> Path:
    """Write ``policy.onnx`` for the boards and rules of `MIX`, and what it learned from."""
    export(
        network,
        OBSERVATION,
        list(dict.fromkeys((setup.width, setup.height) for _, setup in MIX)),
        path,
        ruleset=list(dict.fromkeys(setup.ruleset for _, setup in MIX)),
        action_mask=ACTION_MASK,
        num_snakes=max(setup.snakes for _, setup in MIX),
        any_size=True,
    )
    _, metadata = policy_file.read(path)
    metadata["training"] |= {
        "algorithm": "distillation",
        "rounds": progress.rounds,
        "positions": progress.moves,
        "cpu_seconds": round(progress.cpu_seconds),
    }
    policy_file.write_metadata(path, metadata)
    return path


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the options and learn until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("distilled"), help="of the run")
    parser.add_argument("--minutes", type=float, default=60.0, help="of CPU time, in all")
    parser.add_argument("--moves", type=int, default=150_000, help="positions a round")
    parser.add_argument("--positions", type=int, default=1500, help="of the search for each")
    parser.add_argument("--fit-minutes", type=float, default=6.0, help="of CPU time a round")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    run = DistillationRun(args.folder, args.seed)
    while run.progress.cpu_seconds < 60 * args.minutes:
        line = json.dumps(run.round(args.moves, args.positions, args.fit_minutes))
        tqdm.write(line)
        sys.stdout.flush()
        with (args.folder / "rounds.jsonl").open("a") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()
