"""Training runs: what a folder tells, the table, charts, the report and the pages."""

import hashlib
import itertools
import json
import math
import re
import shutil
from array import array
from dataclasses import replace
from pathlib import Path

import pytest

from battlesnake_gym.cli import main
from battlesnake_gym.common import file_locks, run_dir
from battlesnake_gym.common.run_dir import CSV_FILE, ProgressTable, RunStatus
from battlesnake_server.page_files import SERVER_DIR
from battlesnake_server.runs import charts, report
from battlesnake_server.runs.run_view import RunsView, RunView, differing_settings
from battlesnake_server.web import runs_page as pages
from tests.server import training_runs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run that is done, one that was stopped, one that failed, one that was killed."""
    runs = tmp_path / "runs"
    training_runs.make(runs, "done", 18, games=(6, 18))
    training_runs.make(runs, "stopped", 6, "stopped", board_size=7)
    training_runs.make(runs, "failed", 2, "failed", why="RuntimeError: no <runner>", lr=1e-4)
    training_runs.make(runs, "killed", 4, "running")
    return runs


def test_the_table_tells_how_runs_stand_and_what_differs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with run_dir.lock_run_dir(training_runs.make(folder, "on", 6, "running", lr=2e-4)):
        assert main.main(["runs", str(folder)]) == 0
    out = capsys.readouterr().out
    lines = {line.split()[0]: line for line in out.splitlines()[1:6]}
    assert re.search(r"done +- +3\.0 +18,000 +1060 \(1010 to 1120\) +board_size=11$", lines["done"])
    assert "running 33%  2 min" in lines["on"]
    assert "lr=0.0002" in lines["on"]
    assert re.search(r"stopped 33% +- .* board_size=7", lines["stopped"])
    assert "died 11%" in lines["failed"]
    assert "failed died: RuntimeError: no <runner>" in out
    assert "killed died: " in out
    assert "seed" not in out
    assert "algorithm" not in out


def test_the_table_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["runs", str(folder / "done"), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)
    assert told["run"] == "done"
    assert told["state"] == "done"
    assert told["progress_fraction"] == 1
    assert told["seconds_left"] is None
    strength = {"elo": 1060, "ci_low": 1010, "ci_high": 1120, "games": 16, "weights": "best"}
    assert told["strength"] == strength
    assert told["settings"] == training_runs.SETTINGS


def test_progress_in_cpu_minutes_of_the_driver_and_seven_digits(tmp_path: Path) -> None:
    (tmp_path / "checkpoints" / "checkpoint_1000000").mkdir(parents=True)
    (tmp_path / CSV_FILE).write_text("training_iteration,driver_cpu_minutes\n1000000,1\n")
    RunStatus("running", 0.0, stop_conditions={"driver_cpu_minutes": 4.0}).save(tmp_path)
    run = RunView(tmp_path)
    assert (run.progress_fraction, run.games()[0].iteration) == (0.25, 1_000_000)


def test_the_strength_is_that_of_the_weights_that_are_kept(tmp_path: Path) -> None:
    run = training_runs.make(tmp_path, "fell", 4)
    with (run / CSV_FILE).open("a") as file:  # weaker since, so that iteration 4's are kept
        file.write("5,50,5000,1,1,0,0,0,1,600,550,660,20,780,0.2,0.1,0.3\n")
    found = RunView(run)
    assert str(found.strength) == "780 (730 to 840)"
    assert found.rung_scores() == [("hungry", 0.5, 0.4, 0.6)]
    assert RunView(training_runs.make(tmp_path, "young", 2)).strength is None


def test_measurements_too_short_for_the_best_weights_are_shown(tmp_path: Path) -> None:
    run = training_runs.make(tmp_path, "short", 1)
    with (run / CSV_FILE).open("a") as file:
        file.write("2,20,2000,1,1,0,0,0,1,600,550,660,8,,0.2,0.1,0.3\n")
        file.write("3,30,3000,1,1,0,0,0,1,620,570,680,9,,0.4,0.3,0.5\n")
    found = RunView(run)
    assert found.strength is not None
    assert tuple(found.strength) == (620, 570, 680, 9, "latest")
    assert found.rung_scores() == [("hungry", 0.4, 0.3, 0.5)]


def test_the_strength_needs_no_row_of_its_own(tmp_path: Path) -> None:
    """Two measurements in one iteration: the first is the best, and the row has the second."""
    run = training_runs.make(tmp_path, "twice", 4)
    lines = (run / CSV_FILE).read_text().splitlines()
    lines[0] += ",elo_best_low,elo_best_high,elo_best_games"
    lines[1:] = [line + ",,," for line in lines[1:]]
    lines[-1] = "4,40,4000,1,1,0,0,0,1,600,550,660,20,1351,0.2,0.1,0.3,1290,1400,128"
    (run / CSV_FILE).write_text("\n".join(lines) + "\n")
    found = RunView(run)
    assert str(found.strength) == "1351 (1290 to 1400)"
    assert found.rung_scores() == []
    lines = [line.rsplit(",", 3)[0] for line in lines]  # as an earlier version wrote them
    (run / CSV_FILE).write_text("\n".join(lines) + "\n")
    assert RunView(run).strength == (600, 550, 660, 20, "latest")


def test_a_look_is_no_reason_for_a_training_to_be_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = training_runs.make(tmp_path, "on", 1, "running")
    assert not run_dir.is_locked(run)
    with run_dir.lock_run_dir(run):
        assert run_dir.is_locked(run)
        assert run_dir.is_locked(run)
    looking = (run / run_dir.LOCK_FILE).open()
    assert file_locks.try_lock(looking, shared=True)
    waited: list[float] = []

    def look_away(seconds: float) -> None:
        waited.append(seconds)
        looking.close()

    monkeypatch.setattr("time.sleep", look_away)
    with run_dir.lock_run_dir(run):
        assert len(waited) == 1


def test_only_what_was_added_is_read(tmp_path: Path) -> None:
    run = training_runs.make(tmp_path, "long", 300)
    path = run / CSV_FILE
    progress = ProgressTable(path)
    progress.refresh()
    assert len(progress) == 300
    size = path.stat().st_size
    with path.open("r+b") as file:  # what was read before is not looked at again
        file.write(b"x" * (size // 2))
    with path.open("a") as file:
        file.write("301,3010,301000,7")  # torn
    progress.refresh()
    assert len(progress) == 300
    with path.open("a") as file:
        file.write(",9\r\nnonsense,3020\r\n")
    progress.refresh()
    assert len(progress) == 302
    assert progress.column("time_total_s")[298:] == array("d", [2990, 3000, 3010, 3020])
    assert progress.last("episode_reward_mean") == 7
    assert progress.last("training_iteration") == 301
    assert math.isnan(progress.column("elo")[-1])


def test_a_file_that_was_begun_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    run = training_runs.make(tmp_path, "resumed", 5)
    found = RunView(run)
    fresh = training_runs.make(tmp_path, "fresh", 0)
    training_runs.append(fresh, *range(101, 111))
    assert (fresh / CSV_FILE).stat().st_size > (run / CSV_FILE).stat().st_size
    (fresh / CSV_FILE).replace(run / CSV_FILE)
    found.refresh()
    assert list(found.progress.column("training_iteration")) == list(range(101, 111))
    (run / CSV_FILE).unlink()
    found.refresh()
    assert found.iterations == 0


def test_runs_come_and_go(folder: Path) -> None:
    runs = RunsView(folder)
    assert len(runs.refresh()) == 4
    training_runs.make(folder, "new", 1)
    shutil.rmtree(folder / "killed")
    assert sorted(run.name for run in runs.refresh()) == ["done", "failed", "new", "stopped"]


def test_settings_of_one_run_do_not_differ(folder: Path) -> None:
    run = RunView(folder / "done")
    assert differing_settings([run]) == {run.path: {}}


def test_the_algorithm_is_the_first_setting_that_differs(folder: Path) -> None:
    runs = [RunView(folder / name) for name in ("done", "stopped")]
    for run, algorithm in zip(runs, ("DISTIL", "PPO"), strict=True):
        settings = {"lr": algorithm, "algorithm": algorithm}
        run.status = replace(run.status, settings=settings)
    assert [[*one] for one in differing_settings(runs).values()] == [["algorithm", "lr"]] * 2


def test_curves_lie_over_each_other_and_have_their_interval(folder: Path) -> None:
    runs = [RunView(folder / name) for name in ("done", "stopped", "failed")]
    made = charts.build_charts(runs, "minutes", span=1)
    strength, reward, *_ = made
    assert strength.title == "Elo"
    assert [curve.name for curve in strength.curves] == ["done", "stopped"]  # failed: not measured
    assert [curve.look for curve in reward.curves] == ["run-0", "run-1", "run-2"]
    curve = reward.curves[0]
    assert len(curve.x) == len(curve.y) == 18
    assert (curve.x[-1], curve.y[-1]) == (3, 38)
    assert curve.low is None
    _, _, x, y, low, high = strength.curves[0]
    assert low is not None
    assert high is not None
    assert len(x) == len(low) == len(high) == 16  # measured from the third iteration on
    assert (y[-1], low[-1], high[-1]) == (1060, 1010, 1120)


def test_long_curves_are_drawn_by_means(tmp_path: Path) -> None:
    run = RunView(training_runs.make(tmp_path, "long", 2000))
    reward = next(c for c in charts.build_charts([run]) if c.title == "mean reward per game")
    curve = reward.curves[0]
    assert len(curve.y) == charts.MAX_POINTS
    assert curve.x[-1] == pytest.approx(20000 / 60, abs=0.01)
    assert curve.y[100] == pytest.approx(20 + 804.5, abs=0.1)  # the mean of rows 801 to 808


def test_causes_of_death_fill_their_chart(folder: Path) -> None:
    found = charts.build_cause_chart(RunView(folder / "done"))
    assert found is not None
    assert len({area.name for area in found.curves}) == 3
    assert found.curves[0].high == pytest.approx([1.0] * 18)
    assert found.curves[-1].low == pytest.approx([0.0] * 18)
    for above, below in itertools.pairwise(found.curves):
        assert above.low == pytest.approx(below.high, abs=1e-5)
    shares = [area.y[-1] for area in found.curves]
    assert shares == pytest.approx([
        one / (1.25 + 0.5 / 18) for one in (0.25, 1.0, 0.5 / 18)], abs=1e-5)  # fmt: skip
    one_row = charts.build_cause_chart(RunView(training_runs.make(folder, "young", 1)))
    assert one_row is not None
    assert one_row.curves[0].x == pytest.approx([0, 1 / 6], abs=1e-5)  # as wide as the axis


def test_reports_of_runs_with_and_without_games_or_curves(folder: Path) -> None:
    assert main.main(["runs", str(folder), "--report"]) == 0
    whole = (folder / "done" / "report.html").read_text()
    assert "iteration 18" in whole
    assert "<b>1060 Elo</b>" in whole
    assert '<th scope="row">board_<wbr>size</th><td>11</td>' in whole
    assert (folder / "stopped" / "report.html").is_file()
    text = (folder / "failed" / "report.html").read_text()
    assert "RuntimeError: no &lt;runner&gt;" in text
    empty = training_runs.make(folder, "empty", 0, "stopped")
    assert report.write(empty).is_file()
    other = training_runs.make(folder, "other", 3)  # of an experiment that is not on the ladder
    lines = (other / CSV_FILE).read_text().splitlines(keepends=True)
    (other / CSV_FILE).write_text("".join([lines[0].replace(",elo,", ",score,"), *lines[1:]]))
    assert "<h2>Strength</h2>" not in report.write(other).read_text()
    assert "<h2>Strength</h2>" in text


def test_the_chart_library_is_the_published_one() -> None:
    sums = next((SERVER_DIR / "static").glob("uplot-*/SHA256SUMS"))
    for line in sums.read_text().splitlines():
        digest, name = line.split()
        assert hashlib.sha256(sums.with_name(name).read_bytes()).hexdigest() == digest, name


def test_pages_answer(folder: Path) -> None:
    client = pages.create_app(RunsView(folder)).test_client()
    text = client.get("/").get_data(as_text=True)
    assert text.count("<figure") >= 4
    assert "no &lt;runner&gt;" in text
    only = client.get("/?run=stopped&axis=env_steps&span=25").get_data(as_text=True)
    assert '["stopped", "run-0", ' in only
    assert '["done", ' not in only
    assert "env steps" in only
    assert client.get("/?axis=../../etc&span=x").status_code == 200
    run = client.get("/run/done").get_data(as_text=True)
    assert re.search(r"iteration 18.* 3\.0 minutes</p>", run)
    assert 'href="../replays/replay/done/games/iteration-000018.jsonl.gz"' in run
    assert client.get("/replays/replay/done/games/iteration-000018.jsonl.gz").status_code == 200
    assert json.loads(client.get("/replays/data/done/games/iteration-000018.jsonl.gz").data)["over"]
    assert client.get("/run/none").status_code == 404
    assert client.get("/run/..%2Fdone").status_code == 404
    policy = client.get("/").headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy


def test_pages_tell_of_a_checkpoint_without_a_game(folder: Path) -> None:
    (folder / "done" / "checkpoints" / "checkpoint_000019").mkdir(parents=True)
    client = pages.create_app(RunsView(folder)).test_client()
    text = client.get("/run/done").get_data(as_text=True)
    assert "iteration 19." in text
    assert json.loads(client.get("/run/done.json").data)["games"] == [19, 18, 6]


def test_pages_of_no_runs(tmp_path: Path) -> None:
    client = pages.create_app(RunsView(tmp_path)).test_client()
    assert client.get("/").status_code == 200
    training_runs.make(tmp_path, "begun", 0, "running")
    assert "/run/begun" in client.get("/").get_data(as_text=True)
    assert client.get("/run/begun").status_code == 200


def test_the_page_starts_before_the_first_run(tmp_path: Path) -> None:
    runs = RunsView(tmp_path / "later", may_be_missing=True)
    client = pages.create_app(runs).test_client()
    assert "No runs yet" in client.get("/").get_data(as_text=True)
    training_runs.make(tmp_path / "later", "young", 0, "running")
    assert "young" in client.get("/").get_data(as_text=True)
    with pytest.raises(ValueError, match="later2"):
        RunsView(tmp_path / "later2")
