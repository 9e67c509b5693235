"""Search slots: order, granted time, rejections."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from battlesnake_server.live.search_slots import MAX_BUSY_SEARCH_S, SearchSlots
from tests.processes import until

LONG, PATIENCE = 60.0, 10.0
"""Seconds that no search needs, and seconds that a busy machine may need for anything."""


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(8)
    yield pool
    pool.shutdown(wait=False)  # Do not wait for threads that wait forever.


def taken(
    slots: SearchSlots,
    seconds: float = LONG,
    least: float = 0.01,
    client: Future[None] | None = None,
) -> float:
    """Acquire and release a search slot; return the granted seconds."""
    with slots.acquire(time.perf_counter() + seconds, least, client or Future()) as given:
        return given


@pytest.mark.parametrize(
    ("others", "num_unlimited", "share"),
    [
        *((0, 9, LONG), (1, 9, LONG), (3, 9, LONG / 2), (7, 9, LONG / 4), (7, 8, LONG / 4)),
        *((0, 1, LONG), (1, 1, MAX_BUSY_SEARCH_S), (3, 1, MAX_BUSY_SEARCH_S / 2)),
    ],
)
def test_searches_share_their_time(others: int, num_unlimited: int, share: float) -> None:
    slots = SearchSlots(2, num_unlimited, 9)
    slots._num_searches = others
    assert taken(slots) == pytest.approx(share, rel=0.05)


def test_the_least_that_is_worth_it_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 100.0)
    assert taken(SearchSlots(1, 1, 1), seconds=0.5, least=0.5) == 0.5
    with pytest.raises(TimeoutError):
        taken(SearchSlots(1, 1, 1), seconds=0.5, least=0.625)


@pytest.mark.parametrize("order", [(10, 20, 30), (30, 20, 10), (20, 30, 10)])
def test_the_latest_deadline_is_turned_away_and_the_first_is_served_first(
    order: tuple[int, ...], pool: ThreadPoolExecutor
) -> None:
    slots, served = SearchSlots(1, 9, 2), list[int]()

    def ask(seconds: int) -> None:
        taken(slots, LONG + seconds)
        served.append(seconds)

    waiting: dict[int, Future[None]] = {}
    with slots.acquire(time.perf_counter() + LONG, 0, Future()):
        for seconds in order:
            waiting[seconds] = pool.submit(ask, seconds)
            until(lambda: len(slots._queue) == min(2, len(waiting)))
        with pytest.raises(TimeoutError):
            waiting[30].result(PATIENCE)
        assert not any(waiting[seconds].done() for seconds in (10, 20))
    for seconds in (10, 20):
        waiting[seconds].result(PATIENCE)
    assert served == [10, 20]


def test_a_seat_is_waited_for_until_the_deadline_and_no_longer(pool: ThreadPoolExecutor) -> None:
    slots = SearchSlots(1, 9, 9)
    began = time.perf_counter()
    with slots.acquire(time.perf_counter() + LONG, 0, Future()):
        late = pool.submit(taken, slots, 0.3, 0.1)
        with pytest.raises(TimeoutError):
            late.result(PATIENCE)
        assert time.perf_counter() - began > 0.15
        assert not slots._queue, "who has gone holds no place"
        next_one = pool.submit(taken, slots)
        until(lambda: len(slots._queue) == 1)
    assert next_one.result(PATIENCE) > 0


def test_who_leaves_gives_up_the_wait_and_the_seat(pool: ThreadPoolExecutor) -> None:
    slots, client = SearchSlots(1, 9, 9), Future[None]()
    with slots.acquire(time.perf_counter() + LONG, 0, Future()):
        waiting = pool.submit(taken, slots, client=client)
        until(lambda: len(slots._queue) == 1)
        client.set_result(None)
        with pytest.raises(TimeoutError):
            waiting.result(PATIENCE)
    for seconds, asked in ((LONG, client), (0.1, Future())):
        with pytest.raises(TimeoutError):
            taken(slots, seconds, 0.2, asked)
    assert taken(slots) > 0, "the one seat is free"
    with slots.acquire(time.perf_counter() + LONG, 0, Future()), pytest.raises(TimeoutError):
        taken(slots, 0.1)  # One of them is this one.
