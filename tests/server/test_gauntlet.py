"""A snake against programs and URLs on real sockets: at equal CPU time and by the clock."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from battlesnake_server.commands import gauntlet_command
from tests.processes import COMMAND, free_port, running, until
from tests.server import misbehaving_snakes


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "rival.py").write_text(misbehaving_snakes.PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(snakes: dict[str, Any], *boards: dict[str, int], **more: Any) -> None:
    size = {"width": 7, "height": 7, "max_turns": 9}
    plan = {"name": "Rivals", "snakes": snakes, "boards": [size | board for board in boards]}
    Path("rivals.yaml").write_text(
        yaml.safe_dump({**plan, "timeout": 2000, **more}, sort_keys=False)
    )


def burning(seconds: float, where: str) -> dict[str, str]:
    command = f"{sys.executable} rival.py {seconds} {where}"
    return {"command": command, "repository": f"own/{where}, 1a2b3c4"}


def lines(capfd: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    assert gauntlet_command.main(["rivals.yaml", "--json", *options]) == 0
    return list(json.loads(capfd.readouterr().out))


def test_the_snake_has_the_cpu_time_of_its_rivals(capfd: pytest.CaptureFixture[str]) -> None:
    snakes = {"ours": "champion", "t": burning(0.05, "thread"), "p": burning(0.1, "process")}
    write(snakes, {"snakes": 2}, {"snakes": 3, "max_turns": 1})
    thread, process, both = lines(capfd, "--clock=cpu", "--games=2", "--replays=replays")
    assert [line["games"] for line in (thread, process, both)] == [2, 2, 2]
    assert len(list(Path("replays").iterdir())) == 6
    for line, rival, least in ((thread, "t", 50), (process, "p", 99)):
        spent = line["milliseconds"]
        assert least <= spent[rival] < 1.4 * least, "all threads and ended processes are counted"
        assert spent["ours"] == pytest.approx(spent[rival], rel=0.2)
    spent = both["milliseconds"]
    assert spent["ours"] == pytest.approx((spent["t"] + spent["p"]) / 2, rel=0.2)

    again = lines(capfd, "--clock=cpu", "--games=3", "--replays=replays")
    assert len(list(Path("replays").iterdir())) == 9, "only the missing games were played"
    assert [line["games"] for line in again] == [3, 3, 3]
    assert gauntlet_command.main(["rivals.yaml", "--clock=cpu", "--games=1"]) == 0
    name, head, _, row, *_ = filter(None, capfd.readouterr().out.splitlines())
    assert name == "Rivals: 95 % intervals"
    assert head.endswith("| CPU time a move | games | ours won | rivals won | drawn |")
    won = again[0]["won"]
    assert row.startswith("| t | own/thread, 1a2b3c4 | duel, 7x7 standard on standard | ")
    assert f"| 3 | {won}: {100 * won / 3:.0f} % (" in row


def test_by_the_clock_urls_play_too_and_lost_moves_are_said(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with misbehaving_snakes.snake(misbehaving_snakes.says(misbehaving_snakes.http(b"{}"))) as url:
        write({"ours": "hungry", "mute": url}, {"snakes": 2, "max_turns": 4})
        assert gauntlet_command.main(["rivals.yaml", "--games=2"]) == 0
        shown = capfd.readouterr().out
        (line,) = lines(capfd, "--games=2")
    assert " | by the clock, 2000 ms | 2 | " in shown
    lost = line["lost_moves"]["mute"]["answer"]
    assert shown.endswith(f"\nLost moves: mute {lost} answer.\n")
    assert lost >= 2


def test_interrupted_it_prints_what_was_played_and_goes_on(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write({"ours": "hungry", "t": burning(0.01, "thread")}, {"snakes": 2, "max_turns": 3})
    command = (*COMMAND, "gauntlet", "rivals.yaml", "--games=9999", "--replays=replays")
    with running(*command) as process:
        until(lambda: len(list(folder.glob("replays/*"))) > 3, process=process)
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=120)
        assert process.returncode == 130
    assert "interrupted; what was played is stored" in said
    played = int(printed.splitlines()[-1].split(" | ")[4])
    assert played >= 3
    (line,) = lines(capfd, f"--games={played + 1}", "--replays=more")
    assert line["games"] == played + 1
    assert len(list(Path("more").iterdir())) == 1


NOBODY, OWN = f"http://127.0.0.1:{free_port()}", {"command": "x"}


@pytest.mark.parametrize(
    ("snakes", "more", "options", "words"),
    [
        ({"ours": "hungry", "away": NOBODY}, {}, [], "snakes.away: http"),
        ({"ours": NOBODY, "t": OWN}, {}, ["--clock=cpu"], "snakes.ours: with --clock cpu"),
        ({"ours": "hungry", "far": NOBODY}, {}, ["--clock=cpu"], "snakes.far: its CPU time"),
        ({"ours": "hungry", "t": {**OWN, "url": NOBODY}}, {}, [], "a command or a url"),
        ({"ours": "hungri", "t": OWN}, {}, [], "did you mean hungry"),
        ({"ours": "hungry", "t": OWN}, {"season_days": 3}, [], "unknown field 'season_days'"),
    ],
)
def test_what_cannot_be_played_is_refused_by_name_before_any_game(
    snakes: dict[str, Any],
    more: dict[str, Any],
    options: list[str],
    words: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write(snakes, {"snakes": 2}, **more)
    assert gauntlet_command.main(["rivals.yaml", "--replays=replays", *options]) == 2
    assert words in capfd.readouterr().err
    assert not Path("replays").exists()
