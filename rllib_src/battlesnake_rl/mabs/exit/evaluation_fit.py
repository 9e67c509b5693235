"""TD(lambda) labels of self-play games, and fits of the evaluation network.

`Samples.from_games` labels positions of games of `battlesnake_heuristics.search.self_play`. The
labels apply TD(lambda) to the values of the search. `EvaluationModel.fit` fits a float network.
`EvaluationModel.to_evaluation` quantizes the network for the C code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
_MIN_PROVEN_VALUE = 300_000
"""Minimum absolute search value of a proven position, in thousandths of a cell."""
_PROVEN_VALUE_SCORES = (
    (-math.inf, -900_000, 0.0),
    (-900_000, -_MIN_PROVEN_VALUE + 1, 0.25),
    (_MIN_PROVEN_VALUE, math.inf, 1.0),
)
"""Lower bound, upper bound and expected score of each class of proven values.

The bounds are in thousandths of a cell. The first class contains losses that all opponents can
force. The second class contains draws, and losses that one of several opponents can force. The
third class contains wins.
"""
_MAX_HIDDEN_ACTIVATION = MAX_ACTIVATION / INPUT_UNIT
_VALUE_PER_LOGIT = 10_000
"""Search value that corresponds to a logit of 1, in thousandths of a cell."""

Floats = NDArray[np.float64]


class Samples(NamedTuple):
    """Labeled positions for a fit.

    Attributes:
        inputs: int16 (M, NUM_INPUTS), inputs of the evaluation.
        living: uint8 (M,), number of living snakes.
        target: float32 (M,), expected score of the snake, in [0, 1].
    """

    inputs: NDArray[np.int16]
    living: NDArray[np.uint8]
    target: NDArray[np.float32]

    @classmethod
    def from_games(cls, games: SelfPlayBatch, td_lambda: float = TD_LAMBDA) -> Samples:
        """Label the searched positions of many games with TD(lambda).

        A label is the weighted mean of the position's expected score and the label of the same
        snake's next position. A random move ends this chain, because the search did not select the
        move.

        Args:
            games: Games of players whose values have the same scale; `_expected_scores` is
                calibrated on these games.
            td_lambda: Weight of the next position's label, in [0, 1].

        Returns:
            Samples ordered by game, seat and turn.
        """
        rows = games.rows
        searched = rows["kind"] != ROW_RANDOM
        rows, game = rows[searched], games.game[searched]
        points = games.points[game, rows["seat"]]
        # Eliminated snakes have no points, even in a game that reaches the turn limit.
        decided = games.finished[game] | (points == 0)
        scores = _expected_scores(rows["value"], rows["living"], points)
        order = np.lexsort((rows["turn"], rows["seat"], game))
        key = game[order].astype(np.int64) * 16 + rows["seat"][order]
        last = np.append(key[1:] != key[:-1], True)
        ordered, kinds = scores[order], rows["kind"][order]
        target = np.empty(len(order))
        following = 0.0
        ends = np.where(decided[order], points[order], ordered)
        for i in range(len(order) - 1, -1, -1):
            if last[i]:
                following = ends[i]
            if kinds[i] == ROW_SEARCHED_RANDOM:
                following = ordered[i]
            following = (1 - td_lambda) * ordered[i] + td_lambda * following
            target[i] = following
        return cls(rows["inputs"][order], rows["living"][order], target.astype(np.float32))

    @classmethod
    def concatenate(cls, parts: Sequence[Samples]) -> Samples:
        """Return the samples of all ``parts``, in order."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def subsample(self, fraction: float, seed: int) -> Samples:
        """Return randomly chosen samples, without replacement.

        A fraction suffices, because samples of one game are correlated.

        Args:
            fraction: Fraction of the samples, in (0, 1]; the number is rounded up.
            seed: Seed of the random choice.
        """
        count = len(self.living)
        chosen = np.random.default_rng(seed).permutation(count)[: math.ceil(fraction * count)]
        return Samples._make(one[chosen] for one in self)

    def quantized_loss(self, evaluation: Evaluation) -> float:
        """Return the mean cross-entropy of the quantized network on these samples."""
        total = 0.0
        for living in np.unique(self.living):
            those = self.living == living
            inputs = np.ascontiguousarray(self.inputs[those])
            values = _search.evaluate_batch(0, evaluation.network_bytes, inputs, int(living))
            assert values is not None  # The portable kernel runs on every processor.
            logits = np.frombuffer(values, np.int32) / _VALUE_PER_LOGIT
            target = self.target[those]
            total += float((np.logaddexp(0, logits) - target * logits).sum())
        return total / len(self.target)

    def save(self, path: Path) -> None:
        """Write the samples to ``path`` atomically."""
        save_arrays(path, **self._asdict())

    @classmethod
    def load(cls, path: Path) -> Samples:
        """Load the samples from a file that `save` wrote."""
        with np.load(path) as kept:
            return cls(**kept)


def _expected_scores(
    values: NDArray[np.int32], living: NDArray[np.uint8], points: Floats
) -> Floats:
    """Convert search values to expected scores.

    The conversion is calibrated on the scores of the games. One logistic curve is fitted per number
    of living snakes. The expected score of a proven value is the mean score of its class. A proof
    of the search may be wrong against several opponents.

    Args:
        values: int32 (M,), search values in thousandths of a cell.
        living: uint8 (M,), number of living snakes.
        points: float64 (M,), score of the snake in its game.

    Returns:
        float64 (M,), expected scores in [0, 1].
    """
    out = np.zeros(len(values))
    for count in np.unique(living):
        chosen = living == count
        value, won = values[chosen].astype(float) / _VALUE_PER_LOGIT, points[chosen]
        scores = np.zeros(len(value))
        for low, high, expected in _PROVEN_VALUE_SCORES:
            decided = (value >= low / _VALUE_PER_LOGIT) & (value < high / _VALUE_PER_LOGIT)
            # The prior counts as five samples, so the scores of a few games have little effect.
            scores[decided] = (won[decided].sum() + 5 * expected) / (decided.sum() + 5)
        open_ = np.abs(value) < _MIN_PROVEN_VALUE / _VALUE_PER_LOGIT
        slope, bias = _fit_logistic_curve(value[open_], won[open_])
        scores[open_] = 1 / (1 + np.exp(-(slope * value[open_] + bias)))
        out[chosen] = scores
    return out


def _fit_logistic_curve(value: Floats, won: Floats, steps: int = 20) -> tuple[float, float]:
    """Fit the slope and bias of a logistic curve with Newton's method.

    The prior is Gaussian with mean slope 1 and mean bias 0.
    """
    beta = np.array([1.0, 0.0])
    design = np.stack([np.clip(value, -20, 20), np.ones_like(value)], axis=1)
    for _ in range(steps):
        scores = 1 / (1 + np.exp(-np.clip(design @ beta, -30, 30)))
        gradient = design.T @ (won - scores) - 1.0 * (beta - (1, 0))
        curve = (design * (scores * (1 - scores))[:, None]).T @ design + np.eye(2)
        step = np.linalg.solve(curve, gradient)
        beta += np.clip(step, -1, 1)
    return float(max(beta[0], 0.01)), float(beta[1])


class _LayerStack(nn.Module):
    """Float network of one stack: for two, three, or at least four living snakes.

    The architecture equals the architecture in the C code.
    """

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
        """Return logits, float32 (M,), of ``inputs``, float32 (M, inputs)."""
        hidden = self.first((inputs - self.mean) / self.deviation).clamp(0, _MAX_HIDDEN_ACTIVATION)
        logits: Tensor = self.last(self.second(hidden).clamp(0, _MAX_HIDDEN_ACTIVATION))
        return logits[:, 0]

    @torch.no_grad()
    def clamp_weights(self) -> None:
        """Clamp every weight to the range of its quantized value."""
        limit = (MAX_WEIGHT - 1) / WEIGHT_UNIT
        bound = limit * self.deviation
        self.first.weight.copy_(torch.minimum(torch.maximum(self.first.weight, -bound), bound))
        self.second.weight.clamp_(-limit, limit)
        self.last.weight.clamp_(-limit, limit)

    @torch.no_grad()
    def to_float_layers(self) -> FloatLayers:
        """Return the weights for unnormalized inputs, with zeros for unused inputs."""
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
    """Evaluation network with three layer stacks.

    The stacks are for two, for three, and for four or more living snakes.
    """

    def __init__(self) -> None:
        self.stacks = [
            _LayerStack(NUM_DUEL_INPUTS if i == 0 else NUM_INPUTS) for i in range(STACKS)
        ]
        self.started = [False] * STACKS

    def get_state(self) -> dict[str, Any]:
        """Return all weights, for `set_state`."""
        return {"stacks": [s.state_dict() for s in self.stacks], "started": self.started}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Restore the weights that `get_state` returned."""
        for stack, weights in zip(self.stacks, state["stacks"], strict=True):
            stack.load_state_dict(weights)
        self.started = list(state["started"])

    def to_evaluation(self, metadata: Mapping[str, Any]) -> Evaluation:
        """Return the quantized network with ``metadata`` for its file."""
        return Evaluation(quantize([stack.to_float_layers() for stack in self.stacks]), metadata)

    def fit(
        self,
        samples: Samples,
        epochs: float,
        rate: float = 2e-3,
        batch: int = 2048,
        seed: int = 0,
        after_step: Callable[[], None] = lambda: None,
    ) -> list[float]:
        """Fit every stack to its samples.

        Args:
            samples: Samples for all stacks.
            epochs: Number of passes over the samples.
            rate: Initial learning rate.
            batch: Number of samples per step.
            seed: Random seed of the order of the samples.
            after_step: Function called after each step; an exception aborts the fit.

        Returns:
            Moving average of the loss of each stack at the end of the fit. The loss is NaN for a
            stack with fewer samples than one batch.
        """
        generator = torch.Generator().manual_seed(seed)
        losses = []
        for number, stack in enumerate(self.stacks):
            those = _stack_indices(samples.living) == number
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
            optimizer = torch.optim.Adam(stack.parameters(), lr=rate, weight_decay=1e-6)
            steps = max(1, round(epochs * len(inputs) / batch))
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(
                optimizer, steps, eta_min=rate / 50
            )
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
            losses.append(recent)
        return losses


def _stack_indices(living: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the index of the stack for each number of living snakes, int64 (M,)."""
    return np.clip(living.astype(np.int64), 2, 1 + STACKS) - 2
