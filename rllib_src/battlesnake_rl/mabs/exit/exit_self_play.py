"""Self-play of EXIT: mix of games, opponents, and game pairs of a match."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from battlesnake_gym.common import old_runs
from battlesnake_gym.common.files import write_atomically
from battlesnake_heuristics.rating.match import assign_sides
from battlesnake_heuristics.rating.sprt import pair_outcome
from battlesnake_heuristics.search.evaluation import Evaluation
from battlesnake_heuristics.search.search import Weights
from battlesnake_heuristics.search.self_play import SearchPlayer, SelfPlaySettings, play_game

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


@dataclass
class ExitProgress:
    """Progress of a run, stored in ``progress.json``."""

    iterations: int = 0
    cpu_seconds: float = 0.0
    games: int = 0
    moves: int = 0
    seed: int = 1

    @classmethod
    def load(cls, folder: Path) -> ExitProgress:
        """Load the progress from a directory, or return new progress."""
        path = folder / "progress.json"
        if not path.exists():
            return cls()
        return cls(**old_runs.convert_exit_state(json.loads(path.read_text())))

    def save(self, folder: Path) -> None:
        """Write ``progress.json`` atomically."""
        text = json.dumps(vars(self), indent=1)
        write_atomically(folder / "progress.json", lambda part: part.write_text(text))


class SearchOpponentSampler:
    """Sampler of search opponents.

    An opponent is the player itself, an earlier network, or a search with varied handcrafted
    weights.
    """

    def __init__(self, folder: Path, rng: np.random.Generator) -> None:
        self.rng = rng
        self.earlier = sorted(folder.glob("network-*.evaluation"))

    def draw_players(
        self, snakes: int, latest: SearchPlayer
    ) -> tuple[list[SearchPlayer], list[int]]:
        """Draw the players of a fragment.

        Args:
            snakes: Number of players.
            latest: Player with the champion's network, or with handcrafted weights.

        Returns:
            The players, and the indices of the players whose moves become samples.
        """
        drawn = self.rng.random()
        if latest.evaluation is None or drawn < 0.6:
            return [latest] * snakes, list(range(snakes))
        others = snakes // 2 if self.rng.random() < 0.5 else 1
        if drawn < 0.85 and self.earlier:
            path = self.earlier[self.rng.integers(len(self.earlier))]
            rival = replace(latest, evaluation=Evaluation.load(path))
            return [latest] * (snakes - others) + [rival] * others, list(range(snakes))
        rival = replace(latest, evaluation=None, weights=self.draw_weights())
        return [latest] * (snakes - others) + [rival] * others, list(range(snakes - others))

    def draw_weights(self) -> Weights:
        """Return handcrafted weights with random changes, limited to `_MAX_WEIGHT_VALUE`."""
        now = Weights()
        changed = {
            name: min(
                round(getattr(now, name) * math.exp(self.rng.normal(0, width))), _MAX_WEIGHT_VALUE
            )
            for name, width in _WEIGHT_LOG_STD.items()
        }
        return replace(now, **changed)


def build_latest_player(
    champion: Evaluation | None,
    num_snakes: int,
    deep: bool,
    root_noise: float,
    rng: np.random.Generator,
) -> SearchPlayer:
    """Return the player whose moves become the samples of a fragment.

    In games that start with three or more snakes, the champion uses the decoupled search with a
    shared tree.

    Args:
        champion: Network of the player, or None for the handcrafted evaluation.
        num_snakes: Number of snakes at the start of the games.
        deep: Whether the node limit is drawn from `DEEP_NODE_CHOICES`.
        root_noise: Weight of the root noise of the decoupled search, in [0, 1].
        rng: Random generator for the node limit.
    """
    decoupled = champion is not None and num_snakes > 2
    shallow_choices = SHARED_TREE_NODE_CHOICES if decoupled else NODE_CHOICES
    nodes = int(rng.choice(DEEP_NODE_CHOICES if deep else shallow_choices))
    if not decoupled:
        return SearchPlayer(champion, nodes=nodes)
    return SearchPlayer(
        champion, nodes=nodes, decoupled=True, root_noise=root_noise, shared_tree=True
    )


class GameMixSchedule:
    """Selector of the game that is furthest behind its share of the searched moves.

    `GAME_MIX` contains the games and their shares.
    """

    def __init__(self) -> None:
        shares = np.array([share for share, _ in GAME_MIX])
        self._shares = shares / shares.sum()
        self._behind = np.zeros(len(GAME_MIX))

    def next_game(self) -> int:
        """Return the index of the next game in `GAME_MIX`."""
        return int((self._behind + self._shares).argmax())

    def add_moves(self, index: int, moves: int) -> None:
        """Credit game ``index`` with ``moves`` searched moves.

        The moves may be played or only requested. Negative numbers subtract moves.
        """
        self._behind += self._shares * moves
        self._behind[index] -= moves


def play_pair(one: SearchPlayer, other: SearchPlayer, snakes: int, seed: int) -> int:
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
