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
import shlex
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common import old_runs
from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.temporary_dirs import TemporaryDir
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Game
from battlesnake_heuristics.rating.sprt import EloEstimate, Sprt
from battlesnake_heuristics.search.evaluation import NUM_INPUTS, Evaluation
from battlesnake_heuristics.search.search import Search
from battlesnake_heuristics.search.self_play import SearchPlayer, SelfPlayBatch
from battlesnake_rl.mabs.base.settings_config import StandaloneConfig
from battlesnake_rl.mabs.exit.evaluation_fit import (
    EvaluationModel,
    Samples,
)
from battlesnake_rl.mabs.exit.exit_self_play import (
    CPUS_PER_RUNNER,
    GAME_MIX,
    ExitProgress,
    IterationStoppedError,
    SelfPlay,
    game_mix_metadata,
)
from battlesnake_rl.mabs.settings.algorithm_settings import EXITSettings
from battlesnake_rl.mabs.strength.ladder_evaluator import (
    MAX_SAMPLE_GAME_TURNS,
    Measurement,
    StrengthHistory,
)
from sagemaker_rl.job.resources import BufferSize
from sagemaker_rl.runs.divergence import DivergedError, is_finite

CHAMPION_FILE_NAME = "champion.evaluation"
_MODEL_FILE_NAME, _STATE_FILE_NAME = "model.pt", "state.json"
_LOSS_NAMES = ("loss_2_snakes", "loss_3_snakes", "loss_4plus_snakes", "loss_quantized")
"""Names of the loss metrics.

The metrics are the final loss of each stack and the loss of the quantized network. The loss of the
quantized network is measured on the new samples.
"""
_SAMPLE_BYTES = 2 * NUM_INPUTS + 1 + 4
"""Bytes of one sample in `Samples`."""
_SAMPLE_GAME_NODES = 100
"""Number of nodes per move of the search in a sample game."""
_MIN_LADDER_CPU_S = 5.0
"""Minimum CPU seconds of a placement.

The confidence interval of a shorter placement is too wide.
"""


class EXITConfig(StandaloneConfig):
    """Configuration of EXIT for the launcher.

    Only `EXITSettings`, ``num_env_runners`` and ``seed`` have an effect.
    """

    settings_class = EXITSettings

    def __init__(self) -> None:
        super().__init__(EXIT)
        self.num_env_runners = 1
        # The driver sleeps during self-play, so Ray can place one runner on every CPU.
        self.num_cpus_per_env_runner = CPUS_PER_RUNNER

    def validate(self) -> None:
        """Raise ValueError if a setting is invalid."""
        if self.num_env_runners < 1:
            raise ValueError(
                f"EXIT needs at least one env runner, got num_env_runners={self.num_env_runners}; "
                "set num_env_runners"
            )
        Sprt(self.settings.elo0, self.settings.elo1)

    def full_buffer(self) -> BufferSize:
        """Return the size of a full sample buffer, including the copy that each fit makes."""
        buffered = self.settings.moves_per_iteration * self.settings.kept_fraction
        count = self.settings.buffer_iterations
        size = 2 * math.ceil(buffered * count) * _SAMPLE_BYTES
        return BufferSize("buffer_iterations", count, size)

    def checkpoint_identity(self) -> dict[str, Any]:
        """Return the games in `GAME_MIX`, which a checkpoint and the resuming run must share."""
        # Checkpoints from before the rules had a limited view lack this field.
        games = [str(setup).replace(", view_radius=None", "") for _, setup in GAME_MIX]
        return {"games": games}

    def export_model(self, checkpoint: Path, model_dir: Path) -> tuple[str, str]:
        """Write the best evaluation.

        Returns:
            Text about the evaluation, and the next command.
        """
        champion = model_dir / CHAMPION_FILE_NAME
        if not (checkpoint / CHAMPION_FILE_NAME).exists():
            champion.unlink(missing_ok=True)  # --no-resume keeps the model of the deleted run.
            return (
                "none: no network was as strong as the handcrafted weights yet",
                "resume with the same command and more --minutes",
            )
        Evaluation.load(checkpoint / CHAMPION_FILE_NAME).save(champion)
        return str(champion), f"battlesnake-gym runs {shlex.quote(str(model_dir.parent))}"


def _label_fragments(fragments: Sequence[tuple[int, SelfPlayBatch]]) -> Samples:
    """Return labeled samples of fragments from `SelfPlay.collect`.

    The games of each champion are labeled separately, because the values of different champions
    have different scales.
    """
    by_champion: dict[int, list[SelfPlayBatch]] = {}
    for champion, games in fragments:
        by_champion.setdefault(champion, []).append(games)
    return Samples.concatenate(
        [Samples.from_games(SelfPlayBatch.concatenate(games)) for games in by_champion.values()]
    )


class EXIT:
    """Expert iteration, with the methods that the launcher calls on an algorithm."""

    env_runner_group = None
    """None, because RLlib does not manage the self-play runners."""

    should_stop: Callable[[], bool] = staticmethod(lambda: False)
    """Function polled during an iteration; True stops the iteration."""

    def __init__(self, config: EXITConfig) -> None:
        self.settings = config.settings
        self.training_iteration = 0
        self.model = EvaluationModel()
        self.champion: Evaluation | None = None
        self.sample_buffer: list[Samples] = []
        self.promotions = 0
        self.strength = StrengthHistory()
        self._temporary_dir = TemporaryDir("exit")
        self._folder = self._temporary_dir.path
        torch.set_num_threads(1)
        self.progress = ExitProgress(seed=1 + 1_000_003 * (config.seed or 0))
        count = config.num_env_runners
        self.self_play = SelfPlay(self.settings, count, self.progress, self._folder)
        self.ensure_num_runners = self.self_play.ensure_num_runners

    def train(self) -> dict[str, Any]:
        """Run one iteration: self-play, fit, and a match of candidate against champion.

        Raises:
            IterationStoppedError: If `should_stop` returned True. The algorithm can still be saved;
                the state has no incomplete fit.
            DivergedError: If the fit led to weights that are not finite.
        """
        self.self_play.should_stop = self.should_stop
        began = time.process_time()
        fragments = list(self.self_play.collect(self.champion, self.promotions))
        fresh = _label_fragments(fragments)
        self._buffer_samples(fresh)
        losses = self._fit_model()
        self.progress.iterations += 1
        self.progress.cpu_seconds += time.process_time() - began
        candidate = self.model.to_evaluation(self._get_metadata())
        rounded = fresh.quantized_loss(candidate)
        match = self._play_match(candidate)
        if match["promoted"]:
            self._promote(candidate)
        self._place_champion(least=_MIN_LADDER_CPU_S)
        self.training_iteration += 1
        return self._build_results([games for _, games in fragments], [*losses, rounded], match)

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
        kept = min(self.settings.buffer_iterations, later)
        self.sample_buffer = [*self.sample_buffer, fresh][-kept:]

    def _fit_model(self) -> list[float]:
        """Fit the network, and return its losses; an aborted fit does not change the weights."""
        before = copy.deepcopy(self.model.get_state())
        try:
            losses = self.model.fit(
                Samples.concatenate(self.sample_buffer),
                self.settings.epochs if self.champion else self.settings.bootstrap_epochs,
                self.settings.lr if self.champion else self.settings.bootstrap_lr,
                seed=self.progress.iterations,
                after_step=self.self_play.raise_if_stopped,
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
        board = Board.new(11, 11, 2, game=Game(seed=1 + self.training_iteration))
        search = Search(evaluation=self.champion, nodes=_SAMPLE_GAME_NODES)
        snakes = {snake.id: search for snake in board.snakes}
        return Replay.from_play(board, snakes, max_turns=MAX_SAMPLE_GAME_TURNS)

    def save_to_path(self, path: str) -> None:
        """Write a checkpoint into the directory ``path``."""
        folder = Path(path)
        model = self.model.get_state()
        write_atomically(folder / _MODEL_FILE_NAME, lambda part: torch.save(model, part))
        self.progress.save(folder)
        state = {"training_iteration": self.training_iteration, "promotions": self.promotions}
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
        stored = json.loads((folder / _STATE_FILE_NAME).read_text())
        state = old_runs.rename_keys(stored, old_runs.EXIT_STATE_KEYS)
        self.training_iteration = state["training_iteration"]
        self.promotions = state["promotions"]
        self.strength = StrengthHistory.load(folder)
        self.progress = self.self_play.progress = ExitProgress.load(folder)
        self.model.set_state(torch.load(folder / _MODEL_FILE_NAME))
        if (folder / CHAMPION_FILE_NAME).exists():
            self.champion = Evaluation.load(folder / CHAMPION_FILE_NAME)
        for network in folder.glob("network-*.evaluation"):
            shutil.copy(network, self._folder)
        self.sample_buffer = [Samples.load(one) for one in sorted(folder.glob("samples-*.npz"))]

    def stop(self) -> None:
        """Stop the self-play runners, and delete the temporary directory."""
        self.self_play.stop()
        self._temporary_dir.delete()

    def _play_match(self, candidate: Evaluation) -> dict[str, Any]:
        """Play a match of the candidate against the champion on all runners.

        Before the first promotion, the opponent is the search with handcrafted weights.

        Returns:
            ``pairs`` (number of game pairs), ``score`` of the candidate, and ``promoted`` (0 or 1).
        """
        nodes = self.settings.match_nodes
        one, other = (
            SearchPlayer(evaluation, nodes=nodes, decoupled=evaluation is not None)
            for evaluation in (candidate, self.champion)
        )
        sprt = Sprt(self.settings.elo0, self.settings.elo1)
        pairs = [0] * 5
        for outcome in self.self_play.play_game_pairs(one, other):
            pairs[outcome] += 1
            if sprt.decide(pairs) is not None:
                break
        # If the test is undecided, the candidate is promoted if the estimated Elo difference is
        # above the midpoint of the two hypotheses.
        seen, verdict = EloEstimate.from_pairs(pairs), sprt.decide(pairs)
        promoted = verdict == "H1" or (verdict is None and seen.elo > (sprt.elo0 + sprt.elo1) / 2)
        score = seen.score if seen.pairs else math.nan
        return {"pairs": seen.pairs, "score": score, "promoted": int(promoted or not seen.pairs)}

    def _promote(self, candidate: Evaluation) -> None:
        """Make the candidate the champion, and save its network for later opponents."""
        self.champion = candidate
        self.strength.best = None  # The measurements are of earlier champions.
        self.promotions += 1
        candidate.save(self._folder / f"network-{self.promotions:04}.evaluation")

    def _place_champion(self, least: float) -> None:
        """Place the champion on the ladder if enough CPU time is available.

        ``least`` is the required CPU time in seconds.
        """
        self.strength.training_seconds = self.progress.cpu_seconds
        owed = self.settings.ladder_cpu_fraction * self.progress.cpu_seconds
        owed -= self.strength.ladder_seconds
        if self.champion is None or owed < least:
            return
        try:
            placement, seconds = self.self_play.run_placement(self.champion, self.promotions, owed)
        except IterationStoppedError:  # The iteration is complete except for this placement.
            return
        self.strength.ladder_seconds += seconds
        self.strength.training_seconds = self.progress.cpu_seconds
        self.strength.add(Measurement.from_placement(placement, self.progress.cpu_seconds / 60))
        # The champion's measurement counts as the best even if its Elo is not the highest, because
        # a promotion match is more precise than a placement on the ladder.
        self.strength.best = len(self.strength.measurements) - 1

    def _build_results(
        self, batches: list[SelfPlayBatch], losses: list[float], match: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the results of one iteration under RLlib's names."""
        games = sum(len(batch.points) for batch in batches)
        return {
            "training_iteration": self.training_iteration,
            "env_runners": {
                "num_env_steps_sampled_lifetime": self.progress.moves,
                "num_episodes": games,
                "episode_len_mean": sum(batch.turns for batch in batches) / games,
                "episode_return_mean": match["score"],
            },
            "learners": dict(zip(_LOSS_NAMES, losses, strict=True)),
            "match": match,
            "promotions": self.promotions,
            **self.strength.to_metrics(),
        }
