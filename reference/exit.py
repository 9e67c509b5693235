"""Expert iteration (Anthony, Tian and Barber 2017), to be read in one sitting.

    python reference/exit.py --minutes 2

A search plays better than the network that values its positions. So let the search play itself, and
fit the network to what the games and the search's own values say of every position; the next search
is better again. A round:

    play      whole games of the search in C, valued by the champion
    labels    the points that each position was worth, by TD(lambda)
    fit       the network to the positions of the last rounds
    match     against the champion, whose place the new network takes if it is no weaker

The champion is saved as a file that the search plays (`battlesnake_heuristics.search.search`).
`battlesnake_rl.mabs.exit.exit` is the same on many processes: it also plays earlier networks,
hand-set weights of other appetites, larger boards and other rules, keeps checkpoints, and measures
Elo. `tests/reference/test_exit.py` holds the labels and the fit of the two equal.
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

from battlesnake_heuristics.rating.sprt import Sprt, estimate
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
"""What is played, by its share of the moves."""
MOVES_PER_ITERATION, BUFFER_ITERATIONS = 30_000, 16
"""Searched moves a round, and the rounds that a fit looks back on."""
NODE_CHOICES = (100, 150, 200, 300)
"""Positions that a search looks at for each move; each part of a round draws one."""
TD_LAMBDA = 0.95
"""How much the label of a position trusts what came later more than its own value."""
LOGIT, CERTAIN = 10_000, 300_000
"""The search's values are in thousandths of a cell: a logit of 1 in these, and the value beyond
which the search has seen the game's end."""
BATCH = 2048
"""Positions a step of the fit."""
PAIRS, POSITIONS_IN_MATCH = 40, 100
"""At most this many pairs of games decide the champion, at this many positions a move."""

Floats = NDArray[np.float64]
Samples = tuple[NDArray[np.int16], NDArray[np.uint8], NDArray[np.float32]]
"""Inputs [n, INPUTS], living snakes [n] and labels [n] of positions."""


# ---- labels: what was each position worth, in points of the game's one? ----


def labels(games: SelfPlayBatch) -> Samples:
    """Label all positions that were searched.

    Going back through the positions of one snake in one game, a label is the search's own chance
    there, mixed with the label of the next one; the last one's next is the points of the game.
    """
    asked = games.rows["kind"] != self_play.ROW_RANDOM
    rows, game = games.rows[asked], games.game[asked]
    points = games.points[game, rows["seat"]]
    chance = expected_scores(rows["value"], rows["living"], points)
    order = np.lexsort((rows["turn"], rows["seat"], game))
    label = np.empty(len(rows))
    later, whose = 0.0, (-1, -1)
    for i in order[::-1]:
        if whose != (game[i], rows["seat"][i]):  # the last position of a snake in its game
            whose = game[i], rows["seat"][i]
            later = points[i] if games.finished[game[i]] else chance[i]
        if (
            rows["kind"][i] == self_play.ROW_SEARCHED_RANDOM
        ):  # it moved at random: what followed was not meant
            later = chance[i]
        label[i] = later = (1 - TD_LAMBDA) * chance[i] + TD_LAMBDA * later
    rows = rows[order]
    return rows["inputs"], rows["living"], label[order].astype(np.float32)


def expected_scores(values: NDArray[np.int32], living: NDArray[np.uint8], points: Floats) -> Floats:
    """The search's values as expected points, by what came of such values in these games.

    Where the search has seen an end, the mean points of such games: a sure loss, an end that one of
    several rivals could bring about, a sure win. Elsewhere a logistic curve. Each number of living
    snakes has its own, since a lead among four is worth less than in a duel.
    """
    chance = np.zeros(len(values))
    for count in np.unique(living):
        for low, high, usual in (
            (-math.inf, -900_000, 0.0),
            (-900_000, 1 - CERTAIN, 0.25),
            (CERTAIN, math.inf, 1.0),
        ):
            such = (living == count) & (values >= low) & (values < high)
            # five games more that ended as usual, so that a few decide nothing
            chance[such] = (points[such].sum() + 5 * usual) / (such.sum() + 5)
        such = (living == count) & (np.abs(values) < CERTAIN)
        chance[such] = logistic(values[such] / LOGIT, points[such])
    return chance


def logistic(value: Floats, points: Floats) -> Floats:
    """What the best logistic curve (drawn to slope 1, bias 0) expects, by Newton's method."""
    slope_and_bias = usual = np.array([1.0, 0.0])
    terms = np.stack([np.clip(value, -20, 20), np.ones_like(value)], 1)
    for _ in range(20):
        chance = sigmoid(terms @ slope_and_bias)
        gradient = terms.T @ (points - chance) - (slope_and_bias - usual)
        curvature = (terms.T * (chance * (1 - chance))) @ terms + np.eye(2)
        slope_and_bias = slope_and_bias + np.clip(np.linalg.solve(curvature, gradient), -1, 1)
    return sigmoid(max(slope_and_bias[0], 0.01) * value + slope_and_bias[1])


def sigmoid(logits: Floats) -> Floats:
    """Chances of ``logits``."""
    return np.asarray(1 / (1 + np.exp(-np.clip(logits, -30, 30))))


# ---- the network: one for two, one for three, one for more living snakes ----


class Network(nn.Module):
    """Inputs of a position to the logit of its points: two hidden layers, as the C code has them.

    Hidden values stay between 0 and `LARGEST` / `INPUT_UNIT`, and weights where their whole numbers
    fit, since the C code computes in whole numbers.
    """

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, evaluation.HIDDEN1)
        self.second = nn.Linear(evaluation.HIDDEN1, evaluation.HIDDEN2)
        self.last = nn.Linear(evaluation.HIDDEN2, 1)
        self.mean, self.deviation = nn.Buffer(torch.zeros(inputs)), nn.Buffer(torch.ones(inputs))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [n] of inputs [n, inputs]."""
        top = evaluation.MAX_ACTIVATION / evaluation.INPUT_UNIT
        hidden = self.first((inputs - self.mean) / self.deviation).clamp(0, top)
        return torch.flatten(self.last(self.second(hidden).clamp(0, top)))

    @torch.no_grad()
    def hold_in_bounds(self) -> None:
        """Keep each weight where its whole number fits 16 bits."""
        most = (evaluation.MAX_WEIGHT - 1) / evaluation.WEIGHT_UNIT
        scaled = most * self.deviation
        self.first.weight.copy_(self.first.weight.clamp(-scaled, scaled))
        self.second.weight.clamp_(-most, most)
        self.last.weight.clamp_(-most, most)

    @torch.no_grad()
    def layers(self) -> FloatLayers:
        """The weights for inputs as they come, without the mean and the deviation."""
        first = (self.first.weight / self.deviation).double().numpy()
        return {
            "first": np.pad(first, ((0, 0), (0, evaluation.NUM_INPUTS - first.shape[1]))),
            "first_bias": self.first.bias.numpy() - first @ self.mean.numpy(),
            "second": self.second.weight.numpy(),
            "second_bias": self.second.bias.numpy(),
            "last": self.last.weight.numpy()[0],
            "last_bias": self.last.bias.numpy()[0],
        }


def networks() -> list[Network]:
    """For two, three, and more living snakes, untrained."""
    return [
        Network(evaluation.NUM_DUEL_INPUTS),
        Network(evaluation.NUM_INPUTS),
        Network(evaluation.NUM_INPUTS),
    ]


def fit(
    nets: Sequence[Network], samples: Samples, epochs: float, rate: float, seed: int
) -> list[float]:
    """Fit each network to its positions; the mean of its recent losses (NaN: too few positions).

    Adam on the cross-entropy to the labels, its rate falling along half a cosine.
    """
    all_inputs, living, label = samples
    generator = torch.Generator().manual_seed(seed)
    losses = [math.nan] * len(nets)
    for number, net in enumerate(nets):
        mine = np.clip(living, 2, 4) == 2 + number
        if mine.sum() < BATCH:
            continue
        inputs = torch.from_numpy(all_inputs[mine][:, : net.first.in_features])
        target = torch.from_numpy(label[mine])
        if not net.mean.any():  # its first positions say what is usual
            some = inputs[:200_000].float() / evaluation.INPUT_UNIT
            net.mean.copy_(some.mean(0))
            net.deviation.copy_(some.std(0).clamp(min=0.15))
        optimizer = torch.optim.Adam(net.parameters(), lr=rate, weight_decay=1e-6)
        steps = max(1, round(epochs * len(inputs) / BATCH))
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, eta_min=rate / 50)
        waiting = torch.empty(0, dtype=torch.int64)
        for step in range(steps):
            if len(waiting) < BATCH:
                waiting = torch.randperm(len(inputs), generator=generator)
            batch, waiting = waiting[:BATCH], waiting[BATCH:]
            logits = net(inputs[batch].float() / evaluation.INPUT_UNIT)
            loss = nn.functional.binary_cross_entropy_with_logits(logits, target[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            net.hold_in_bounds()
            losses[number] = 0.99 * losses[number] + 0.01 * loss.item() if step else loss.item()
    return losses


def quantize_evaluation(nets: Sequence[Network], moves: int) -> evaluation.Evaluation:
    """The networks in whole numbers, with what the search asks of a file: which games it is for."""
    games = {"rulesets": ["standard"], "maps": ["standard"], "snakes": [2, 3, 4]}
    trained_for = games | {"sizes": sorted({(setup.width, setup.height) for _, setup in GAME_MIX})}
    facts = {"trained_for": trained_for, "command": "reference/exit.py", "moves": moves}
    return evaluation.Evaluation(quantize([net.layers() for net in nets]), facts)


# ---- rounds ----


def play(champion: evaluation.Evaluation | None, moves: int, seed: int) -> SelfPlayBatch:
    """Games of the search against itself (None: with its hand-set weights)."""
    rng, parts = np.random.default_rng(seed), []
    for number, (share, setup) in enumerate(GAME_MIX):
        player = SearchPlayer(champion, nodes=int(rng.choice(NODE_CHOICES)))
        players = [player] * setup.num_snakes
        parts.append(
            self_play.play_games(seed + 10_000 * number, setup, players, round(share * moves))
        )
    return SelfPlayBatch.concatenate(parts)


def passes_sprt(
    candidate: evaluation.Evaluation, champion: evaluation.Evaluation | None, seed: int
) -> bool:
    """Let the two play pairs of games until a sequential test decides, or `PAIRS` are played."""
    test, pairs = Sprt(elo0=-30, elo1=10), [0] * 5
    for number in range(PAIRS):
        pairs[play_pair(candidate, champion, (2, 4)[number % 2], seed + number)] += 1
        if (verdict := test.decide(pairs)) is not None:
            return verdict == "H1"
    return estimate(pairs).elo > (test.elo0 + test.elo1) / 2


def play_pair(
    one: evaluation.Evaluation, other: evaluation.Evaluation | None, snakes: int, seed: int
) -> int:
    """Twice the points of ``one`` in a start that is played twice, with seats exchanged.

    In games of four, two of each sit alternately; the side of the last snake alive wins.
    """
    setup, points = Setup(num_snakes=snakes, random_opening_turns=4, random_move_fraction=0.0), 0
    for first in (0, 1):
        seats = [(seat + first) % 2 for seat in range(snakes)]
        players = [SearchPlayer((one, other)[side], nodes=POSITIONS_IN_MATCH) for side in seats]
        shares = self_play.play_game(seed, setup, players).points
        mine = sum(share for share, side in zip(shares, seats, strict=True) if side == 0)
        points += 2 if mine > 0.5 + 1e-6 else 1 if mine > 0.5 - 1e-6 else 0
    return points


def main(arguments: Sequence[str] | None = None) -> None:
    """Learn by rounds until the CPU time is over; the champion is in the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=2.0, help="of CPU time")
    parser.add_argument("--file", type=Path, default=Path("exit.evaluation"), help="to write")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    champion, nets = None, networks()
    memory: list[Samples] = []
    number = moves = 0
    began = time.process_time()
    while (spent := time.process_time() - began) < 60 * options.minutes:
        number += 1
        memory = [*memory, labels(play(champion, MOVES_PER_ITERATION, seed=100_000 * number))][
            -BUFFER_ITERATIONS:
        ]
        moves += len(memory[-1][-1])
        inputs, living, label = (np.concatenate(part) for part in zip(*memory, strict=True))
        epochs, rate = (1.0, 1.5e-3) if champion else (4.0, 3e-3)
        losses = fit(nets, (inputs, living, label), epochs, rate, seed=number)
        candidate = quantize_evaluation(nets, moves)
        promoted = passes_sprt(candidate, champion, seed=900_000_000 + 1000 * number)
        if promoted:
            champion = candidate
            champion.save(options.file)
        print(
            f"round {number}: {moves} moves, losses {' '.join(f'{loss:.3f}' for loss in losses)}, "
            f"{'the new champion' if promoted else 'learns on'}, begun after {spent:.0f} s"
        )
    if champion is None:
        parser.exit(1, "no network was as good as the hand-set weights yet; give more --minutes\n")


if __name__ == "__main__":
    main()
