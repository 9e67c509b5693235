"""Directory of a Ray node: short enough for sockets, and with enough space."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import namedtuple

import pytest

pytest.importorskip("ray", reason="needs the extra rllib")

from sagemaker_rl.cluster import ray_node
from sagemaker_rl.cluster.ray_node import RayNodeError

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
    with pytest.raises(RayNodeError, match=r"/tmp.* 9 KiB.* TMPDIR") as raised:
        ray_node._create_ray_dir()
    assert "\n" not in str(raised.value)


def test_a_directory_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/proc/1")
    monkeypatch.setattr(ray_node, "_MIN_FREE_BYTES", 0)
    with pytest.raises(RayNodeError, match=r"/proc/1.* TMPDIR"):
        ray_node._create_ray_dir()


def test_of_a_traceback_only_the_last_line_is_shown() -> None:
    node = ray_node.RayNode([])
    node._last_lines.extend(["one", "", "two"])
    assert node._failure_reason() == "one | two"
    node._last_lines.extend(['File "node.py", line 1, in start', "^^^", "OSError: too long"])
    assert node._failure_reason() == "OSError: too long"
