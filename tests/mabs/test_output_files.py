"""Output files of `runs plot` that cannot be written end in one line and status 2."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

pytest.importorskip("matplotlib", reason="needs the extra rllib")

from battlesnake_gym.cli.main import main

CURVES = "training_iteration,time_total_s,episode_reward_mean,episode_len_mean\n1,2.0,0.5,7.0\n"


@pytest.fixture
def curves(tmp_path: Path) -> Path:
    path = tmp_path / "progress.csv"
    path.write_text(CURVES)
    return path


def test_a_file_is_no_directory(curves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["runs", "plot", str(curves), "-o", str(curves / "x.svg")])
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(rf"--output .*{re.escape(str(curves))}\b", line)


def test_a_full_disk(
    curves: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    target = curves.with_name("x.svg")
    assert main(["runs", "plot", str(curves), "-o", str(target)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"battlesnake-gym runs plot: {target}: no space left on device"
    assert list(target.parent.iterdir()) == [curves]
