"""``battlesnake-gym runs plot``: labels, directories of simulated jobs, and unwritable files."""

import errno
import os
from pathlib import Path

import matplotlib as mpl
import pytest

from battlesnake_gym.cli.main import main
from battlesnake_rl.commands import runs_plot_command

CURVE = "time_total_s,episode_reward_mean,episode_len_mean\n60,1,2\n120,3,4\n"


@pytest.mark.parametrize(
    "place", ["", "algo-2/output/data", "primary/algo-1/output/data"], ids=["run", "job", "pair"]
)
def test_runs_and_simulated_jobs_have_labels(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(mpl.rcParams, "svg.fonttype", "none")  # Text stays text.
    for name in ("one", "two"):
        folder = tmp_path / name / place
        folder.mkdir(parents=True)
        (folder / "progress.csv").write_text(CURVE)
    picture = tmp_path / "curves.svg"
    monkeypatch.chdir(tmp_path / "two")
    words = [f"_large batch={tmp_path / 'one'}", ".", "-o", str(picture)]
    assert runs_plot_command.main(words) == 0
    text = picture.read_text()
    assert ">_large batch<" in text
    assert ">two<" in text
    assert ">one<" not in text


def test_a_folder_with_an_equals_sign_needs_no_label(tmp_path: Path) -> None:
    run = tmp_path / "lr=0.1"
    run.mkdir()
    (run / "progress.csv").write_text(CURVE)
    assert runs_plot_command.main([str(run), "-o", str(tmp_path / "curves.png")]) == 0


def test_columns_without_values_are_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "progress.csv").write_text("time_total_s,elo,cpu_minutes\n60,,\n120,,\n")
    for words in (["--columns", "elo"], ["--columns", "time_total_s", "--x", "cpu_minutes"]):
        with pytest.raises(SystemExit):
            runs_plot_command.main([str(tmp_path), *words, "-o", str(tmp_path / "curves.png")])
        assert f"no run has a value in the column {words[-1]};" in capsys.readouterr().err


def test_a_full_disk(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fail)
    curves = tmp_path / "progress.csv"
    curves.write_text(CURVE)
    target = curves.with_name("x.svg")
    assert main(["runs", "plot", str(curves), "-o", str(target)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"battlesnake-gym runs plot: {target}: no space left on device"
    assert list(target.parent.iterdir()) == [curves]
