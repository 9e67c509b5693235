"""Self-play of EXIT: mix of games, opponents, runners, and game pairs of a match."""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import ray
from numpy.typing import NDArray

from battlesnake_gym.common import old_runs
from battlesnake_gym.common.files import write_atomically
from battlesnake_heuristics.rating import ladder
from battlesnake_heuristics.rating.match import MatchSettings, assign_sides
from battlesnake_heuristics.rating.sprt import pair_outcome
from battlesnake_heuristics.search.evaluation import Evaluation
from battlesnake_heuristics.search.search import Search, Weights
from battlesnake_heuristics.search.self_play import (
    ROW_RANDOM,
    SearchPlayer,
    SelfPlayBatch,
    SelfPlaySettings,
    play_game,
    play_games,
)
from battlesnake_rl.mabs.strength.ladder_evaluator import fast_ladder

GAME_MIX = (
    (0.26, SelfPlaySettings()),
    (0.35, SelfPlaySettings(num_snakes=4)),
    (0.09, SelfPlaySettings(num_snakes=3)),
    (0.03, SelfPlaySettings(num_snakes=8)),
    (0.04, SelfPlaySettings(7, 7)),
    (0.03, SelfPlaySettings(19, 19, 4)),
    (0.03, SelfPlaySettings(ruleset="royale")),
    (0.04, SelfPlaySettings(ruleset="royale", num_snakes=4)),
    (0.04, SelfPlaySettings(ruleset="wrapped")),
    (0.04, SelfPlaySettings(ruleset="wrapped", num_snakes=4)),
    (0.03, SelfPlaySettings(ruleset="constrictor")),
    (0.02, SelfPlaySettings(ruleset="constrictor", num_snakes=4)),
)
"""Games, each with its share of the searched moves."""

NODE_CHOICES, DEEP_NODE_CHOICES = (100, 150, 200, 300), (400, 800, 1600)
"""Node limits per move; each fragment draws one limit.

The deeper search of late games misses fewer short tactics.
"""
SHARED_TREE_NODE_CHOICES = (200, 300, 400, 600)
"""Node limits per turn of games whose snakes share one tree.

Each fragment draws one limit. Such games start with three or more snakes.
"""
_WEIGHT_LOG_STD = {"food_near": 1.0, "length": 0.7, "longest": 0.7, "hunger": 1.0, "cramped": 0.7}
"""Standard deviation of the logarithm of each handcrafted weight that varies.

The varied weights differ between opponents.
"""
_MAX_WEIGHT_VALUE = 100_000
"""Maximum value of a handcrafted weight in the search."""


_STOP_POLL_INTERVAL_S = 1.0
"""Seconds between two checks for a stop request during an iteration.

An iteration may take many minutes.
"""

CPUS_PER_RUNNER = 0.5
"""CPUs that Ray reserves per self-play runner; 0.5 leaves room for the learner."""

_MAX_FRAGMENTS_IN_FLIGHT = 2
"""Maximum number of fragments in flight per runner."""

_MAX_RUNG_CPU_S = 1.5
"""Maximum CPU seconds per game against a rung of the ladder.

With this limit, the ladder includes the frozen search with 2,000 nodes.
"""


@dataclass
class ExitProgress:
    """Progress of a run, stored in ``progress.json``."""

    iterations: int = 0
    cpu_seconds: float = 0.0
    games: int = 0
    moves: int = 0
    seed: int = 1
    moves_behind: list[float] = field(default_factory=lambda: [0.0] * len(GAME_MIX))
    """Moves by which each game of `GAME_MIX` is behind its share of the searched moves."""

    @classmethod
    def load(cls, folder: Path) -> ExitProgress:
        """Load the progress from a directory."""
        kept = json.loads((folder / "progress.json").read_text())
        return cls(**old_runs.rename_keys(kept, old_runs.EXIT_STATE_KEYS))

    def save(self, folder: Path) -> None:
        """Write ``progress.json`` atomically."""
        text = json.dumps(vars(self), indent=1)
        write_atomically(folder / "progress.json", lambda part: part.write_text(text))


def _draw_players(
    snakes: int, latest: SearchPlayer, networks_dir: Path, rng: np.random.Generator
) -> tuple[list[SearchPlayer], list[int]]:
    """Draw the players of a fragment.

    An opponent is the player itself, an earlier network, or a search with varied handcrafted
    weights.

    Args:
        snakes: Number of players.
        latest: Player with the champion's network, or with handcrafted weights.
        networks_dir: Directory of the earlier champions' networks.
        rng: Random generator.

    Returns:
        The players, and the indices of the players whose moves become samples.
    """
    drawn = rng.random()
    if latest.evaluation is None or drawn < 0.6:
        return [latest] * snakes, list(range(snakes))
    others = snakes // 2 if rng.random() < 0.5 else 1
    earlier = sorted(networks_dir.glob("network-*.evaluation"))
    if drawn < 0.85 and earlier:
        path = earlier[rng.integers(len(earlier))]
        opponent = replace(latest, evaluation=Evaluation.load(path))
        return [latest] * (snakes - others) + [opponent] * others, list(range(snakes))
    opponent = replace(latest, evaluation=None, weights=_draw_weights(rng))
    return [latest] * (snakes - others) + [opponent] * others, list(range(snakes - others))


def _draw_weights(rng: np.random.Generator) -> Weights:
    """Return handcrafted weights with random changes, limited to `_MAX_WEIGHT_VALUE`."""
    now = Weights()
    changed = {
        name: min(round(getattr(now, name) * math.exp(rng.normal(0, width))), _MAX_WEIGHT_VALUE)
        for name, width in _WEIGHT_LOG_STD.items()
    }
    return replace(now, **changed)


def _play_pair(one: SearchPlayer, other: SearchPlayer, snakes: int, seed: int) -> int:
    """Play a game pair: two games from the same start with exchanged seats.

    With more than two snakes, the two sides alternate by seat. The side of the last living snake
    wins.

    Returns:
        Outcome for ``one``, an index in `sprt.PAIR_SCORES`.
    """
    setup = SelfPlaySettings(num_snakes=snakes, random_opening_turns=4, random_move_fraction=0.0)
    points = 0.0
    for number in (0, 1):
        sides = assign_sides(snakes, number)
        game = play_game(seed, setup, [(one, other)[side] for side in sides])
        share = float(sum(p for p, side in zip(game.points, sides, strict=True) if side == 0))
        points += 0.5 + 0.5 * float(np.sign(round(2 * share - 1, 6)))
    return pair_outcome(points)


def game_mix_metadata() -> dict[str, Any]:
    """Return the metadata about `GAME_MIX` for a network's file.

    The map ``royale`` is included if a game has the ruleset ``royale``.
    """
    rulesets = sorted({setup.ruleset for _, setup in GAME_MIX})
    return {
        "rulesets": rulesets,
        "maps": ["standard", *(["royale"] if "royale" in rulesets else [])],
        "sizes": sorted({(setup.width, setup.height) for _, setup in GAME_MIX}),
        "snakes": sorted({n for _, setup in GAME_MIX for n in range(2, setup.num_snakes + 1)}),
    }


def _play_fragment(
    seed: int,
    setup: SelfPlaySettings,
    players: Sequence[SearchPlayer],
    learned: list[int],
    moves: int,
) -> SelfPlayBatch:
    """Play games of ``players`` until the games have ``moves`` searched moves.

    Only the moves of the players at the indices ``learned`` are returned.
    """
    return play_games(seed, setup, players, moves).select_players(learned)


class _SelfPlayRunner:
    """Stateless Ray actor that plays games for the learner."""

    def call(self, function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
        """Return the result of a function, and its cost in CPU seconds."""
        began = time.process_time()
        return function(*arguments), time.process_time() - began


class IterationStoppedError(RuntimeError):
    """Error raised if a stop request ends an iteration early."""


class SelfPlay:
    """Self-play runners, which continue to play while the learner fits the network.

    Args:
        settings: Settings of the run.
        num_runners: Number of runners at the start.
        progress: Progress of the run, which the object updates.
        networks_dir: Directory of the earlier champions' networks.
    """

    should_stop: Callable[[], bool] = staticmethod(lambda: False)
    """Function polled during an iteration; True stops the iteration."""

    def __init__(
        self, settings: Any, num_runners: int, progress: ExitProgress, networks_dir: Path
    ) -> None:
        self._settings, self.progress, self._networks_dir = settings, progress, networks_dir
        shares = np.array([share for share, _ in GAME_MIX])
        self._shares = shares / shares.sum()
        # The fragments in flight contain at most the moves of one iteration.
        share = math.ceil(settings.moves_per_iteration / (_MAX_FRAGMENTS_IN_FLIGHT * num_runners))
        self._moves_per_fragment = min(settings.moves_per_fragment, share)
        # Runner, index in `GAME_MIX`, and champion of each fragment that has not arrived.
        self._fragments: dict[ray.ObjectRef, tuple[int, int, int]] = {}
        # Game pairs whose CPU time is not counted yet.
        self._pairs: list[ray.ObjectRef] = []
        # If a runner fails, Ray repeats the runner's requests on a replacement.
        self._runner = ray.remote(num_cpus=CPUS_PER_RUNNER, max_restarts=-1, max_task_retries=-1)(
            _SelfPlayRunner
        )
        self.runners: list[Any] = []
        self.ensure_num_runners(num_runners)

    def ensure_num_runners(self, num_runners: int) -> None:
        """Start additional runners until ``num_runners`` runners exist."""
        while len(self.runners) < num_runners:
            self.runners.append(self._runner.remote())

    def stop(self) -> None:
        """Stop the runners."""
        for runner in self.runners:
            ray.kill(runner)

    def raise_if_stopped(self) -> None:
        """Raise `IterationStoppedError` if a stop of the run was requested."""
        if self.should_stop():
            raise IterationStoppedError("a stop of the run was requested")

    def _get_first(self, references: Sequence[ray.ObjectRef]) -> tuple[ray.ObjectRef, Any]:
        """Return the first finished reference and its value."""
        while True:
            ready, _ = ray.wait(list(references), num_returns=1, timeout=_STOP_POLL_INTERVAL_S)
            self.raise_if_stopped()
            if ready:
                return ready[0], ray.get(ready[0])

    def collect(
        self, champion: Evaluation | None, promotions: int
    ) -> Iterator[tuple[int, SelfPlayBatch]]:
        """Request and yield fragments until the iteration has enough searched moves.

        Args:
            champion: Network of the players, or None for the handcrafted evaluation.
            promotions: Number of promotions, which identifies the champion.

        Yields:
            The number of promotions at the time of the request, and the games of a fragment.

        Raises:
            IterationStoppedError: If a stop of the run was requested.
        """
        played = 0
        while played < self._settings.moves_per_iteration:
            self.request_fragments(champion, promotions)
            done, (games, seconds) = self._get_first(list(self._fragments))
            _, kind, player = self._fragments.pop(done)
            searched = int((games.rows["kind"] != ROW_RANDOM).sum())
            behind = np.array(self.progress.moves_behind)
            self.progress.moves_behind = self._count_moves(behind, kind, searched).tolist()
            self.progress.games += len(games.points)
            self.progress.moves += searched
            self.progress.cpu_seconds += seconds
            played += searched
            yield player, games

    def request_fragments(self, champion: Evaluation | None, promotions: int) -> None:
        """Request fragments until each runner has `_MAX_FRAGMENTS_IN_FLIGHT` in flight."""
        for number, runner in enumerate(self.runners):
            waiting = sum(owner == number for owner, _, _ in self._fragments.values())
            for _ in range(_MAX_FRAGMENTS_IN_FLIGHT - waiting):
                kind, setup, players, learned = self.choose_game(champion)
                # A fragment increments its seed for every game, so the seeds of fragments are far
                # apart.
                self.progress.seed += 10_000
                seed, moves = self.progress.seed, self._moves_per_fragment
                reference = runner.call.remote(_play_fragment, seed, setup, players, learned, moves)
                self._fragments[reference] = number, kind, promotions

    def _count_moves(
        self, behind: NDArray[np.float64], kind: int, moves: int
    ) -> NDArray[np.float64]:
        """Return ``behind`` after ``moves`` searched moves of a game of `GAME_MIX`."""
        behind = behind + self._shares * moves
        behind[kind] -= moves
        return behind

    def choose_game(
        self, champion: Evaluation | None
    ) -> tuple[int, SelfPlaySettings, list[SearchPlayer], list[int]]:
        """Choose the game that is furthest behind its share, and draw the players.

        The share of a game is a fraction of all searched moves. In games that start with three or
        more snakes, the champion uses the decoupled search with a shared tree.

        Returns:
            Index of the game in `GAME_MIX`, settings of the game, players, and indices of the
            players whose moves become samples.
        """
        random = np.random.default_rng(self.progress.seed)
        behind = np.array(self.progress.moves_behind)
        for _, waiting, _ in self._fragments.values():
            behind = self._count_moves(behind, waiting, self._moves_per_fragment)
        kind = int((behind + self._shares).argmax())
        setup = GAME_MIX[kind][1]
        decoupled = champion is not None and setup.num_snakes > 2
        choices: Sequence[int] = SHARED_TREE_NODE_CHOICES if decoupled else NODE_CHOICES
        if 0 < self._settings.deep_search_after_moves <= self.progress.moves:
            choices = DEEP_NODE_CHOICES
        player = SearchPlayer(
            champion,
            nodes=int(random.choice(choices)),
            decoupled=decoupled,
            root_noise=self._settings.root_noise if decoupled else 0.0,
            shared_tree=decoupled,
        )
        drawn = _draw_players(setup.num_snakes, player, self._networks_dir, random)
        return kind, setup, *drawn

    def play_game_pairs(self, one: SearchPlayer, other: SearchPlayer) -> Iterator[int]:
        """Yield the outcomes of game pairs in order.

        Duels and games of four snakes alternate.
        """
        while self._pairs:  # The runners completed these pairs after the last match was decided.
            self.progress.cpu_seconds += self._get_first([self._pairs.pop()])[1][1]
        base = 900_000_000 + 1000 * self.progress.iterations
        for index in range(self._settings.match_pairs):
            while len(self._pairs) < min(self._settings.match_pairs - index, len(self.runners)):
                number = index + len(self._pairs)
                runner = self.runners[number % len(self.runners)]
                snakes = (2, 4)[number % 2]
                reference = runner.call.remote(_play_pair, one, other, snakes, base + number)
                self._pairs.append(reference)
            _, (outcome, seconds) = self._get_first([self._pairs.pop(0)])
            self.progress.cpu_seconds += seconds
            yield outcome

    def run_placement(
        self, champion: Evaluation, promotions: int, cpu_seconds: float
    ) -> tuple[ladder.Placement, float]:
        """Place the champion on the ladder while the other runners continue with self-play.

        Returns:
            The placement, and its cost in CPU seconds.
        """
        place = functools.partial(
            ladder.run_placement,
            lambda seed: Search(evaluation=champion),
            settings=MatchSettings(nodes=self._settings.ladder_nodes),
            rungs=fast_ladder(_MAX_RUNG_CPU_S),
            cpu_seconds=cpu_seconds,
            precision_elo=20.0,
            seed=self.progress.iterations,
        )
        placing = self.runners[0].call.remote(place)
        self.request_fragments(champion, promotions)
        placement, seconds = self._get_first([placing])[1]
        self.progress.cpu_seconds += seconds
        return placement, seconds
