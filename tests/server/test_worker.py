"""Lanes: which thread does what, and when the threads end."""

from __future__ import annotations

import functools
import threading

from server.live.worker import Lane


def test_work_goes_to_the_thread_that_was_busy_last() -> None:
    lane = Lane("quiet", 16)
    names = set()
    for _ in range(50):
        done = threading.Event()

        def work(done: threading.Event = done) -> None:
            names.add(threading.current_thread().name)
            done.set()

        lane.submit(work)
        assert done.wait(60)
        settle(lane, 16)
    assert len(names) == 1
    lane.close()


def test_as_many_at_once_as_there_are_threads_and_the_others_in_their_order() -> None:
    lane, go, begun = Lane("busy", 3), threading.Event(), threading.Semaphore(0)
    order: list[int] = []

    def hold() -> None:
        begun.release()
        go.wait(60)

    for _ in range(3):
        lane.submit(hold)
    for _ in range(3):
        assert begun.acquire(timeout=60)
    for number in range(20):
        lane.submit(functools.partial(order.append, number))
    lane.close()
    assert order == []
    go.set()
    for thread in threads("busy"):
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(order) == list(range(20))


def settle(lane: Lane, threads: int) -> None:
    """Wait until all threads wait for work."""
    while len(lane._idle) < threads:
        pass


def threads(name: str) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith(f"{name}-")]
