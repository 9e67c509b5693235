import tracemalloc

import pytest

from battlesnake_gym import snakes
from battlesnake_server.live import sessions
from battlesnake_server.live.sessions import Sessions


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def random_sessions(clock: Clock) -> Sessions:
    return Sessions(lambda seed: snakes.make("random", seed), clock)


def strategy_of(games: Sessions, *key: str) -> snakes.Strategy:
    session = games.get_or_create((key[0], key[1]))
    session.ensure_built()
    return session.strategy


def test_every_snake_of_every_game_has_a_strategy_of_its_own() -> None:
    games = random_sessions(Clock())
    keys = [("g1", "a"), ("g1", "b"), ("g2", "a")]
    strategies = [strategy_of(games, *key) for key in keys]
    assert len(set(map(id, strategies))) == 3
    assert [strategy_of(games, *key) for key in keys] == strategies


def test_idle_games_are_forgotten_and_busy_ones_kept() -> None:
    clock = Clock()
    games = random_sessions(clock)
    busy = games.get_or_create(("busy", "a"))
    games.get_or_create(("idle", "a"))
    clock.now = sessions.SESSION_IDLE_TIMEOUT_S - 1
    games.get_or_create(("busy", "a"))
    clock.now = sessions.SESSION_IDLE_TIMEOUT_S
    assert games.count_games() == 2
    clock.now += 1
    assert games.count_games() == 1
    assert games.get_or_create(("busy", "a")) is busy
    clock.now += sessions.SESSION_IDLE_TIMEOUT_S + 1
    assert games.get_or_create(("busy", "a")) is not busy


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_MAX_SESSIONS", 3)
    games = random_sessions(Clock())
    played = games.get_or_create(("a", "you"))
    for game in "bcde":
        games.get_or_create((game, "you"))
        assert games.get_or_create(("a", "you")) is played
    assert games.count_games() == 3


def test_long_ids_take_no_memory() -> None:
    games = random_sessions(Clock())
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(100):
            games.get_or_create((f"{number}" * 100_000, "you" * 100_000))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (after - before) / 100 < 10_000
    assert games.count_games() == 100


def test_the_same_game_gets_the_same_seed() -> None:
    seeds: list[int] = []

    def make(seed: int) -> snakes.Strategy:
        seeds.append(seed)
        return snakes.make("random", seed)

    games = Sessions(make)
    for key in (("g", "a"), ("g", "b"), ("g", "a")):
        strategy_of(games, *key)
        games.delete(key)
    assert seeds[0] == seeds[2] != seeds[1]
