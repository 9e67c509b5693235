"""Ladder evaluation during training: duels against opponents of fixed Elo.

During training, `LadderPlayer` uses at most a given fraction of the CPU time for complete games
of the current policy. The weights with the best result are saved. At the end of training, the
best and the latest weights play again, and the stronger weights remain. Unlike the length of
self-play games, the Elo measures strength.

The ladder was calibrated in standard duels on 11x11 boards. In other games, scores remain valid,
but Elo only compares policies with each other.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.sightings import Sightings
from battlesnake_gym.common import old_runs
from battlesnake_gym.common.command_line import plural
from battlesnake_gym.common.files import save_arrays
from battlesnake_gym.config import EnvConfig
from battlesnake_gym.env.seat_memory import ScoreFn, SeatMemory
from battlesnake_gym.env.seated_opponents import SeatedOpponents
from battlesnake_gym.env.vector import VectorBattlesnake
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import MOVES, State, start
from battlesnake_heuristics.rating import ladder
from battlesnake_heuristics.rating.ladder import GAME_OVERHEAD_S, Ladder, Placement, PlacementRun
from battlesnake_heuristics.rating.match import DUEL, derive_seed
from battlesnake_heuristics.rating.sprt import EloEstimate, pair_outcome
from battlesnake_heuristics.rule_based import policy_rules
from battlesnake_heuristics.rule_based.pipeline import PipelineStep
from battlesnake_rl.mabs.envs.env_factory import make_vector_env
from battlesnake_rl.mabs.envs.training_env_config import env_options
from battlesnake_rl.mabs.policy.policy_loader import BEST_WEIGHTS_FILE, PolicyCheckpoint, Weights
from sagemaker_rl.job.process_environment import process_tree_cpu_seconds

_MAX_RUNG_CPU_S = 0.4
"""Maximum CPU seconds per game against a rung during training."""

MIN_MEASUREMENT_S = 2.5
"""Minimum CPU seconds of a measurement.

The confidence interval of a shorter measurement would be too wide.
"""

_MEASUREMENT_COST_FRACTION = 0.25
"""Minimum CPU time of a measurement, as a fraction of earlier measurements.

The fraction refers to the total CPU time of all earlier measurements. Measurements therefore become
longer during training.
"""

MIN_BEST_GAMES = 100
"""Minimum number of games of a measurement that selects the strongest weights during training.

The best of many shorter measurements, whose intervals extend 100 Elo and more in each direction,
would be the luckiest weights. A short run therefore exports its last weights.
"""

_FINAL_BUDGET_FRACTION = 0.3
"""Fraction of the evaluation time that is reserved for the end of training.

The best of several measurements is biased upwards. The best and the latest weights therefore play
again at the end.
"""

_LONG_TRAINING_S, _FINAL_MAX_FRACTION, _FINAL_MAX_S = 60.0, 0.25, 60.0
"""Limits of the final games (training CPU seconds, fraction, maximum CPU seconds).

After 60 CPU seconds of training, the final games may use 25% of the training time, at most 60 s.
The confidence intervals of the two final measurements then extend about 50 Elo in each direction.
"""

_TARGET_PRECISION_ELO = 40.0
"""Half-width of the confidence interval at which a placement ends, in Elo."""

MAX_SAMPLE_GAME_TURNS = 150
"""Maximum length of a sample game, in turns."""

NUM_PARALLEL_PAIRS = 8
"""Number of game pairs played in parallel."""

_STRENGTH_FILE = "strength.json"
"""File of a checkpoint with all measurements.

The file is next to `policy_loader.BEST_WEIGHTS_FILE`.
"""


@dataclass(frozen=True, slots=True)
class Measurement(Placement):
    """Placement of weights on the ladder, and the CPU minutes of training before these weights."""

    cpu_minutes: float

    @classmethod
    def from_placement(cls, placement: Placement, cpu_minutes: float) -> Measurement:
        """Create a measurement from a placement.

        ``cpu_minutes`` is the CPU time of training before the placement, in minutes.
        """
        return cls(**asdict(placement), cpu_minutes=round(cpu_minutes, 3))

    def to_metrics(self) -> dict[str, Any]:
        """Return the metrics of this measurement that training reports."""
        scores = self.rung_scores()
        all_pairs = [sum(pairs) for pairs in zip(*self.pairs.values(), strict=True)]
        return {
            "elo": self.elo,
            "elo_low": self.ci_low,
            "elo_high": self.ci_high,
            "elo_games": self.games,
            "ladder_score": EloEstimate.from_pairs(all_pairs).score,
            "elo_cpu_minutes": self.cpu_minutes,
            "score": {rung: score for rung, (score, _, _) in scores.items()},
            "score_low": {rung: low for rung, (_, low, _) in scores.items()},
            "score_high": {rung: high for rung, (_, _, high) in scores.items()},
        }


_METRIC_NAMES = (
    *("elo", "elo_low", "elo_high", "elo_games", "elo_cpu_minutes", "elo_best", "elo_best_low"),
    *("elo_best_high", "elo_best_games", "ladder_score"),
)
"""Reported metrics, which are NaN before the first measurement."""

LADDER_COLUMNS = {
    "cpu_minutes": "cpu_minutes",
    **{name: name for name in _METRIC_NAMES},
    "ladder_cpu_fraction": "ladder_cpu_fraction",
    **{
        f"score_{rung}{end}": f"score{end}/{rung}"
        for rung in ladder.RUNG_NAMES
        for end in ("", "_low", "_high")
    },
}
"""Key of the training result for each ladder column of ``progress.csv``."""


@dataclass
class StrengthHistory:
    """Measurements of a run and their CPU time.

    Checkpoints contain the history in the file `_STRENGTH_FILE`.

    Times are in CPU seconds; the training time includes the ladder games.
    """

    measurements: list[Measurement] = field(default_factory=list)
    best: int | None = None
    """Index of the measurement with the highest lower confidence bound, or None.

    During training, only measurements of at least `MIN_BEST_GAMES` games count.
    """
    training_seconds: float = 0.0
    ladder_seconds: float = 0.0

    def add(self, measurement: Measurement, at_end: bool = False) -> bool:
        """Add a measurement.

        Returns:
            Whether the measurement is the best so far.
        """
        self.measurements.append(measurement)
        if measurement.games < MIN_BEST_GAMES and not at_end:
            return False
        if self.best is None or measurement.ci_low > self.measurements[self.best].ci_low:
            self.best = len(self.measurements) - 1
        return self.best == len(self.measurements) - 1

    def to_metrics(self) -> dict[str, Any]:
        """Return the ladder metrics that training reports in each iteration."""
        results: dict[str, Any] = dict.fromkeys(_METRIC_NAMES, math.nan)
        if self.measurements:
            results |= self.measurements[-1].to_metrics()
        if self.best is not None:
            # One iteration may add several measurements, of which only the last has its own row.
            best = self.measurements[self.best]
            results |= {
                "elo_best": best.elo,
                "elo_best_low": best.ci_low,
                "elo_best_high": best.ci_high,
                "elo_best_games": best.games,
            }
        return results | {
            "cpu_minutes": self.training_seconds / 60,
            "ladder_cpu_fraction": self.ladder_seconds / max(self.training_seconds, 1e-9),
        }

    def save(self, directory: Path) -> None:
        """Write the history into the checkpoint in ``directory``."""
        (directory / _STRENGTH_FILE).write_text(json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, directory: Path) -> StrengthHistory:
        """Load the history of a checkpoint, or return an empty history."""
        path = directory / _STRENGTH_FILE
        if not path.is_file():
            return cls()
        kept = json.loads(path.read_text())
        measurements = [
            Measurement(**old_runs.rename_keys(one, old_runs.MEASUREMENT_KEYS))
            for one in kept.pop("measurements")
        ]
        return cls(measurements=measurements, **kept)

    def elo_summary(self) -> str:
        """Return the Elo of the best measurement, or why there is none, as one line of text."""
        if self.best is None:
            return (
                f"not measured, because ladder_cpu_fraction of {self.training_seconds:.0f} s of "
                "CPU time allows too few ladder games; train longer or with a larger fraction"
            )
        best = self.measurements[self.best]
        return f"{best} by {best.games} duels on the ladder"

    def score_table(self) -> str:
        """Return the best measurement with the score against each rung, as lines of text.

        The text is empty if there is no measurement.
        """
        if self.best is None:
            return ""
        best = self.measurements[self.best]
        text = best.rung_table()
        return (
            f"{text}\nkept: the weights after {best.cpu_minutes:.1f} of "
            f"{self.training_seconds / 60:.1f} CPU minutes "
            f"({plural(len(self.measurements), 'measurement')}); ladder games took "
            f"{self.ladder_seconds / max(self.training_seconds, 1e-9):.1%} of the CPU time"
        )


_SNAKE_IDS = "0", "1"
"""IDs of the snakes in a duel, ordered by seat."""


@dataclass(frozen=True, slots=True)
class _GameOutcomes:
    """Outcomes of N games, from the perspective of the policy's snake.

    Attributes:
        won: bool (N,), whether the snake won.
        drawn: bool (N,), whether the game was a draw.
        turns_alive: float64 (N,), number of turns that the snake survived.
    """

    won: NDArray[np.bool_]
    drawn: NDArray[np.bool_]
    turns_alive: NDArray[np.float64]


def play_games_batched(
    values: ScoreFn,
    env_config: Mapping[str, Any],
    opponents: Sequence[Sequence[str]],
    own_seats: NDArray[np.integer[Any]],
    seed: int,
    *,
    starts: Sequence[State] = (),
    rules: Sequence[PipelineStep] = (),
    on_finished: Callable[[int], object] = lambda games: None,
) -> _GameOutcomes:
    """Play N games in parallel, each until the policy's snake is eliminated or alone.

    The policy plays greedily under the games' action mask.

    Args:
        values: Score function of the policy.
        env_config: Options of the games.
        opponents: Names of the built-in snakes in the other seats of each game; all games have the
            same number of opponents.
        own_seats: int (N,), seat of the policy in each game.
        seed: Random seed of start positions, food and opponents.
        starts: Start position of each game; empty for random positions.
        rules: Policy rules that choose the move
            (`battlesnake_heuristics.rule_based.policy_rules`).
        on_finished: Callback with the number of games that have just finished.
    """
    games, seats = len(opponents), len(opponents[0]) + 1
    # Training may use other opponents and other start positions.
    others = {
        "num_snakes": seats,
        "rewards": EnvConfig.rewards,
        "start_positions": None,
        "food_positions": None,
    }
    vector = make_vector_env(games, {**env_config, **others})
    random = np.random.default_rng(seed)
    seated, memory = SeatedOpponents(vector), SeatMemory(vector)
    sightings = [Sightings() for _ in range(games)]
    for game, names in enumerate(opponents):
        for seat, name in zip(np.delete(np.arange(seats), own_seats[game]), names, strict=True):
            seated.assign(game, int(seat), name, int(random.integers(2**31)))
    observations, infos = vector.reset(
        seed=int(random.integers(2**31)), options={"states": starts} if starts else None
    )
    all_games = np.arange(games)
    playing = np.ones(games, dtype=np.bool_)
    played = _GameOutcomes(np.zeros(games, np.bool_), np.zeros(games, np.bool_), np.zeros(games))
    while playing.any():
        in_play = np.flatnonzero(playing)
        own = in_play, own_seats[in_play]
        actions = np.zeros((games, seats), dtype=np.uint8)
        q_values = memory.call(values, own, observations[own])
        actions[own] = np.where(infos["action_mask"][own], q_values, -np.inf).argmax(-1)
        if rules:
            for game, scores in zip(in_play.tolist(), q_values, strict=True):
                own_seat = int(own_seats[game])
                actions[game, own_seat] = _apply_policy_rules(
                    vector, game, own_seat, scores, rules, sightings[game]
                )
        seated.move(actions, infos["alive"] & playing[:, None])
        observations, _, _, truncations, infos = vector.step(actions)
        played.turns_alive[playing] = infos["turn"][playing]
        survived = infos["cause"][all_games, own_seats] == 0
        cut = truncations[all_games, own_seats]  # False if the policy's snake is eliminated.
        opponents_alive = infos["cause"] == 0
        opponents_alive[all_games, own_seats] = False
        # Some rulesets continue a game in which only the policy's snake is alive.
        over = vector.games.over | ~opponents_alive.any(-1)
        ended = playing & (over | cut | ~survived)
        played.won[ended] = (survived & ~cut)[ended]
        all_eliminated = np.logical_and.reduce(infos["cause"] > 0, axis=-1)
        played.drawn[ended] = np.logical_or(all_eliminated, cut)[ended]
        playing &= ~ended
        on_finished(int(ended.sum()))
    return played


def _apply_policy_rules(
    vector: VectorBattlesnake,
    game: int,
    seat: int,
    scores: NDArray[np.float32],
    rules: Sequence[PipelineStep],
    sightings: Sightings,
) -> int:
    """Return the index of the action that the policy rules choose for one snake."""
    board = Board.from_state(vector.games.state(game), vector.game)
    board.you_id = board.snakes[seat].id
    filters = policy_rules.policy_filters(vector.action_mask_kind)
    facing = np.full(len(MOVES), vector.games.facing[game, seat])
    moves = [MOVES[a] for a in vector.observation.absolute_actions(np.arange(len(MOVES)), facing)]
    values = dict(zip(moves, scores.tolist(), strict=True))
    with snakes.named_errors("the policy with these rules"):
        return moves.index(
            policy_rules.apply_policy_rules(values, board.limited(), rules, filters, sightings).move
        )


def _play_pairs(
    values: ScoreFn,
    env_config: Mapping[str, Any],
    rungs: Sequence[str],
    seed: int,
    first_pair: int = 0,
    rules: Sequence[PipelineStep] = (),
) -> list[int]:
    """Play duels against ``rungs``, with one game pair per entry of the list.

    All games run in parallel, with the rules, the board and the action mask of ``env_config``.

    Args:
        values: Score function of the policy.
        env_config: Options of the games.
        rungs: Name of the opponent in each pair.
        seed: Random seed of the start positions.
        first_pair: Index of the first pair, which determines the start position.
        rules: Policy rules that choose the move.

    Returns:
        Outcome of each pair: an index in `sprt.PAIR_SCORES`.
    """
    games: Any = env_options(env_config)
    seeds = (derive_seed(seed, first_pair + pair) for pair in range(len(rungs)))
    starts = [
        start(replace(games.game, seed=one), games.width, games.height, _SNAKE_IDS) for one in seeds
    ]
    played = play_games_batched(
        values,
        {**env_config, "max_turns": DUEL.max_turns},
        [(rung,) for rung in rungs for _ in _SNAKE_IDS],
        np.tile([0, 1], len(rungs)),
        derive_seed(seed, first_pair),
        starts=[position for position in starts for _ in _SNAKE_IDS],
        rules=rules,
    )
    points = (played.won + played.drawn / 2).reshape(-1, 2).sum(-1)
    return [pair_outcome(float(sum_of_two)) for sum_of_two in points]


def fast_ladder(seconds: float = _MAX_RUNG_CPU_S) -> Ladder:
    """Return the duel ladder without slow rungs.

    A rung is slow if a game needs more than ``seconds`` CPU seconds.
    """
    whole = Ladder.load(2)
    return Ladder(2, tuple(rung for rung in whole.rungs if rung.cpu_seconds_per_game <= seconds))


def place_policy(
    values: ScoreFn,
    env_config: Mapping[str, Any],
    *,
    seed: int,
    cpu_seconds: float = math.inf,
    games: float = math.inf,
    half_width_elo: float = _TARGET_PRECISION_ELO,
    expected_elo: float | None = None,
    rules: Sequence[PipelineStep] = (),
    on_batch: Callable[[Placement], None] = lambda placement: None,
) -> tuple[Placement, float]:
    """Measure the Elo of a policy in duels against the rungs of the ladder.

    The placement ends at the first of these limits: ``half_width_elo``, ``games`` or
    ``cpu_seconds``. The policy completes all game pairs and plays at least `NUM_PARALLEL_PAIRS`
    pairs, unless ``games`` is lower.

    Args:
        values: Score function of the policy.
        env_config: Options of the games.
        seed: Random seed of the start positions.
        cpu_seconds: Maximum CPU time of this process, in seconds.
        games: Maximum number of games.
        half_width_elo: Target half-width of the confidence interval, in Elo.
        expected_elo: Elo at which the placement starts; None for the middle of the ladder.
        rules: Policy rules that choose the moves.
        on_batch: Callback with the current placement after each batch of games.

    Returns:
        The placement, and the CPU seconds that this process used.
    """
    placing = PlacementRun(fast_ladder(), expected_elo)
    started, cost_factor, played = time.process_time(), 1.0, 0
    while True:
        left = math.ceil(min(games / 2 - played, NUM_PARALLEL_PAIRS))
        chosen = [placing.next_rung() for _ in range(left)]
        # The estimate applies to the processor on which the ladder was calibrated.
        guess = sum(2 * (GAME_OVERHEAD_S + rung.cpu_seconds_per_game) for rung in chosen)
        spent = time.process_time() - started
        if played and spent + cost_factor * guess > cpu_seconds:
            return placing.placement, spent
        names = [rung.name for rung in chosen]
        outcomes = _play_pairs(values, env_config, names, seed, played, rules)
        for rung, outcome in zip(chosen, outcomes, strict=True):
            placing.add_pair(rung.name, outcome)
        played += len(chosen)
        took = time.process_time() - started - spent
        cost_factor = max(took / guess, 0.1)
        now = placing.placement
        on_batch(now)
        if now.ci_high - now.ci_low <= 2 * half_width_elo or 2 * played >= games:
            return now, spent + took


class LadderPlayer:
    """Algorithm whose policy plays ladder games and sample games.

    The ladder games use a limited fraction of the CPU time of this process and its descendants,
    such as Ray's processes. An ended process counts if its parent waited for it.

    Subclasses set ``config``, call `start_ladder`, and define `_get_export_weights` and
    `_policy_from_weights`.

    Attributes:
        strength: Measurements of the run.
        best_weights: Weights with the best measurement, or None.
    """

    config: Any
    training_iteration: Any

    def start_ladder(self, fraction: float) -> None:
        """Start without measurements; ``fraction`` limits the CPU time, in [0, 0.5]."""
        self._ladder_fraction = fraction
        self.strength = StrengthHistory()
        self.best_weights: Weights | None = None
        self._began = process_tree_cpu_seconds(os.getpid())

    def evaluate_on_ladder(self, *, at_end: bool = False) -> dict[str, Any]:
        """Play ladder games if enough evaluation time is available.

        The training loop calls this method after each iteration. At the end of training, the method
        uses all remaining evaluation time if a measurement fits. After `_LONG_TRAINING_S` CPU
        seconds of training, the final games may use more time.

        Args:
            at_end: Whether the training has ended.

        Returns:
            The ladder metrics of the iteration.
        """
        history = self.strength
        self._read_clock()
        fraction, wanted = self._ladder_fraction, MIN_MEASUREMENT_S
        if not at_end:
            fraction *= 1 - _FINAL_BUDGET_FRACTION
            wanted = max(wanted, _MEASUREMENT_COST_FRACTION * history.ladder_seconds)
        cpu_budget_s = fraction * history.training_seconds - history.ladder_seconds
        if at_end and fraction and history.training_seconds >= _LONG_TRAINING_S:
            cpu_budget_s = max(
                cpu_budget_s, min(_FINAL_MAX_S, _FINAL_MAX_FRACTION * history.training_seconds)
            )
        if cpu_budget_s >= wanted:
            best = history.best if at_end and cpu_budget_s >= 2 * MIN_MEASUREMENT_S else None
            if best is not None and self.best_weights is not None:
                cpu_budget_s /= 2
                minutes = history.measurements[best].cpu_minutes
                history.measurements[best] = self._measure(self.best_weights, cpu_budget_s, minutes)
            last, minutes = self._get_export_weights(), history.training_seconds / 60
            if history.add(self._measure(last, cpu_budget_s, minutes), at_end):
                self.best_weights = last
            self._read_clock()
        return history.to_metrics()

    def conclude(self, results: dict[str, Any]) -> None:
        """Evaluate the final weights after the last iteration, and update ``results``."""
        results |= self.evaluate_on_ladder(at_end=True)

    def _read_clock(self) -> None:
        """Update the CPU time of the training, which never decreases."""
        now = process_tree_cpu_seconds(os.getpid()) - self._began
        self.strength.training_seconds = max(self.strength.training_seconds, now)

    def _measure(self, weights: Weights, cpu_seconds: float, cpu_minutes: float) -> Measurement:
        """Measure the strength of a policy with ladder games.

        Args:
            weights: Weights of the policy.
            cpu_seconds: Maximum CPU time of the games, in seconds.
            cpu_minutes: CPU minutes of training before these weights.
        """
        history = self.strength
        placement, spent = place_policy(
            self._policy_from_weights(weights),
            self.config.env_config,
            seed=(self.config.seed or 0) + len(history.measurements),
            cpu_seconds=cpu_seconds,
            expected_elo=history.measurements[-1].elo if history.measurements else None,
        )
        history.ladder_seconds += spent
        return Measurement.from_placement(placement, cpu_minutes)

    def save_ladder(self, directory: Path) -> None:
        """Write the measurements and the best weights into a checkpoint."""
        self.strength.save(directory)
        if self.best_weights is not None:
            save_arrays(directory / BEST_WEIGHTS_FILE, **self.best_weights)

    def restore_ladder(self, directory: Path) -> None:
        """Restore the measurements and the best weights of a checkpoint."""
        self.strength = StrengthHistory.load(directory)
        self.best_weights = PolicyCheckpoint(directory).load_best_weights()
        if self.best_weights is None:
            self.strength.best = None
        self._began = process_tree_cpu_seconds(os.getpid()) - self.strength.training_seconds

    def play_sample_game(self) -> Replay:
        """Play one game in which the exported policy has all seats.

        The policy plays greedily; the games' action mask applies.
        """
        values = self._policy_from_weights(self._get_export_weights())
        games = {**self.config.env_config, "max_turns": MAX_SAMPLE_GAME_TURNS}
        vector = make_vector_env(1, games)
        seed = (self.config.seed or 0) + self.training_iteration
        observations, infos = vector.reset(seed=seed)
        replay = Replay(Board.from_state(vector.games.state(0), vector.game))
        memory = SeatMemory(vector)
        while (alive := infos["alive"]).any():
            said = memory.call(values, alive, observations[alive])
            actions = np.zeros(alive.shape, dtype=np.uint8)
            actions[alive] = np.where(infos["action_mask"][alive], said, -np.inf).argmax(-1)
            facing = vector.games.facing[0]
            chosen = vector.observation.absolute_actions(actions[0].astype(np.int64), facing)
            moves = {
                snake.id: MOVES[action]
                for snake, action in zip(replay.first.snakes, chosen, strict=True)
            }
            observations, _, _, _, infos = vector.step(actions)
            replay.append(moves, after=vector.games.state(0))
        return replay

    def _get_export_weights(self) -> Weights:
        """Return the weights to evaluate and export."""
        raise NotImplementedError

    def _policy_from_weights(self, weights: Weights) -> ScoreFn:
        """Return the policy with the given weights."""
        raise NotImplementedError
