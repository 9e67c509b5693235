"""What expert iteration learns: labels of the search's games, and the network fitted to them.

`label_with_td_lambda` makes samples of games of `battlesnake_heuristics.search.self_play`, by TD(lambda) over
the search's own values; `EvaluationModel.fit` fits a network in floats, `EvaluationModel.evaluation` rounds it to what
the C code plays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from battlesnake_gym.common.files import save_arrays
from battlesnake_heuristics.search import _search
from battlesnake_heuristics.search.evaluation import (
    HIDDEN1,
    HIDDEN2,
    INPUT_UNIT,
    MAX_ACTIVATION,
    MAX_WEIGHT,
    NUM_DUEL_INPUTS,
    NUM_INPUTS,
    STACKS,
    WEIGHT_UNIT,
    Evaluation,
)
from battlesnake_heuristics.search.quantization import FloatLayers, quantize
from battlesnake_heuristics.search.self_play import ROW_RANDOM, ROW_SEARCHED_RANDOM, SelfPlayBatch

TD_LAMBDA = 0.95
_MAX_ESTIMATE = 300_000
"""Values of the search beyond this are no estimates but ends of games."""
_PROVEN_VALUE_SCORES = (
    (-math.inf, -900_000, 0.0),
    (-900_000, -_MAX_ESTIMATE + 1, 0.25),
    (_MAX_ESTIMATE, math.inf, 1.0),
)
"""Losses for certain, draws and losses that one of several rivals could bring about, and wins: the
values from and to (thousandths of a cell), and the points that they promise."""
_MAX_HIDDEN = MAX_ACTIVATION / INPUT_UNIT
_VALUE_PER_LOGIT = 10_000
"""What the C code makes of a logit of 1, in thousandths of a cell."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Samples:
    """What is fitted: ``inputs`` int16 [n, INPUTS], ``living`` uint8 [n], ``target`` float32 [n].

    The target is the share of a game's one point that the snake may expect.
    """

    inputs: NDArray[np.int16]
    living: NDArray[np.uint8]
    target: NDArray[np.float32]

    @classmethod
    def joined(cls, parts: Sequence[Samples]) -> Samples:
        """All parts one after the other."""
        return cls(
            np.concatenate([part.inputs for part in parts]),
            np.concatenate([part.living for part in parts]),
            np.concatenate([part.target for part in parts]),
        )

    def save(self, path: Path) -> None:
        """Write them to ``path``, whole or not at all."""
        save_arrays(path, inputs=self.inputs, living=self.living, target=self.target)

    @classmethod
    def load(cls, path: Path) -> Samples:
        """What `save` wrote."""
        with np.load(path) as kept:
            return cls(kept["inputs"], kept["living"], kept["target"])


# ---- labels ----


def expected_scores(values: NDArray[np.int32], living: NDArray[np.uint8], points: Floats) -> Floats:
    """The search's values as expected points, by what came of such values in these very games.

    One logistic curve for each number of living snakes; decided games get their mean points, since
    with several rivals a proof of the search need not hold.
    """
    out = np.zeros(len(values))
    for count in np.unique(living):
        those = living == count
        value, won = values[those].astype(float) / _VALUE_PER_LOGIT, points[those]
        chance = np.zeros(len(value))
        for low, high, expected in _PROVEN_VALUE_SCORES:
            decided = (value >= low / _VALUE_PER_LOGIT) & (value < high / _VALUE_PER_LOGIT)
            # a little of what is expected, so that a few games decide nothing
            chance[decided] = (won[decided].sum() + 5 * expected) / (decided.sum() + 5)
        open_ = np.abs(value) < _MAX_ESTIMATE / _VALUE_PER_LOGIT
        slope, bias = _logistic(value[open_], won[open_])
        chance[open_] = 1 / (1 + np.exp(-(slope * value[open_] + bias)))
        out[those] = chance
    return out


def _logistic(value: Floats, won: Floats, steps: int = 20) -> tuple[float, float]:
    """Slope and bias of a logistic curve by Newton's method, drawn a little towards (1, 0)."""
    beta = np.array([1.0, 0.0])
    design = np.stack([np.clip(value, -20, 20), np.ones_like(value)], axis=1)
    for _ in range(steps):
        chance = 1 / (1 + np.exp(-np.clip(design @ beta, -30, 30)))
        gradient = design.T @ (won - chance) - 1.0 * (beta - (1, 0))
        curve = (design * (chance * (1 - chance))[:, None]).T @ design + np.eye(2)
        step = np.linalg.solve(curve, gradient)
        beta += np.clip(step, -1, 1)
    return float(max(beta[0], 0.01)), float(beta[1])


def label_with_td_lambda(games: SelfPlayBatch, td_lambda: float = TD_LAMBDA) -> Samples:
    """Samples of all searched rows, labelled by TD(lambda).

    The rows must be of players whose values mean the same, and of many games, since `chances` are
    counted from the games. The label of a position is the points to come: the search's own value
    there, mixed with the label of the same snake's next position. A move made at random breaks the
    chain, since what follows is not what the search meant.
    """
    rows = games.rows
    searched = rows["kind"] != ROW_RANDOM
    rows, game = rows[searched], games.game[searched]
    points = games.points[game, rows["seat"]]
    finished = games.finished[game]
    chance = expected_scores(rows["value"], rows["living"], points)
    order = np.lexsort((rows["turn"], rows["seat"], game))
    key = game[order].astype(np.int64) * 16 + rows["seat"][order]
    last = np.append(key[1:] != key[:-1], True)
    ordered, kinds = chance[order], rows["kind"][order]
    target = np.empty(len(order))
    following = 0.0
    ends = np.where(finished[order], points[order], ordered)
    for i in range(len(order) - 1, -1, -1):
        if last[i]:
            following = ends[i]
        if kinds[i] == ROW_SEARCHED_RANDOM:
            following = ordered[i]
        following = (1 - td_lambda) * ordered[i] + td_lambda * following
        target[i] = following
    return Samples(rows["inputs"][order], rows["living"][order], target.astype(np.float32))


# ---- the network ----


class LayerStack(nn.Module):
    """The network for one number of living snakes, as the C code computes it, in floats."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, HIDDEN1)
        self.second = nn.Linear(HIDDEN1, HIDDEN2)
        self.last = nn.Linear(HIDDEN2, 1)
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("deviation", torch.ones(inputs))
        self.mean: Tensor
        self.deviation: Tensor

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [n] of inputs [n, inputs], in units of 1."""
        hidden = self.first((inputs - self.mean) / self.deviation).clamp(0, _MAX_HIDDEN)
        logits: Tensor = self.last(self.second(hidden).clamp(0, _MAX_HIDDEN))
        return logits[:, 0]

    @torch.no_grad()
    def clamp_weights(self) -> None:
        """Keep every weight where its whole number fits."""
        limit = (MAX_WEIGHT - 1) / WEIGHT_UNIT
        bound = limit * self.deviation
        self.first.weight.copy_(torch.minimum(torch.maximum(self.first.weight, -bound), bound))
        self.second.weight.clamp_(-limit, limit)
        self.last.weight.clamp_(-limit, limit)

    @torch.no_grad()
    def float_layers(self) -> FloatLayers:
        """The weights for inputs as they are, padded to all inputs."""
        first = np.zeros((HIDDEN1, NUM_INPUTS))
        scaled = (self.first.weight / self.deviation).numpy().astype(np.float64)
        first[:, : scaled.shape[1]] = scaled
        return {
            "first": first,
            "first_bias": self.first.bias.numpy() - scaled @ self.mean.numpy(),
            "second": self.second.weight.numpy(),
            "second_bias": self.second.bias.numpy(),
            "last": self.last.weight.numpy()[0],
            "last_bias": self.last.bias.numpy()[0],
        }


class EvaluationModel:
    """Three stacks: for two, three, and more living snakes."""

    def __init__(self) -> None:
        self.stacks = [LayerStack(NUM_DUEL_INPUTS if i == 0 else NUM_INPUTS) for i in range(STACKS)]
        self.started = [False] * STACKS

    def state(self) -> dict[str, Any]:
        """All weights, to go on from."""
        return {"stacks": [s.state_dict() for s in self.stacks], "started": self.started}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        for stack, weights in zip(self.stacks, state["stacks"], strict=True):
            stack.load_state_dict(weights)
        self.started = list(state["started"])

    def evaluation(self, facts: Mapping[str, Any]) -> Evaluation:
        """The network in whole numbers."""
        return Evaluation(quantize([stack.float_layers() for stack in self.stacks]), facts)

    def fit(
        self,
        samples: Samples,
        epochs: float,
        rate: float = 2e-3,
        batch: int = 2048,
        seed: int = 0,
        after_step: Callable[[], None] = lambda: None,
    ) -> list[float]:
        """Fit every stack to its samples; the loss of each at its end (NaN: no samples).

        What ``after_step`` raises leaves the fit half done.
        """
        generator = torch.Generator().manual_seed(seed)
        losses = []
        for number, stack in enumerate(self.stacks):
            those = stack_of(samples.living) == number
            if those.sum() < batch:
                losses.append(math.nan)
                continue
            width = stack.first.in_features
            inputs = torch.from_numpy(samples.inputs[those][:, :width])
            target = torch.from_numpy(samples.target[those])
            if not self.started[number]:
                some = inputs[:200_000].float() / INPUT_UNIT
                stack.mean.copy_(some.mean(0))
                stack.deviation.copy_(some.std(0).clamp(min=0.15))
                self.started[number] = True
            losses.append(
                _fit_stack(stack, inputs, target, epochs, rate, batch, generator, after_step)
            )
        return losses


def _fit_stack(
    stack: LayerStack,
    inputs: Tensor,
    target: Tensor,
    epochs: float,
    rate: float,
    batch: int,
    generator: torch.Generator,
    after_step: Callable[[], None],
) -> float:
    optimizer = torch.optim.Adam(stack.parameters(), lr=rate, weight_decay=1e-6)
    steps = max(1, round(epochs * len(inputs) / batch))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=rate / 50)
    order = torch.randperm(len(inputs), generator=generator)
    at, recent = 0, 0.0
    for _ in range(steps):
        if at + batch > len(order):
            order, at = torch.randperm(len(inputs), generator=generator), 0
        chosen, at = order[at : at + batch], at + batch
        logits = stack(inputs[chosen].float() / INPUT_UNIT)
        loss = nn.functional.binary_cross_entropy_with_logits(logits, target[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        stack.clamp_weights()
        recent += 0.01 * (loss.item() - recent) if recent else loss.item()
        after_step()
    return recent


def stack_of(living: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Which stack values a position, by its living snakes."""
    return np.clip(living.astype(np.int64), 2, 1 + STACKS) - 2


def quantized_loss(evaluation: Evaluation, samples: Samples) -> float:
    """The mean cross-entropy of the C code's own values: what rounding has cost shows here."""
    total = 0.0
    for living in np.unique(samples.living):
        those = samples.living == living
        inputs = np.ascontiguousarray(samples.inputs[those])
        values = _search.evaluate_batch(0, evaluation.network_bytes, inputs, int(living))
        assert values is not None  # plain code runs everywhere
        logits = np.frombuffer(values, np.int32) / _VALUE_PER_LOGIT
        target = samples.target[those]
        total += float((np.logaddexp(0, logits) - target * logits).sum())
    return total / len(samples.target)
