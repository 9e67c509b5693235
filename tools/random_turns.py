"""Random games of the engine.

The games cover rulesets, maps, board sizes, numbers of snakes, settings and both food streams.
Moves are safe, random or missing. A player steps and resets some games of a batch separately, and
computes all observations and masks. The player also exports positions, imports them, and imports
damaged copies.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from battlesnake_gym.engine import _engine
from battlesnake_gym.engine.engine import FOOD_RNGS, Games
from battlesnake_gym.mdp import masks, observations
from battlesnake_gym.rules import MAPS, RULESETS, Game, Settings
from battlesnake_gym.snakes import ENGINE_SNAKES


def random_games(rand: random.Random) -> Any:
    """Create games with random settings.

    The result is None if the rules reject the settings.
    """
    board_map = rand.choice(list(MAPS.values()))
    width, height = rand.choice(board_map.sizes)
    if not board_map.sizes_enforced and rand.random() < 0.5:
        width, height = rand.randint(1, 25), rand.randint(1, 25)
    fewest, most = board_map.players if board_map.players_enforced else (1, 16)
    settings = Settings(
        rand.choice((0, 1, 15, 100, 101)),
        rand.choice((0, 1, 3, 700)),
        rand.choice((-200, -5, 0, 1, 14, 100, 10**6)),
        rand.choice((-1, 0, 1, 2, 3, 25)),
        view_radius=rand.choice((None, None, 0, 1, 5, 30)),
    )
    game = Game(rand.choice(list(RULESETS)), board_map.id, settings, solo=rand.random() < 0.5)
    num_games = 1 if rand.random() < 0.3 else 40
    snakes = [rand.randint(max(1, fewest), most) for _ in range(num_games)]
    widths = [width] * num_games
    if not board_map.sizes_enforced and rand.random() < 0.3:
        widths = [rand.randint(1, width) for _ in range(num_games)]
    try:
        return Games(
            num_games,
            width=widths,
            height=height,
            num_snakes=snakes,
            game=game,
            food_rng=rand.choice(FOOD_RNGS),
        )
    except ValueError:
        return None


class RandomPlayer:
    """Player of random games in one batch."""

    def __init__(self, games: Any, seed: int) -> None:
        self.games = games
        self.rand = np.random.default_rng(seed)
        self.mask = np.zeros((games.num_games, games.num_snakes, 4), np.bool_)
        self.wildness = self.rand.choice((0.02, 0.1, 1.0))

    def draw_seeds(self) -> NDArray[np.int64]:
        """Return new seeds with random orders of magnitude."""
        span = 1 << int(self.rand.integers(1, 63))
        seeds: NDArray[np.int64] = self.rand.integers(1, span + 1, self.games.num_games)
        return seeds if self.rand.random() < 0.5 else -seeds

    def choose_actions(self) -> NDArray[np.uint8]:
        """Choose random moves.

        Most of the moves are allowed. Eliminated snakes get no moves.
        """
        self.games.action_mask("fatal+head", self.mask)
        chances = np.where(self.mask, self.rand.random(self.mask.shape), -1)
        careful = chances.argmax(-1).astype(np.uint8)
        wild = self.rand.integers(0, 5, careful.shape).astype(np.uint8)
        actions: NDArray[np.uint8] = np.where(
            self.rand.random(careful.shape) < self.wildness, wild, careful
        )
        actions[~self.games.alive] = 255
        return actions

    def play(self, turns: int) -> int:
        """Play up to ``turns`` turns of all games.

        Returns:
            The number of turns played, summed over all games.
        """
        games, played = self.games, 0
        games.reset(self.draw_seeds())
        for _ in range(turns):
            which = self.rand.random(games.num_games) < 0.9
            played += int((which & ~games.over).sum())
            try:
                games.step(self.choose_actions(), which)
            except ValueError:  # The map cannot continue the game.
                games.reset(self.draw_seeds())
            if games.over.any():
                games.reset(self.draw_seeds(), games.over.copy())
        return played

    def read_outputs(self) -> None:
        """Request all observations and action masks in random order, and built-in moves.

        The engine updates the observation arrays on the following turns.
        """
        games = self.games
        largest = int(np.max(games._largest[0])), int(np.max(games._largest[1]))
        for name in self.rand.permutation(observations.ENCODER_NAMES).tolist():
            for frames in self.rand.permutation((1, 3)).tolist():
                observation = observations.Observation(name, frames)
                try:
                    shape = observation.shape(*largest)
                except ValueError:  # The boards are too large for this observation.
                    continue
                out = np.zeros((games.num_games, games.num_snakes, *shape), np.uint8)
                _engine.set_observation_isa(str(self.rand.choice(("plain", "best"))))
                games.observe(observation, out)
        for kind in masks.KINDS:
            games.action_mask(kind, self.mask)
        kinds = self.rand.integers(0, 1 + len(ENGINE_SNAKES), games.alive.shape).astype(np.uint8)
        games.builtin_moves(kinds, np.zeros_like(kinds))

    def import_damaged_positions(self) -> None:
        """Import exported positions unchanged, and with corrupted 32-bit words."""
        games = self.games
        for _ in range(20):
            game = int(self.rand.integers(games.num_games))
            state = games.state(game)
            games.load(game, state)
            words = np.frombuffer(games.export_words(game), np.int32).copy()
            at = self.rand.integers(0, len(words), 3)
            words[at] = self.rand.choice((-(2**31), -1, 0, 1, 5, 25, 26, 127, 128, 2**31 - 1), 3)
            words = words[: int(self.rand.integers(0, len(words) + 1)) or None]
            try:
                games.import_words(game, 1, words.tobytes())
            except ValueError:
                continue
