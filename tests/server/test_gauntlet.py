"""A gauntlet against programs and URLs on real sockets, with both clocks."""

import json
import re
import signal
import socket
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
    (tmp_path / "opponent.py").write_text(misbehaving_snakes.PROGRAM)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(snakes: dict[str, Any], *boards: dict[str, int], **more: Any) -> None:
    size = {"width": 7, "height": 7, "max_turns": 9}
    plan = {"name": "Opponents", "snakes": snakes, "boards": [size | board for board in boards]}
    Path("opponents.yaml").write_text(
        yaml.safe_dump({**plan, "timeout": 2000, **more}, sort_keys=False)
    )


def burning(seconds: float, where: str) -> dict[str, str]:
    command = f"{sys.executable} opponent.py {seconds} {where}"
    return {"command": command, "repository": f"own/{where}, 1a2b3c4"}


def lines(capfd: pytest.CaptureFixture[str], *options: str) -> list[dict[str, Any]]:
    assert gauntlet_command.main(["opponents.yaml", "--json", *options]) == 0
    return list(json.loads(capfd.readouterr().out))


def test_the_snake_has_the_cpu_time_of_its_opponents(capfd: pytest.CaptureFixture[str]) -> None:
    snakes = {"ours": "champion", "t": burning(0.05, "thread"), "p": burning(0.1, "process")}
    write(snakes, {"num_snakes": 2}, {"num_snakes": 3, "max_turns": 1})
    thread, process, both = lines(capfd, "--clock=cpu", "--games=2", "--replays=replays")
    assert [line["games"] for line in (thread, process, both)] == [2, 2, 2]
    assert len(list(Path("replays").iterdir())) == 6
    for line, opponent, least in ((thread, "t", 50), (process, "p", 99)):
        spent = line["mean_move_ms"]
        assert least <= spent[opponent] < 1.4 * least, "all threads and ended processes are counted"
        assert spent["ours"] == pytest.approx(spent[opponent], rel=0.2)
    spent = both["mean_move_ms"]
    assert spent["ours"] == pytest.approx((spent["t"] + spent["p"]) / 2, rel=0.2)

    again = lines(capfd, "--clock=cpu", "--games=3", "--replays=replays")
    assert len(list(Path("replays").iterdir())) == 9, "only the missing games were played"
    assert [line["games"] for line in again] == [3, 3, 3]
    assert gauntlet_command.main(["opponents.yaml", "--clock=cpu", "--games=1"]) == 0
    name, head, _, row, *_ = filter(None, capfd.readouterr().out.splitlines())
    assert name.startswith("Opponents: ")
    assert "| time per move | games | ours wins |" in head
    wins = again[0]["wins"]
    assert row.startswith("| t | own/thread, 1a2b3c4 | duel, 7x7 standard on standard | CPU: ")
    assert f"| 3 | {wins}: {100 * wins / 3:.0f}% (" in row


def test_with_the_wall_clock_urls_play_and_failed_moves_are_listed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with misbehaving_snakes.snake(misbehaving_snakes.answers(b"{}")) as url:
        write({"ours": "hungry", "mute": url}, {"num_snakes": 2, "max_turns": 4})
        assert gauntlet_command.main(["opponents.yaml", "--games=2"]) == 0
        shown = capfd.readouterr().out
        (line,) = lines(capfd, "--games=2")
    assert " | wall clock, 2000 ms | 2 | " in shown
    failed = line["failed_moves"]["mute"]["answer"]
    assert re.search(rf"mute {failed} answer\.\n$", shown)
    assert failed >= 2


def test_a_repeated_board_is_played_and_printed_once(capfd: pytest.CaptureFixture[str]) -> None:
    write({"ours": "hungry", "other": "cautious"}, {"num_snakes": 2}, {"num_snakes": 2})
    assert [line["games"] for line in lines(capfd, "--games=2")] == [2]


def test_games_follow_redirects_if_allowed(capfd: pytest.CaptureFixture[str]) -> None:
    def moved(connection: socket.socket, head: bytes, body: bytes) -> bool:
        found = misbehaving_snakes.http(b"", "302 Found", "Location: /there")
        good = misbehaving_snakes.http(misbehaving_snakes.GOOD)
        connection.sendall(found if head.startswith(b"POST /move ") else good)
        return True

    with misbehaving_snakes.snake(moved) as url:
        write({"ours": "hungry", "moved": url}, {"num_snakes": 2})
        (line,) = lines(capfd, "--games=1", "--follow-redirects")
    assert line["failed_moves"] == {}


def test_an_interrupted_gauntlet_prints_its_games_and_resumes(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write({"ours": "hungry", "t": burning(0.01, "thread")}, {"num_snakes": 2, "max_turns": 3})
    command = (*COMMAND, "gauntlet", "opponents.yaml", "--games=9999", "--replays=replays")
    with running(*command) as process:
        until(lambda: len(list(folder.glob("replays/*"))) > 3, process=process)
        process.send_signal(signal.SIGINT)
        printed, said = process.communicate(timeout=120)
        assert process.returncode == 130
    assert "interrupted; " in said
    played = int(printed.splitlines()[-1].split(" | ")[4])
    assert played >= 3
    (line,) = lines(capfd, f"--games={played + 1}", "--replays=more")
    assert line["games"] == played + 1
    assert len(list(Path("more").iterdir())) == 1


NOBODY, OWN = f"http://127.0.0.1:{free_port()}", {"command": "x"}


@pytest.mark.parametrize(
    ("snakes", "more", "options", "words"),
    [
        ({"ours": "hungry", "away": NOBODY}, {}, [], r"snakes\.away: http"),
        ({"ours": NOBODY, "t": OWN}, {}, ["--clock=cpu"], r"snakes\.ours.* --clock"),
        ({"ours": "hungry", "far": NOBODY}, {}, ["--clock=cpu"], r"snakes\.far.* --clock"),
        ({"ours": "hungry", "t": {**OWN, "url": NOBODY}}, {}, [], r"command.* url"),
        (
            {"ours": "hungry", "t": "straight"},
            {},
            ["--follow-redirects"],
            "--follow-redirects.* without URLs",
        ),
        (
            {"ours": "hungry", "t": OWN},
            {},
            ["--allow-networks=private"],
            "--allow-networks.* without URLs",
        ),
        ({"ours": "hungri", "t": OWN}, {}, [], "hungry"),
        ({"ours": "hungry", "t": OWN}, {"season_days": 3}, [], "'season_days'"),
    ],
)
def test_unplayable_snakes_are_named_before_any_game(
    snakes: dict[str, Any],
    more: dict[str, Any],
    options: list[str],
    words: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    write(snakes, {"num_snakes": 2}, **more)
    assert gauntlet_command.main(["opponents.yaml", "--replays=replays", *options]) == 2
    assert re.search(words, capfd.readouterr().err)
    assert not Path("replays").exists()
