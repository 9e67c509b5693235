"""Expert iteration (Anthony, Tian and Barber 2017) in one file.

    python reference/exit.py --minutes 2

A search is stronger than the network that evaluates its leaves. The search therefore plays against
itself, and the training fits the network to the outcomes and to the search values. The next search
is then stronger. One iteration consists of four steps:

    play      games of the C search with the champion's network
    label     compute value targets of all positions by TD(lambda)
    fit       fit the networks to the positions of the last iterations
    match     play the new network against the champion; unless it is weaker, it is the new champion

The script saves the champion as a file for `battlesnake_heuristics.search.search`.
`battlesnake_rl.mabs.exit.exit` implements the same algorithm on many processes. That implementation
also plays earlier networks, handcrafted evaluations with other weights, larger boards and other
rulesets, saves checkpoints and measures Elo. `tests/reference/test_exit.py` compares the labels and
the fit of the two implementations.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from battlesnake_heuristics.rating.sprt import EloEstimate, Sprt
from battlesnake_heuristics.search import evaluation, self_play
from battlesnake_heuristics.search.quantization import FloatLayers, quantize
from battlesnake_heuristics.search.self_play import SearchPlayer, SelfPlayBatch
from battlesnake_heuristics.search.self_play import SelfPlaySettings as Setup

GAME_MIX = (
    (0.4, Setup()),
    (0.3, Setup(num_snakes=4)),
    (0.2, Setup(num_snakes=3)),
    (0.1, Setup(7, 7)),
)
"""Game settings, each with its fraction of the moves."""
MOVES_PER_ITERATION, BUFFER_ITERATIONS = 30_000, 16
"""Searched moves per iteration, and iterations in the sample buffer."""
NODE_CHOICES = (100, 150, 200, 300)
"""Node limits per move.

For each game setting of an iteration, one of these limits is chosen at random.
"""
TD_LAMBDA = 0.95
"""TD(lambda): weight of the next position's label.

The rest weights the position's own value.
"""
LOGIT_VALUE, MIN_PROVEN_VALUE = 10_000, 300_000
"""Search value of one logit, and minimum absolute value of a proof.

A position with at least this absolute search value is proven. Search values are in 1/1000 cell.
"""
BATCH_SIZE = 2048
"""Number of positions per gradient step."""
MAX_MATCH_PAIRS, MATCH_NODES = 40, 100
"""Maximum number of game pairs in a match, and node limit per move."""

Floats = NDArray[np.float64]
Samples = tuple[NDArray[np.int16], NDArray[np.uint8], NDArray[np.float32]]
"""Inputs [n, INPUTS], numbers of living snakes [n] and labels [n] of n positions."""


def label_positions(games: SelfPlayBatch) -> Samples:
    """Label all searched positions with TD(lambda).

    The recursion runs backwards over the positions of one snake in one game. A label is the
    weighted mean of the position's expected score and the label of the snake's next position. For
    the last position, the score of the game replaces the next label.
    """
    searched = games.rows["kind"] != self_play.ROW_RANDOM
    rows, game = games.rows[searched], games.game[searched]
    points = games.points[game, rows["seat"]]
    scores = expected_scores(rows["value"], rows["living"], points)
    order = np.lexsort((rows["turn"], rows["seat"], game))
    label = np.empty(len(rows))
    later, whose = 0.0, (-1, -1)
    for i in order[::-1]:
        if whose != (game[i], rows["seat"][i]):  # This position is the last of a snake in its game.
            whose = game[i], rows["seat"][i]
            # Eliminated snakes have no points, even in a game that reaches the turn limit.
            decided = games.finished[game[i]] or points[i] == 0
            later = points[i] if decided else scores[i]
        if rows["kind"][i] == self_play.ROW_SEARCHED_RANDOM:
            later = scores[i]  # The outcome after a random move is not informative.
        label[i] = later = (1 - TD_LAMBDA) * scores[i] + TD_LAMBDA * later
    rows = rows[order]
    return rows["inputs"], rows["living"], label[order].astype(np.float32)


def expected_scores(values: NDArray[np.int32], living: NDArray[np.uint8], points: Floats) -> Floats:
    """Convert search values to expected scores, fitted to the outcomes of these games.

    A proven value becomes the mean score of its category. The categories are a proven loss, an end
    that one of several opponents could cause, and a proven win. A logistic curve maps all other
    values. Each number of living snakes has its own fit, because an advantage is less valuable
    among four snakes than in a duel.
    """
    scores = np.zeros(len(values))
    for count in np.unique(living):
        for low, high, default in (
            (-math.inf, -900_000, 0.0),
            (-900_000, 1 - MIN_PROVEN_VALUE, 0.25),
            (MIN_PROVEN_VALUE, math.inf, 1.0),
        ):
            chosen = (living == count) & (values >= low) & (values < high)
            # Five pseudo-games with the expected outcome regularize small samples.
            scores[chosen] = (points[chosen].sum() + 5 * default) / (chosen.sum() + 5)
        chosen = (living == count) & (np.abs(values) < MIN_PROVEN_VALUE)
        scores[chosen] = _fit_logistic_curve(values[chosen] / LOGIT_VALUE, points[chosen])
    return scores


def _fit_logistic_curve(value: Floats, points: Floats) -> Floats:
    """Fit a logistic curve by Newton's method and apply the curve to ``value``.

    The prior is centered on slope 1 and bias 0.
    """
    slope_and_bias = default = np.array([1.0, 0.0])
    terms = np.stack([np.clip(value, -20, 20), np.ones_like(value)], 1)
    for _ in range(20):
        scores = _sigmoid(terms @ slope_and_bias)
        gradient = terms.T @ (points - scores) - (slope_and_bias - default)
        curvature = (terms.T * (scores * (1 - scores))) @ terms + np.eye(2)
        slope_and_bias = slope_and_bias + np.clip(np.linalg.solve(curvature, gradient), -1, 1)
    return _sigmoid(max(slope_and_bias[0], 0.01) * value + slope_and_bias[1])


def _sigmoid(logits: Floats) -> Floats:
    """Compute the logistic function."""
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -30, 30))))


class Network(nn.Module):
    """Network that maps the inputs of a position to the logit of the score.

    The network has two hidden layers. Activations are clamped to [0, `MAX_ACTIVATION` /
    `INPUT_UNIT`], because the C code computes with integers. Weights are clamped to the range of
    the quantized weights for the same reason.
    """

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, evaluation.HIDDEN1)
        self.second = nn.Linear(evaluation.HIDDEN1, evaluation.HIDDEN2)
        self.last = nn.Linear(evaluation.HIDDEN2, 1)
        self.mean, self.deviation = nn.Buffer(torch.zeros(inputs)), nn.Buffer(torch.ones(inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the logits, float32 [n], of inputs [n, inputs]."""
        top = evaluation.MAX_ACTIVATION / evaluation.INPUT_UNIT
        hidden = self.first((inputs - self.mean) / self.deviation).clamp(0, top)
        return torch.flatten(self.last(self.second(hidden).clamp(0, top)))

    @torch.no_grad()
    def clamp_weights(self) -> None:
        """Clamp each weight to the range of 16-bit quantized weights."""
        most = (evaluation.MAX_WEIGHT - 1) / evaluation.WEIGHT_UNIT
        scaled = most * self.deviation
        self.first.weight.copy_(self.first.weight.clamp(-scaled, scaled))
        self.second.weight.clamp_(-most, most)
        self.last.weight.clamp_(-most, most)

    @torch.no_grad()
    def to_float_layers(self) -> FloatLayers:
        """Return the layers for raw inputs, which include the normalization of the inputs."""
        first = (self.first.weight / self.deviation).double().numpy()
        return {
            "first": np.pad(first, ((0, 0), (0, evaluation.NUM_INPUTS - first.shape[1]))),
            "first_bias": self.first.bias.numpy() - first @ self.mean.numpy(),
            "second": self.second.weight.numpy(),
            "second_bias": self.second.bias.numpy(),
            "last": self.last.weight.numpy()[0],
            "last_bias": self.last.bias.numpy()[0],
        }


def create_networks() -> list[Network]:
    """Create untrained networks for two, three, and more living snakes."""
    duels, others = evaluation.NUM_DUEL_INPUTS, evaluation.NUM_INPUTS
    return [Network(inputs) for inputs in (duels, others, others)]


def fit_networks(
    nets: Sequence[Network], samples: Samples, epochs: float, rate: float, seed: int
) -> list[float]:
    """Fit each network to its positions with Adam and a cosine schedule.

    Returns:
        The running mean of the cross-entropy of each network; NaN for a network with too few
        positions.
    """
    all_inputs, living, label = samples
    generator = torch.Generator().manual_seed(seed)
    losses = [math.nan] * len(nets)
    for number, net in enumerate(nets):
        mine = np.clip(living, 2, 4) == 2 + number
        if mine.sum() < BATCH_SIZE:
            continue
        inputs = torch.from_numpy(all_inputs[mine][:, : net.first.in_features])
        target = torch.from_numpy(label[mine])
        if not net.mean.any():  # The first positions determine the normalization of the inputs.
            some = inputs[:200_000].float() / evaluation.INPUT_UNIT
            net.mean.copy_(some.mean(0))
            net.deviation.copy_(some.std(0).clamp(min=0.15))
        optimizer = torch.optim.Adam(net.parameters(), lr=rate, weight_decay=1e-6)
        steps = max(1, round(epochs * len(inputs) / BATCH_SIZE))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=rate / 50)
        waiting = torch.empty(0, dtype=torch.int64)
        for step in range(steps):
            if len(waiting) < BATCH_SIZE:
                waiting = torch.randperm(len(inputs), generator=generator)
            batch, waiting = waiting[:BATCH_SIZE], waiting[BATCH_SIZE:]
            logits = net(inputs[batch].float() / evaluation.INPUT_UNIT)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, target[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            net.clamp_weights()
            losses[number] = 0.99 * losses[number] + 0.01 * loss.item() if step else loss.item()
    return losses


def quantize_evaluation(nets: Sequence[Network], moves: int) -> evaluation.Evaluation:
    """Quantize the networks and add the metadata that the search requires."""
    games = {"rulesets": ["standard"], "maps": ["standard"], "snakes": [2, 3, 4]}
    trained_for = games | {"sizes": sorted({(setup.width, setup.height) for _, setup in GAME_MIX})}
    facts = {"trained_for": trained_for, "command": "reference/exit.py", "moves": moves}
    return evaluation.Evaluation(quantize([net.to_float_layers() for net in nets]), facts)


def play_games(champion: evaluation.Evaluation | None, moves: int, seed: int) -> SelfPlayBatch:
    """Play self-play games of the search in all settings of `GAME_MIX`.

    The search uses the network of ``champion``, or the handcrafted evaluation for None.
    """
    rng, parts = np.random.default_rng(seed), []
    for number, (share, setup) in enumerate(GAME_MIX):
        player = SearchPlayer(champion, nodes=int(rng.choice(NODE_CHOICES)))
        players = [player] * setup.num_snakes
        first_seed, count = seed + 10_000 * number, round(share * moves)
        parts.append(self_play.play_games(first_seed, setup, players, count))
    return SelfPlayBatch.concatenate(parts)


def passes_sprt(
    candidate: evaluation.Evaluation, champion: evaluation.Evaluation | None, seed: int
) -> bool:
    """Play game pairs until a sequential test decides.

    The test ends after `MAX_MATCH_PAIRS` pairs at the latest.

    Returns:
        Whether ``candidate`` passes, that is, whether the candidate is probably not weaker.
    """
    test, pairs = Sprt(elo0=-30, elo1=10), [0] * 5
    for number in range(MAX_MATCH_PAIRS):
        pairs[play_pair(candidate, champion, (2, 4)[number % 2], seed + number)] += 1
        if (verdict := test.decide(pairs)) is not None:
            return verdict == "H1"
    return EloEstimate.from_pairs(pairs).elo > (test.elo0 + test.elo1) / 2


def play_pair(
    one: evaluation.Evaluation, other: evaluation.Evaluation | None, snakes: int, seed: int
) -> int:
    """Play a game pair and return twice the points of ``one``.

    The result is the index of the outcome. In games with four snakes, each side has every second
    seat. The side of the last living snake wins.
    """
    setup, points = Setup(num_snakes=snakes, random_opening_turns=4, random_move_fraction=0.0), 0
    for first in (0, 1):
        seats = [(seat + first) % 2 for seat in range(snakes)]
        players = [SearchPlayer((one, other)[side], nodes=MATCH_NODES) for side in seats]
        shares = self_play.play_game(seed, setup, players).points
        mine = sum(share for share, side in zip(shares, seats, strict=True) if side == 0)
        points += 2 if mine > 0.5 + 1e-6 else 1 if mine > 0.5 - 1e-6 else 0
    return points


def main(arguments: Sequence[str] | None = None) -> None:
    """Run iterations until the CPU time is used up.

    The function saves each new champion to the file.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--minutes", type=float, default=2.0, help="CPU time for training, in minutes")
    add("--file", type=Path, default=Path("exit.evaluation"), help="file for the evaluation")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    champion, nets = None, create_networks()
    memory: list[Samples] = []
    number = moves = 0
    began = time.process_time()
    while (spent := time.process_time() - began) < 60 * options.minutes:
        number += 1
        games = play_games(champion, MOVES_PER_ITERATION, seed=100_000 * number)
        memory = [*memory, label_positions(games)][-BUFFER_ITERATIONS:]
        moves += len(memory[-1][-1])
        inputs, living, label = (np.concatenate(part) for part in zip(*memory, strict=True))
        epochs, rate = (1.0, 1.5e-3) if champion else (4.0, 3e-3)
        losses = fit_networks(nets, (inputs, living, label), epochs, rate, seed=number)
        candidate = quantize_evaluation(nets, moves)
        if promoted := passes_sprt(candidate, champion, seed=900_000_000 + 1000 * number):
            champion = candidate
            champion.save(options.file)
        print(
            f"iteration {number}: {moves} moves, "
            f"losses {' '.join(f'{loss:.3f}' for loss in losses)}, "
            f"{'promoted' if promoted else 'not promoted'}, "
            f"started after {spent:.0f} s"
        )
    if champion is None:
        parser.exit(1, "no network beats the handcrafted evaluation yet; give more --minutes\n")


if __name__ == "__main__":
    main()
