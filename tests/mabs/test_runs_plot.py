"""``battlesnake-gym runs plot``: labels, and directories of simulated jobs."""

from pathlib import Path

import matplotlib as mpl
import pytest

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
    words = [f"large batch={tmp_path / 'one'}", str(tmp_path / "two"), "-o", str(picture)]
    assert runs_plot_command.main(words) == 0
    text = picture.read_text()
    assert ">large batch<" in text
    assert ">two<" in text
    assert ">one<" not in text


def test_a_folder_with_an_equals_sign_needs_no_label(tmp_path: Path) -> None:
    run = tmp_path / "lr=0.1"
    run.mkdir()
    (run / "progress.csv").write_text(CURVE)
    assert runs_plot_command.main([str(run), "-o", str(tmp_path / "curves.png")]) == 0


def test_a_folder_without_curves_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        runs_plot_command.main([f"mine={tmp_path}", "-o", str(tmp_path / "curves.png")])
    assert "progress.csv has no rows" in capsys.readouterr().err
