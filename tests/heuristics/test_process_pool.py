"""Tasks of killed processes are retried, and each result is returned once."""

import functools
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import pytest

from battlesnake_heuristics.rating.process_pool import MAX_TASK_ATTEMPTS, ProcessPool, run_tasks


def squared(folder: Path, kills: int, number: int) -> int:
    """Return the square; kill the process ``kills`` times for every third number."""
    attempt = len(list(folder.glob(f"{number}-*")))
    (folder / f"{number}-{attempt}").touch()
    if number % 3 == 0 and attempt < kills:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def test_what_is_lost_with_its_process_is_done_again_and_counted_once(tmp_path: Path) -> None:
    with ProcessPool(2) as pool:
        done = list(
            run_tasks(pool, functools.partial(squared, tmp_path, MAX_TASK_ATTEMPTS - 1), range(5))
        )
    assert sorted(done) == [(number, number * number) for number in range(5)]
    tried = sorted(path.name for path in tmp_path.iterdir())
    alone = [f"{number}-0" for number in (1, 2, 4)]
    assert tried == sorted(
        alone + [f"{number}-{i}" for number in (0, 3) for i in range(MAX_TASK_ATTEMPTS)]
    )


def test_what_kills_every_process_is_given_up(tmp_path: Path) -> None:
    with (
        ProcessPool(1) as pool,
        pytest.raises(ChildProcessError, match=rf"\b{MAX_TASK_ATTEMPTS}\b.* 3\b"),
    ):
        list(run_tasks(pool, functools.partial(squared, tmp_path, 99), [3]))
    assert len(list(tmp_path.iterdir())) == MAX_TASK_ATTEMPTS


def test_a_pool_may_become_smaller_while_tasks_are_on() -> None:
    class Shrinking(ThreadPoolExecutor):
        jobs = 4

        def submit(self, *arguments: Any, **options: Any) -> Any:
            self.jobs = 1  # as a Ray pool does when a task is submitted
            return super().submit(*arguments, **options)

    def slept(tenths: int) -> int:
        time.sleep(tenths / 10)
        return -tenths

    with Shrinking(4) as pool:
        found = sorted(run_tasks(cast(ProcessPool, pool), slept, range(7)))
    assert found == [(number, -number) for number in range(7)]


def test_ctrl_c_while_the_first_task_is_handed_out_ends_with_that_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor.submit", interrupted)
    with ProcessPool(1) as pool, pytest.raises(KeyboardInterrupt):
        list(run_tasks(pool, abs, [1]))


def test_user_files_named_like_standard_modules_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("random", "queue", "tempfile", "selectors", "socket", "struct"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    with ProcessPool(1) as pool:
        assert list(run_tasks(pool, abs, [-1])) == [(-1, 1)]
    assert "PYTHONSAFEPATH" not in os.environ
