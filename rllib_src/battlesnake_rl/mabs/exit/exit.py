"""EXIT: expert iteration on Ray.

Expert iteration was published by Anthony, Tian and Barber (2017, https://arxiv.org/abs/1705.08439).
Self-play runners, one per CPU, play fragments of games (`exit_self_play`). In these games, the
search plays against itself, earlier networks and random handcrafted weights. The learner labels the
fragments and fits the evaluation network (`evaluation_fit`). The candidate replaces the champion if
a sequential test accepts that the candidate is no weaker (`battlesnake_heuristics.rating.sprt`).
Runners play with the champion and continue while the learner fits the network.

EXIT is not an RLlib algorithm, because it has neither an environment nor a module. The class `EXIT`
implements the methods that the launcher calls on an algorithm.
"""

from __future__ import annotations

import copy
import json
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
import torch
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig

from battlesnake_gym.common import old_runs
from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.temporary_dirs import TemporaryDir
from battlesnake_gym.replays.replay import Replay
from battlesnake_heuristics.rating import ladder
from battlesnake_heuristics.rating.match import MatchSettings
from battlesnake_heuristics.rating.sprt import Sprt, estimate_elo
from battlesnake_heuristics.search.evaluation import NUM_INPUTS, Evaluation
from battlesnake_heuristics.search.search import Search
from battlesnake_heuristics.search.self_play import (
    ROW_RANDOM,
    SearchPlayer,
    SelfPlayBatch,
    SelfPlaySettings,
    play_games,
)
from battlesnake_rl.mabs.envs.env_factory import ENV_CONFIG_DEFAULTS, ENV_NAME
from battlesnake_rl.mabs.exit.evaluation_fit import (
    EvaluationModel,
    Samples,
    label_with_td_lambda,
    quantized_loss,
)
from battlesnake_rl.mabs.exit.exit_self_play import (
    GAME_MIX,
    ExitProgress,
    GameMixSchedule,
    SearchOpponentSampler,
    build_latest_player,
    game_mix_metadata,
    play_pair,
)
from battlesnake_rl.mabs.settings import EXITSettings
from battlesnake_rl.mabs.strength import sample_game
from battlesnake_rl.mabs.strength.ladder_evaluator import Measurement, StrengthHistory, fast_ladder
from sagemaker_rl.job.resources import BufferSize
from sagemaker_rl.runs.divergence import DivergedError, is_finite

CHAMPION_FILE_NAME = "champion.evaluation"
_MODEL_FILE_NAME, _STATE_FILE_NAME = "model.pt", "state.json"
_LOSS_NAMES = ("loss_2_snakes", "loss_3_snakes", "loss_4plus_snakes", "loss_quantized")
"""Names of the loss metrics.

The metrics are the final loss of each stack and the loss of the quantized network. The loss of the
quantized network is measured on the new samples.
"""
_STOP_POLL_INTERVAL_S = 1.0
"""Seconds between two checks for a stop request during an iteration.

An iteration may take many minutes.
"""
_SAMPLE_BYTES = 2 * NUM_INPUTS + 1 + 4
"""Bytes of one sample in `Samples`."""
_CPUS_PER_RUNNER = 0.5
"""CPUs that Ray reserves per self-play runner; 0.5 leaves room for the learner."""
_MAX_FRAGMENTS_IN_FLIGHT = 2
"""Maximum number of fragments in flight per runner."""
_EXIT_MAX_RUNG_CPU_S = 1.5
"""Maximum CPU seconds per game against a rung of the ladder.

With this limit, the ladder includes the frozen search with 2,000 nodes.
"""
_MIN_LADDER_CPU_S = 5.0
"""Minimum CPU seconds of a placement.

The confidence interval of a shorter placement is too wide.
"""


class EXITConfig(AlgorithmConfig):  # type: ignore[misc]
    """Configuration of EXIT for the launcher.

    Only `EXITSettings`, ``num_env_runners`` and ``seed`` have an effect.
    """

    settings_class = EXITSettings

    def __init__(self) -> None:
        super().__init__(algo_class=EXIT)
        self.settings = EXITSettings()
        self.num_env_runners = 1
        # The driver sleeps during self-play, so Ray can place one runner on every CPU.
        self.num_cpus_per_env_runner = _CPUS_PER_RUNNER

    def environment(self, env: str, *, env_config: Mapping[str, Any]) -> EXITConfig:
        """Reject options of the games.

        EXIT plays its own mix of games (`GAME_MIX`).

        Raises:
            ValueError: If an option differs from its default.
        """
        for name, value in env_config.items():
            if name not in ENV_CONFIG_DEFAULTS or value != ENV_CONFIG_DEFAULTS[name]:
                raise ValueError(
                    f"{name} is {value!r}, but EXIT plays its own mix of games "
                    "(two to eight snakes, several boards and rulesets); leave the option out"
                )
        super().environment(env, env_config=env_config)
        return self

    def validate(self) -> None:
        """Raise ValueError if a setting is invalid."""
        if self.num_env_runners < 1:
            raise ValueError(
                f"EXIT needs at least one env runner, got num_env_runners={self.num_env_runners}; "
                "set num_env_runners"
            )
        Sprt(self.settings.elo0, self.settings.elo1)

    def apply(self, settings: EXITSettings) -> None:
        """Replace all settings."""
        self.settings = settings

    def full_buffer(self) -> BufferSize:
        """Return the size of a full sample buffer, including the copy that each fit makes."""
        buffered = self.settings.moves_per_iteration * self.settings.kept_fraction
        moves = int(buffered * self.settings.buffer_iterations)
        return BufferSize(
            "buffer_iterations", self.settings.buffer_iterations, 2 * moves * _SAMPLE_BYTES
        )

    @property
    def games(self) -> list[str]:
        """Return descriptions of the games in `GAME_MIX`.

        A run cannot resume from a checkpoint with other games.
        """
        return [str(setup) for _, setup in GAME_MIX]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings, keyed by name, and the options of the games."""
        return asdict(self.settings) | {"env_config": self.env_config}

    def update_from_dict(self, config_dict: Mapping[str, Any]) -> EXITConfig:
        """Replace the settings whose names ``config_dict`` contains."""
        changed = dict(config_dict)
        self.environment(ENV_NAME, env_config=changed.pop("env_config", {}))
        self.settings = replace(self.settings, **changed)
        return self

    def build_algo(self) -> EXIT:
        """Create the algorithm."""
        return EXIT(self)


@dataclass(frozen=True, slots=True)
class SelfPlayFragment:
    """Self-play games of one fragment, and their cost in CPU seconds."""

    games: SelfPlayBatch
    cpu_seconds: float
    champion: int = 0
    """Number of promotions at the time of the request.

    The number identifies the champion that plays the fragment.
    """


def _label_fragments(fragments: Sequence[SelfPlayFragment]) -> Samples:
    """Return labeled samples; the games of each champion are labeled separately.

    The values of different champions have different scales.
    """
    by_champion: dict[int, list[SelfPlayBatch]] = {}
    for fragment in fragments:
        by_champion.setdefault(fragment.champion, []).append(fragment.games)
    return Samples.concatenate(
        [label_with_td_lambda(SelfPlayBatch.concatenate(games)) for games in by_champion.values()]
    )


class SelfPlayRunner:
    """Stateless Ray actor that plays games for the learner."""

    def play_fragment(
        self,
        seed: int,
        setup: SelfPlaySettings,
        players: Sequence[SearchPlayer],
        learned: list[int],
        moves: int,
    ) -> SelfPlayFragment:
        """Play games of ``players`` until the games have ``moves`` searched moves.

        Only the moves of the players at the indices ``learned`` are returned.
        """
        began = time.process_time()
        games = play_games(seed, setup, players, moves)
        return SelfPlayFragment(games.select_players(learned), time.process_time() - began)

    def play_game_pair(
        self, one: SearchPlayer, other: SearchPlayer, snakes: int, seed: int
    ) -> tuple[int, float]:
        """Play one game pair.

        Returns:
            The outcome for ``one``, and the cost in CPU seconds.
        """
        began = time.process_time()
        return play_pair(one, other, snakes, seed), time.process_time() - began

    def run_placement(
        self, evaluation: Evaluation, positions: int, cpu_seconds: float, seed: int
    ) -> tuple[ladder.Placement, float]:
        """Place a search with ``evaluation`` on the ladder.

        Returns:
            The placement, and its cost in CPU seconds.
        """
        began = time.process_time()
        placement = ladder.run_placement(
            lambda seed: Search(evaluation=evaluation),
            settings=MatchSettings(nodes=positions),
            rungs=fast_ladder(_EXIT_MAX_RUNG_CPU_S),
            cpu_seconds=cpu_seconds,
            precision_elo=20.0,
            seed=seed,
        )
        return placement, time.process_time() - began


class IterationStoppedError(RuntimeError):
    """Error raised if a stop request ends an iteration early."""


class EXIT:
    """Expert iteration, with the methods that the launcher calls on an algorithm."""

    env_runner_group = None
    """None, because RLlib does not manage the self-play runners."""

    should_stop: Callable[[], bool] = staticmethod(lambda: False)
    """Function polled during an iteration; True stops the iteration."""

    def __init__(self, config: EXITConfig) -> None:
        self.settings = config.settings
        self.training_iteration = 0
        self.progress = ExitProgress(seed=1 + 1_000_003 * (config.seed or 0))
        self.model = EvaluationModel()
        self.champion: Evaluation | None = None
        self.sample_buffer: list[Samples] = []
        self.promotions = 0
        self.strength = StrengthHistory()
        self._schedule = GameMixSchedule()
        # The fragments in flight contain at most the moves of one iteration.
        share = math.ceil(
            self.settings.moves_per_iteration / (_MAX_FRAGMENTS_IN_FLIGHT * config.num_env_runners)
        )
        self._moves_per_fragment = min(self.settings.moves_per_fragment, share)
        self._fragments: dict[ray.ObjectRef, _PendingFragment] = {}
        self._temporary_dir = TemporaryDir("exit")
        self._folder = self._temporary_dir.path
        torch.set_num_threads(1)
        # If a runner fails, Ray repeats the runner's requests on a replacement.
        self._runner = ray.remote(num_cpus=_CPUS_PER_RUNNER, max_restarts=-1, max_task_retries=-1)(
            SelfPlayRunner
        )
        self._runners: list[Any] = []
        self.ensure_num_runners(config.num_env_runners)

    def ensure_num_runners(self, runners: int) -> None:
        """Start additional runners until ``runners`` runners exist."""
        while len(self._runners) < runners:
            self._runners.append(self._runner.remote())

    def train(self) -> dict[str, Any]:
        """Run one iteration: self-play, fit, and a match of candidate against champion.

        Raises:
            IterationStoppedError: If `should_stop` returned True. The algorithm can still be saved;
                the state has no incomplete fit.
            DivergedError: If the fit led to weights that are not finite.
        """
        began = time.process_time()
        fragments = list(self._run_self_play())
        fresh = _label_fragments(fragments)
        self._buffer_samples(fresh)
        losses = self._fit_model()
        self.progress.iterations += 1
        self.progress.cpu_seconds += time.process_time() - began
        candidate = self.model.to_evaluation(self._get_metadata())
        rounded = quantized_loss(candidate, fresh)
        match = self._play_match(candidate)
        if match["promoted"]:
            self._promote(candidate)
        # The iteration is complete except for this placement.
        with suppress(IterationStoppedError):
            self._place_champion(least=_MIN_LADDER_CPU_S)
        self.training_iteration += 1
        return self._build_results(fragments, [*losses, rounded], match)

    def _buffer_samples(self, fresh: Samples) -> None:
        """Add new samples to the buffer, and drop old samples.

        The buffer contains the samples of the last ``buffer_iterations`` iterations. Only the
        fraction ``kept_fraction`` of an iteration's samples is buffered. The samples of the first
        iteration are dropped earlier, after ``bootstrap_buffer_iterations`` iterations.
        """
        number = self.progress.iterations
        later = number if number >= self.settings.bootstrap_buffer_iterations else number + 1
        if self.settings.kept_fraction < 1:
            fresh = fresh.subsample(self.settings.kept_fraction, seed=number)
        self.sample_buffer = [*self.sample_buffer, fresh][
            -min(self.settings.buffer_iterations, later) :
        ]

    def _fit_model(self) -> list[float]:
        """Fit the network, and return its losses; an aborted fit does not change the weights."""
        before = copy.deepcopy(self.model.get_state())
        try:
            losses = self.model.fit(
                Samples.concatenate(self.sample_buffer),
                self.settings.epochs if self.champion else self.settings.bootstrap_epochs,
                self.settings.lr if self.champion else self.settings.bootstrap_lr,
                seed=self.progress.iterations,
                after_step=self._raise_if_stopped,
            )
            if not all(map(is_finite, self.model.stacks)):
                raise DivergedError("the network has weights that are not finite")
        except (IterationStoppedError, DivergedError):
            self.model.set_state(before)
            raise
        return losses

    def _get_metadata(self) -> dict[str, Any]:
        """Return the metadata for the network's file."""
        return {
            "trained_for": game_mix_metadata(),
            "command": "train --algorithm EXIT",
            "settings": asdict(self.settings),
            "rounds": self.progress.iterations,
            "games": self.progress.games,
            "moves": self.progress.moves,
            "cpu_seconds": round(self.progress.cpu_seconds),
        }

    def _raise_if_stopped(self) -> None:
        """Raise `IterationStoppedError` if a stop of the run was requested."""
        if self.should_stop():
            raise IterationStoppedError("a stop of the run was requested")

    def _wait_for_first(self, references: Sequence[ray.ObjectRef]) -> ray.ObjectRef:
        """Return the first finished reference, or raise `IterationStoppedError`."""
        while True:
            ready, _ = ray.wait(list(references), num_returns=1, timeout=_STOP_POLL_INTERVAL_S)
            self._raise_if_stopped()
            if ready:
                return ready[0]

    def conclude(self, results: dict[str, Any]) -> None:
        """Place the champion on the ladder, and update ``results``.

        The training loop calls the method after the last iteration.
        """
        self._place_champion(least=1.0)
        results |= self.strength.to_metrics()

    def play_sample_game(self) -> Replay:
        """Record a duel of the champion against itself.

        Before the first promotion, the search plays with handcrafted weights.
        """
        return sample_game.play_search_duel(self.champion, 1 + self.training_iteration)

    def save_to_path(self, path: str) -> None:
        """Write a checkpoint into the directory ``path``."""
        folder = Path(path)
        write_atomically(
            folder / _MODEL_FILE_NAME, lambda part: torch.save(self.model.get_state(), part)
        )
        self.progress.save(folder)
        state = {
            "training_iteration": self.training_iteration,
            "promotions": self.promotions,
            "sample_buffer": len(self.sample_buffer),
        }
        (folder / _STATE_FILE_NAME).write_text(json.dumps(state, indent=1) + "\n")
        self.strength.save(folder)
        if self.champion is not None:
            self.champion.save(folder / CHAMPION_FILE_NAME)
        for network in self._folder.glob("network-*.evaluation"):
            shutil.copy(network, folder)
        for number, samples in enumerate(self.sample_buffer):
            samples.save(folder / f"samples-{number:03}.npz")

    def restore_from_path(self, path: str) -> None:
        """Restore a checkpoint from the directory ``path``."""
        folder = Path(path)
        state = old_runs.convert_exit_state(json.loads((folder / _STATE_FILE_NAME).read_text()))
        self.training_iteration = state["training_iteration"]
        self.promotions = state["promotions"]
        self.strength = StrengthHistory.load(folder)
        self.progress = ExitProgress.load(folder)
        self.model.set_state(torch.load(folder / _MODEL_FILE_NAME))
        if (folder / CHAMPION_FILE_NAME).exists():
            self.champion = Evaluation.load(folder / CHAMPION_FILE_NAME)
        for network in folder.glob("network-*.evaluation"):
            shutil.copy(network, self._folder)
        self.sample_buffer = [
            Samples.load(folder / f"samples-{number:03}.npz")
            for number in range(state["sample_buffer"])
        ]

    def stop(self) -> None:
        """Stop the self-play runners, and delete the temporary directory."""
        for runner in self._runners:
            ray.kill(runner)
        self._temporary_dir.delete()

    def _run_self_play(self) -> Iterator[SelfPlayFragment]:
        """Request and yield fragments until the iteration has enough searched moves."""
        played = 0
        while played < self.settings.moves_per_iteration:
            self._request_fragments()
            done = self._wait_for_first(list(self._fragments))
            asked = self._fragments.pop(done)
            fragment = replace(ray.get(done), champion=asked.champion)
            searched = int((fragment.games.rows["kind"] != ROW_RANDOM).sum())
            self._schedule.add_moves(asked.kind, searched - self._moves_per_fragment)
            self.progress.games += len(fragment.games.points)
            self.progress.moves += searched
            self.progress.cpu_seconds += fragment.cpu_seconds
            played += searched
            yield fragment

    def _request_fragments(self) -> None:
        """Request fragments until each runner has `_MAX_FRAGMENTS_IN_FLIGHT` in flight."""
        for number, runner in enumerate(self._runners):
            waiting = sum(asked.runner == number for asked in self._fragments.values())
            for _ in range(_MAX_FRAGMENTS_IN_FLIGHT - waiting):
                kind, setup, players, learned = self._choose_game()
                # A fragment increments its seed for every game, so the seeds of fragments are far
                # apart.
                self.progress.seed += 10_000
                reference = runner.play_fragment.remote(
                    self.progress.seed, setup, players, learned, self._moves_per_fragment
                )
                self._fragments[reference] = _PendingFragment(number, kind, self.promotions)

    def _choose_game(self) -> tuple[int, SelfPlaySettings, list[SearchPlayer], list[int]]:
        """Choose the game that is furthest behind its share, and draw the players.

        The share of a game is a fraction of all searched moves.

        Returns:
            Index of the game in `GAME_MIX`, settings of the game, players, and indices of the
            players whose moves become samples.
        """
        random = np.random.default_rng(self.progress.seed)
        kind = self._schedule.next_game()
        self._schedule.add_moves(kind, self._moves_per_fragment)
        deep = 0 < self.settings.deep_search_after_moves <= self.progress.moves
        setup = GAME_MIX[kind][1]
        player = build_latest_player(
            self.champion, setup.num_snakes, deep, self.settings.root_noise, random
        )
        players, learned = SearchOpponentSampler(self._folder, random).draw_players(
            setup.num_snakes, player
        )
        return kind, setup, players, learned

    def _play_match(self, candidate: Evaluation) -> dict[str, Any]:
        """Play a match of the candidate against the champion on all runners.

        Before the first promotion, the opponent is the search with handcrafted weights.

        Returns:
            ``pairs`` (number of game pairs), ``score`` of the candidate, and ``promoted`` (0 or 1).
        """
        one, other = (
            SearchPlayer(
                evaluation, nodes=self.settings.match_nodes, decoupled=evaluation is not None
            )
            for evaluation in (candidate, self.champion)
        )
        sprt = Sprt(self.settings.elo0, self.settings.elo1)
        pairs = [0] * 5
        for outcome in self._play_game_pairs(one, other):
            pairs[outcome] += 1
            if sprt.decide(pairs) is not None:
                break
        # If the test is undecided, the candidate is promoted if the estimated Elo difference is
        # above the midpoint of the two hypotheses.
        seen, verdict = estimate_elo(pairs), sprt.decide(pairs)
        promoted = verdict == "H1" or (verdict is None and seen.elo > (sprt.elo0 + sprt.elo1) / 2)
        score = seen.score if seen.pairs else math.nan
        return {"pairs": seen.pairs, "score": score, "promoted": int(promoted or not seen.pairs)}

    def _play_game_pairs(self, one: SearchPlayer, other: SearchPlayer) -> Any:
        """Yield the outcomes of game pairs in order.

        Duels and games of four snakes alternate.
        """
        references: list[ray.ObjectRef] = []
        base = 900_000_000 + 1000 * self.progress.iterations
        for index in range(self.settings.match_pairs):
            while len(references) < min(self.settings.match_pairs, index + len(self._runners)):
                number = len(references)
                runner = self._runners[number % len(self._runners)]
                snakes = (2, 4)[number % 2]
                references.append(runner.play_game_pair.remote(one, other, snakes, base + number))
            outcome, seconds = ray.get(self._wait_for_first([references[index]]))
            self.progress.cpu_seconds += seconds
            yield outcome

    def _promote(self, candidate: Evaluation) -> None:
        """Make the candidate the champion, and save its network for later opponents."""
        self.champion = candidate
        self.promotions += 1
        candidate.save(self._folder / f"network-{self.promotions:04}.evaluation")

    def _place_champion(self, least: float) -> None:
        """Place the champion on the ladder if enough CPU time is available.

        ``least`` is the required CPU time in seconds.
        """
        self.strength.training_seconds = self.progress.cpu_seconds
        owed = (
            self.settings.ladder_cpu_fraction * self.progress.cpu_seconds
            - self.strength.ladder_seconds
        )
        if self.champion is None or owed < least:
            return
        placing = self._runners[0].run_placement.remote(
            self.champion, self.settings.ladder_nodes, owed, self.progress.iterations
        )
        self._request_fragments()  # The other runners continue with self-play.
        placement, seconds = ray.get(self._wait_for_first([placing]))
        self.progress.cpu_seconds += seconds
        self.strength.ladder_seconds += seconds
        self.strength.training_seconds = self.progress.cpu_seconds
        self.strength.add(Measurement.from_placement(placement, self.progress.cpu_seconds / 60))
        # The champion's measurement counts as the best even if its Elo is not the highest, because
        # a promotion match is more precise than a placement on the ladder.
        self.strength.best = len(self.strength.measurements) - 1

    def _build_results(
        self,
        fragments: Sequence[SelfPlayFragment],
        losses: Sequence[float],
        match: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Return the results of one iteration under RLlib's names."""
        games = sum(len(fragment.games.points) for fragment in fragments)
        return {
            "training_iteration": self.training_iteration,
            "env_runners": {
                "num_env_steps_sampled_lifetime": self.progress.moves,
                "num_episodes": games,
                "episode_len_mean": sum(fragment.games.turns for fragment in fragments) / games,
                "episode_return_mean": match["score"],
            },
            "learners": dict(zip(_LOSS_NAMES, losses, strict=True)),
            "match": dict(match),
            "promotions": self.promotions,
            **self.strength.to_metrics(),
        }


@dataclass(frozen=True, slots=True)
class _PendingFragment:
    """Fragment that was requested from a runner and has not arrived."""

    runner: int
    kind: int
    champion: int
