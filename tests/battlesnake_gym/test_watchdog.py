"""The watchdog stops calls whose time is up, and only those."""

import multiprocessing
import threading

from battlesnake_gym.common.watchdog import Watchdog

PATIENCE = 60.0


def is_stopped(watchdog: Watchdog) -> bool:
    stopped = threading.Event()
    with watchdog.limit(0.1, stopped.set):
        return stopped.wait(PATIENCE)


def _check_child(watchdog: Watchdog) -> None:
    raise SystemExit(0 if is_stopped(watchdog) else 1)


def test_a_call_is_stopped_when_its_time_is_up() -> None:
    watchdog, early = Watchdog(), threading.Event()
    with watchdog.limit(0.05, early.set):
        pass
    for _ in range(2):
        assert is_stopped(watchdog)
    assert not early.is_set(), "a call that has ended is not stopped"


def test_the_end_of_the_program_stops_all_calls() -> None:
    watchdog, stopped = Watchdog(), threading.Event()
    with watchdog.limit(PATIENCE, stopped.set):
        ending = threading.Thread(target=watchdog._stop_all)
        ending.start()
        assert stopped.wait(PATIENCE)
    ending.join(PATIENCE)
    assert not ending.is_alive()


def test_a_forked_process_has_a_watchdog_too() -> None:
    watchdog = Watchdog()
    assert is_stopped(watchdog)
    child = multiprocessing.get_context("fork").Process(target=_check_child, args=(watchdog,))
    child.start()
    child.join(PATIENCE)
    assert child.exitcode == 0
