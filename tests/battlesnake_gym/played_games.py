"""Random games of every ruleset, map and board size, to compare the engine with Python."""

from collections.abc import Iterator
from functools import cache

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from battlesnake_gym.engine.engine import Games
from battlesnake_gym.rules import MAPS, RULESETS, Game, Settings

SIZES = ((3, 3), (4, 11), (5, 5), (7, 7), (8, 8), (11, 11), (13, 9), (19, 19), (19, 21), (25, 25))

MAX_TURNS = 60
"""Maximum number of turns in tests."""


@cache
def starts(map_id: str) -> list[tuple[int, int, int]]:
    """Return the supported widths, heights and numbers of snakes of a map."""
    found = []
    for width, height in (*SIZES, *MAPS[map_id].sizes):
        if map_id == "hz_scatter" and width * height < MAX_TURNS // 2:
            continue  # it fills up, and then the official engine crashes
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
    """Draw three games with equal rules; board sizes and numbers of snakes can differ."""
    map_id = draw(st.sampled_from([name for name in MAPS if starts(name)]))
    chosen = draw(st.lists(st.sampled_from(starts(map_id)), min_size=3, max_size=3))
    width, height, counts = (list(values) for values in zip(*chosen, strict=True))
    settings = Settings(
        food_spawn_chance=draw(st.sampled_from((0, 15, 60))),
        minimum_food=draw(st.sampled_from((0, 1, 4))),
        hazard_damage_per_turn=draw(st.sampled_from((-5, 0, 14, 49, 100))),
        shrink_every_n_turns=draw(st.sampled_from((1, 3, 25))),
    )
    ruleset = draw(st.sampled_from(sorted(RULESETS)))
    # solo_maze stores a binary number in the bottom row. If royale's hazards fill that row on a
    # wide board, the next level needs a longer body than the rules allow; both engines reject it.
    assume((ruleset, map_id) != ("royale", "solo_maze") or max(width) < 17)
    game = Game(ruleset, map_id, settings, solo=draw(st.booleans()))
    try:
        games = Games(3, width=width, height=height, num_snakes=counts, game=game)
        games.reset(np.array(draw(st.lists(st.integers(1, 2**60), min_size=3, max_size=3))))
    except ValueError:
        assume(False)
    return games


def play(games: Games, seed: int, turns: int) -> Iterator[None]:
    """Play random, mostly safe moves, sometimes none; yield after each turn."""
    random = np.random.default_rng(seed)
    mask = np.ones((games.num_games, games.num_snakes, 4), np.bool_)
    yield
    for _ in range(turns):
        games.action_mask("wall+body", mask)
        preference = random.random(mask.shape) + mask
        actions = preference.argmax(axis=-1).astype(np.uint8)
        noise = random.random(actions.shape)
        actions[noise < 0.03] = random.integers(4)
        actions[noise < 0.01] = 4
        games.step(actions)
        yield
