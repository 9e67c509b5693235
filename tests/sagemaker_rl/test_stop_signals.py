"""Stops at random moments from the first second: jobs shut down in order and lose nothing."""

import os
import pty
import random
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from sagemaker_rl.cluster import ray_node, roles
from sagemaker_rl.cluster.membership import find_own_address
from sagemaker_rl.cluster.rendezvous import STOPPED_EXIT_STATUS
from sagemaker_rl.job.stop_signals import (
    PendingSignals,
    StoppedBeforeTrainingError,
    deferred_stop_signals,
)
from tests.processes import PATIENCE, run
from tests.sagemaker_rl import instances
from tests.sagemaker_rl.instances import TRAIN, Network, until
from tests.sagemaker_rl.test_clusters import ENDLESS, SMALL, STARTED

pytestmark = pytest.mark.timeout(2400)

STOPS = 20
FINISHED = 90.0
"""Seconds until a job ends, on a machine whose load is ten times its cores."""


@pytest.fixture
def network() -> Iterator[Network]:
    one = Network()
    try:
        yield one.open()
    finally:
        one.close()


@pytest.mark.slow
@pytest.mark.skipif(bool(instances.missing()), reason=instances.missing())
@pytest.mark.parametrize("count", [1, 3])
def test_a_job_that_is_stopped_at_any_moment_ends_in_order(
    count: int, network: Network, tmp_path: Path
) -> None:
    luck = random.Random(count)
    hosts = [f"algo-{number}" for number in range(1, count + 1)]
    everybody = network.job(tmp_path, TRAIN, hosts, SMALL | {"num_iters": ENDLESS}, {})
    head = everybody[0]

    def begin() -> float:
        for one in everybody:
            one.start()
        return time.monotonic()

    checkpoints = tmp_path / "algo-1" / "checkpoints"

    def stop() -> None:
        kept, stopped = len(list(checkpoints.glob("checkpoint_*"))), time.monotonic()
        for one in everybody:
            one.process.send_signal(signal.SIGTERM)
        for one in everybody:
            status = one.wait(FINISHED)
            assert status in (143, -signal.SIGTERM), f"{status}: {one.log}"
            assert not one.failure
        took = time.monotonic() - stopped
        delivers = len(list(checkpoints.glob("checkpoint_*")))
        sys.stdout.write(f"stopped in {took:.1f} s, {kept} checkpoints, then {delivers}\n")
        assert delivers >= min(kept, 1), head.log
        until(lambda: not any(one.pids() for one in everybody), FINISHED)

    began = begin()
    until(lambda: head.iterations, STARTED, head)
    latest = 1.2 * (time.monotonic() - began)
    stop()
    for number in range(STOPS):
        if number % 2:  # every other job has nothing to resume
            shutil.rmtree(checkpoints, ignore_errors=True)
        began = begin()
        moment = luck.uniform(0, latest)
        sys.stdout.write(f"after {moment:.1f} of {latest:.1f} s: ")
        time.sleep(moment)
        stop()
    begin()
    until(lambda: head.iterations, STARTED, head)
    stop()


def test_a_closed_terminal_stops_like_sigterm_unless_it_is_ignored(
    default_signals: None, capfd: pytest.CaptureFixture[str]
) -> None:
    with deferred_stop_signals() as caught:
        os.kill(os.getpid(), signal.SIGHUP)
    assert caught == [signal.SIGHUP]
    assert len(capfd.readouterr().err.split("\n")) == 3, "a line of its own"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with deferred_stop_signals() as caught:
            os.kill(os.getpid(), signal.SIGHUP)
        assert caught == []
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_worker_leaves_its_cluster(
    default_signals: None, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(roles, "_STOP_TIMEOUT_S", 0.1)
    sent: list[dict[str, str]] = []
    link: Any = SimpleNamespace(send=sent.append)
    end: Future[dict[str, Any]] = Future()
    before = signal.getsignal(number)
    with roles._graceful_stop(link, end):
        os.kill(os.getpid(), number)
        assert end.result(PATIENCE)["shutdown"] == STOPPED_EXIT_STATUS
    assert "a stop was requested" in sent[0]["leaving"]
    assert signal.getsignal(number) == before


@pytest.mark.parametrize(("stopped_too", "status"), [(True, STOPPED_EXIT_STATUS), (False, 0)])
def test_an_instance_ends_in_order_if_only_the_head_is_stopped(
    default_signals: None, stopped_too: bool, status: int
) -> None:
    def receive() -> dict[str, Any]:
        if stopped_too:
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.2)
        return {"shutdown": STOPPED_EXIT_STATUS, "reason": "a stop was requested"}

    link: Any = SimpleNamespace(send=lambda message: None, receive=receive)
    node: Any = SimpleNamespace(start=lambda give_up: None, is_running=True, stop=lambda: None)
    membership: Any = SimpleNamespace(name="algo-2", head="algo-1")
    assert roles._run_node_until_shutdown(membership, link, node) == status


def test_a_stop_waits_for_the_end_of_an_import(
    default_signals: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that is broken off would leave half a module."""
    (tmp_path / "slowly_imported.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(0.3)\nend = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with deferred_stop_signals(raise_immediately=True) as caught:
        import slowly_imported  # type: ignore[import-not-found]

        with pytest.raises(StoppedBeforeTrainingError):
            time.sleep(PATIENCE)
    assert slowly_imported.end == 1
    assert set(caught) == {signal.SIGTERM}


def test_an_alarm_of_another_handler_does_not_end_the_process() -> None:
    """Ray's handler sets one before it calls ours."""
    code = (
        "import os, signal, time\n"
        "from sagemaker_rl.job.stop_signals import deferred_stop_signals\n"
        "with deferred_stop_signals() as caught:\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0.5)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(1)\n"
        "os._exit(10 + caught[0])\n"
    )
    assert run(sys.executable, "-c", code).returncode == 10 + signal.SIGTERM


def test_output_to_a_closed_terminal_is_discarded(default_signals: None) -> None:
    code = (
        "import os, signal, sys, time\n"
        "from sagemaker_rl.job.stop_signals import deferred_stop_signals\n"
        "with deferred_stop_signals('the export') as caught:\n"
        "    print('ready', flush=True)\n"
        "    while not caught:\n"
        "        time.sleep(0.05)\n"
        "    print('written to nowhere', flush=True)\n"
        "os._exit(10 + caught[0])\n"
    )
    process, terminal = pty.fork()
    if process == 0:
        os.execv(sys.executable, [sys.executable, "-c", code])
    while b"ready" not in os.read(terminal, 1000):
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 10 + signal.SIGHUP


def test_waiting_for_ray_is_broken_off(ray_session: None) -> None:
    """Ray converts every other kind of error into its own, at the end of its wait."""
    nothing = ray.remote(num_cpus=99)(lambda: None).remote()  # no machine is that large
    for wait in (ray.get, lambda one, timeout: ray.wait([one], timeout=timeout)):
        began = time.monotonic()
        signals = threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM))
        with deferred_stop_signals(raise_immediately=True) as caught:
            signals.start()
            with pytest.raises(KeyboardInterrupt):
                wait(nothing, timeout=60)
            signals.join()
        assert caught == [signal.SIGTERM]
        assert time.monotonic() - began < 30


def test_a_stop_that_was_lost_on_the_way_is_found() -> None:
    caught = PendingSignals()
    caught.raise_immediately = True
    caught.defer()
    assert not caught.raise_immediately
    caught.append(signal.SIGTERM)
    caught.defer()
    caught.raise_immediately = True
    with pytest.raises(StoppedBeforeTrainingError):
        caught.defer()
    assert caught.raise_immediately, "so that it is known for a stop at once"


@pytest.mark.slow
def test_a_start_of_ray_that_does_nothing_is_begun_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_node, "_START_TIMEOUT_S", 20.0)
    monkeypatch.setattr(ray_node, "_SLOW_START_S", 1.0)
    address = find_own_address("127.0.0.1")
    node = ray_node.RayNode.create_head(address, ray_node.find_free_port(), 1)

    def freeze() -> None:
        until(lambda: node.is_running, STARTED)
        os.killpg(node._process.pid, signal.SIGSTOP)  # type: ignore[union-attr]

    threading.Thread(target=freeze).start()
    try:
        node.start()
        assert node.is_running
    finally:
        node.stop()
    said = capsys.readouterr()
    assert re.search(r"20 s .*attempt 1 of 3", said.out + said.err)
    assert (said.out + said.err).count("Ray starts slowly") == 2, "once for each start"
