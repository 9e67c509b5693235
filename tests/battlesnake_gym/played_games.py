"""Random games of every ruleset, map and size, for tests that compare the engine with Python."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from battlesnake_gym.engine.engine import Games
from battlesnake_gym.rules import MAPS, RULESETS, Game, Settings

SIZES = ((3, 3), (4, 11), (5, 5), (7, 7), (8, 8), (11, 11), (13, 9), (19, 19), (19, 21), (25, 25))

MAX_TURNS = 60
"""How many turns the tests play at most."""


@cache
def starts(map_id: str) -> list[tuple[int, int, int]]:
    """The widths, heights and numbers of snakes of `SIZES` that a map can be started with."""
    found = []
    for width, height in (*SIZES, *MAPS[map_id].sizes):
        if map_id == "hz_scatter" and width * height < MAX_TURNS // 2:
            continue  # it fills a cell every second turn, and ends where the reference crashes
        for count in (1, 2, 4, 6):
            try:
                games = Games(
                    1, width=width, height=height, num_snakes=count, game=Game(map=map_id)
                )
                games.reset(np.ones(1, np.int64))
            except ValueError:
                continue
            found.append((width, height, count))
    return found


@st.composite
def batches(draw: st.DrawFn) -> Games:
    """Three games with the same rules; sizes and numbers of snakes may differ."""
    map_id = draw(st.sampled_from([name for name in MAPS if starts(name)]))
    begun = draw(st.lists(st.sampled_from(starts(map_id)), min_size=3, max_size=3))
    width, height, counts = (list(values) for values in zip(*begun, strict=True))
    settings = Settings(
        food_spawn_chance=draw(st.sampled_from((0, 15, 60))),
        minimum_food=draw(st.sampled_from((0, 1, 4))),
        hazard_damage_per_turn=draw(st.sampled_from((-5, 0, 14, 49, 100))),
        shrink_every_n_turns=draw(st.sampled_from((1, 3, 25))),
    )
    ruleset = draw(st.sampled_from(sorted(RULESETS)))
    # To solo_maze the bottom row is a binary number. Where royale's border fills it on a wide
    # board, the next level needs a longer body than the rules allow, and both engines refuse it.
    assume((ruleset, map_id) != ("royale", "solo_maze") or max(width) < 17)
    game = Game(ruleset, map_id, settings, solo=draw(st.booleans()))
    try:
        games = Games(3, width=width, height=height, num_snakes=counts, game=game)
        games.reset(np.array(draw(st.lists(st.integers(1, 2**60), min_size=3, max_size=3))))
    except ValueError:
        assume(False)
    return games


def play(games: Games, seed: int, turns: int) -> Iterator[None]:
    """Step with random moves, mostly safe ones, sometimes none; yields after each turn."""
    random = np.random.default_rng(seed)
    mask = np.ones((games.num_games, games.num_snakes, 4), np.bool_)
    yield
    for _ in range(turns):
        games.action_mask("wall+body", mask)
        liking = random.random(mask.shape) + mask
        actions = liking.argmax(axis=-1).astype(np.uint8)
        wild = random.random(actions.shape)
        actions[wild < 0.03] = random.integers(4)
        actions[wild < 0.01] = 4
        games.step(actions)
        yield
