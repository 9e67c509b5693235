"""Thread pool: which thread runs a task, number of threads, end of threads."""

from __future__ import annotations

import functools
import gc
import threading

from battlesnake_server.http.thread_pool import ThreadPool


def test_work_goes_to_the_thread_that_was_busy_last() -> None:
    pool = ThreadPool("quiet", 16, min_threads=16)
    names = set()
    for _ in range(50):
        done = threading.Event()

        def work(done: threading.Event = done) -> None:
            names.add(threading.current_thread().name)
            done.set()

        pool.submit(work)
        assert done.wait(60)
        settle(pool, 16)
    assert len(names) == 1
    pool.close()


def test_as_many_at_once_as_there_are_threads_and_the_others_in_their_order() -> None:
    pool, go, begun = ThreadPool("busy", 3), threading.Event(), threading.Semaphore(0)
    order: list[int] = []

    def hold() -> None:
        begun.release()
        go.wait(60)

    for _ in range(3):
        pool.submit(hold)
    for _ in range(3):
        assert begun.acquire(timeout=60)
    for number in range(20):
        pool.submit(functools.partial(order.append, number))
    pool.close()
    assert order == []
    go.set()
    for thread in threads("busy"):
        thread.join(60)
        assert not thread.is_alive()
    assert sorted(order) == list(range(20))


def test_threads_are_started_when_they_are_needed_and_end_with_their_owner() -> None:
    pool, used = ThreadPool("rare", 1000), set[str]()
    assert not threads("rare")
    for _ in range(20):
        done = threading.Event()

        def work(done: threading.Event = done) -> None:
            used.add(threading.current_thread().name)
            done.set()

        pool.submit(work)
        assert done.wait(60)
        settle(pool, 1)
    (only,) = threads("rare")
    assert used == {only.name}
    del pool
    gc.collect()
    only.join(60)
    assert not only.is_alive()


def settle(pool: ThreadPool, threads: int) -> None:
    """Wait until all threads are idle."""
    while len(pool._idle) < threads:
        pass


def threads(name: str) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith(f"{name}-")]
