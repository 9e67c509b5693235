"""Directory of a Ray node, and the connection to Ray."""

import errno
import os
import re
import shutil
import signal
import sys
import tempfile
from collections import namedtuple
from pathlib import Path

import pytest

from battlesnake_gym.cli import main
from sagemaker_rl.cluster import ray_node
from sagemaker_rl.cluster.membership import ClusterError
from sagemaker_rl.job import process_environment
from sagemaker_rl.job.process_environment import SLOW_MODULE
from tests import processes

SOCKET = "session_2026-11-27_15-33-36_480906_4194304/sockets/plasma_store"


@pytest.mark.parametrize("length", [20, 48, 90])
def test_sockets_fit_under_any_tmpdir(monkeypatch: pytest.MonkeyPatch, length: int) -> None:
    with tempfile.TemporaryDirectory(prefix="x" * (length - 13), dir="/tmp") as parent:
        assert len(parent) == length
        monkeypatch.setattr(tempfile, "tempdir", parent)
        directory = ray_node._create_ray_dir()
        directory.delete()
    assert len(os.fsencode(directory.path / SOCKET)) <= 107
    # A short TMPDIR is used, because it may be the only directory with space.
    assert str(directory.path.parent) == (parent if length == 20 else "/tmp")


def test_a_full_directory_is_one_line_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1 << 30, (1 << 30) - 9999, 9999))
    with pytest.raises(ClusterError, match=r"/tmp.* 9 KiB.* TMPDIR") as raised:
        ray_node._create_ray_dir()
    assert "\n" not in str(raised.value)


def test_a_disk_that_is_full_during_training_is_not_said_to_be_the_tokens() -> None:
    with pytest.raises(OSError, match="no space") as raised, ray_node.private_auth_token():
        raise OSError(errno.ENOSPC, "no space")  # As a write of a checkpoint does.
    assert raised.value.filename is None


def test_a_directory_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/1")
    monkeypatch.setattr(ray_node, "_MIN_FREE_BYTES", 0)
    with pytest.raises(ClusterError, match=r"/proc/1.* TMPDIR"):
        ray_node._create_ray_dir()


def test_python_in_a_directory_with_a_space_is_rejected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "executable", "/home/a b/.venv/bin/python")
    with pytest.raises(ClusterError, match=r"space.* '/home/a b/.*python'; create"):
        ray_node.RayNode.create_head(ray_node.LOOPBACK, 6379, 1).start()
    assert main.main(["aws", "simulate", "train-mabs.py"]) == 2
    assert re.fullmatch(r"battlesnake-gym aws simulate: .* space .*\n", capsys.readouterr().err)
    monkeypatch.setattr(sys, "executable", "/home/José_1/.venv/bin/python3.11")
    assert not process_environment.find_interpreter_problem()


def test_a_failed_start_shows_its_reason_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason is the last line of the traceback, which other output may follow."""
    script = """import sys
print("Local node IP: 127.0.0.1", flush=True)
def start():
    raise OSError("the node timed out")
try:
    start()
finally:
    import atexit
    atexit.register(print, "see the docs")
"""
    monkeypatch.setattr(ray_node, "_START_COMMAND", ("-c", script))
    node = ray_node.RayNode([])
    with pytest.raises(ClusterError, match=r"^OSError: the node timed out \(ray start failed 3"):
        node.start()


def test_without_a_traceback_all_output_is_the_reason() -> None:
    node = ray_node.RayNode([])
    node._last_lines.extend(["one", "", "two"])
    assert node._failure_reason() == "one | two"


SLOW = "import time\nwhile time.process_time() < 1.5:\n    pass\n"


def test_ray_does_not_import_the_slow_grammar(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """jsonschema, which every Ray process imports, would import a slow module."""
    (tmp_path / f"{SLOW_MODULE}.py").write_text(SLOW)
    monkeypatch.syspath_prepend(str(tmp_path))
    program = "import jsonschema, time; print(time.process_time())"

    def measure(environment: dict[str, str], prefix: str = "") -> float:
        words = (sys.executable, "-c", f"{prefix}{program}")
        return float(processes.run(*words, env=environment).stdout)

    plain = os.environ | {"PYTHONPATH": str(tmp_path)}
    assert measure(plain) > 1.5
    assert measure(ray_node.RayNode([])._environment(tmp_path / "python")) < 1.5
    skip = "from sagemaker_rl.job import process_environment as e; e.set_default_variables(); "
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    assert measure(plain | {"PYTHONPATH": path}, skip) < 1.5


def test_actors_do_not_search_the_working_directory_first(ray_session: None) -> None:
    """The directory may have a file with the name of a package, as the starter pack has."""
    import ray

    path = ray.get(ray.remote(lambda: sys.path).remote())
    first = next(one for one in path if Path(one, f"{SLOW_MODULE}.py").exists())
    assert str(Path.cwd()) not in path[: path.index(first)]


def test_sigterm_waits_until_ray_is_initialized(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    def init(**options: object) -> None:
        signal.raise_signal(signal.SIGTERM)  # for this thread; others do not block SIGTERM
        events.append("initialized")

    monkeypatch.setattr("ray.init", init)
    before = signal.signal(signal.SIGTERM, lambda number, frame: events.append("stopped"))
    try:
        ray_node.connect_to_ray("127.0.0.1:1", loopback=True)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert events == ["initialized", "stopped"]


def test_an_address_without_a_port_names_the_format() -> None:
    with (
        pytest.raises(ClusterError, match=r"no Ray cluster at head: give HOST:PORT;"),
        ray_node.ray_connection("head"),
    ):
        pass
