"""Game analysis: the command, the pages, fetched games, and long games."""

import contextlib
import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from PIL import Image

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.commands import game_export_command
from battlesnake_gym.draw import animation, drawing
from battlesnake_gym.draw.customization import Text
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Game
from battlesnake_heuristics.analysis import game_analysis, mistakes, scenarios
from battlesnake_heuristics.analysis.game_analysis import GameAnalysis, analysis_path
from battlesnake_server.commands import game_analyze_command
from battlesnake_server.replay_viewer import analysis_queue, frame_stream, what_if
from battlesnake_server.replay_viewer.analysis_queue import AnalysisQueue
from battlesnake_server.web import replay_pages
from tests.heuristics.test_game_analysis import played
from tests.processes import COMMAND, running, until


@pytest.fixture
def game(tmp_path: Path) -> Path:
    path = tmp_path / "game.jsonl.gz"
    played().save(path)
    return path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make analyses fast, and keep background analyses at normal priority."""
    monkeypatch.setattr(mistakes, "ROLLOUT_ROUNDS", (2,))
    monkeypatch.setattr(analysis_queue, "_ANALYSIS_NICE_INCREMENT", 0)


@pytest.mark.usefixtures("quick")
def test_an_animation_of_an_analyzed_game_has_a_win_probability_bar(
    game: Path, tmp_path: Path
) -> None:
    def count_colors(name: str) -> int:
        """Count the colors below the list of snakes in the first frame."""
        assert game_export_command.main([str(game), "-o", str(tmp_path / name)]) == 0
        with Image.open(tmp_path / name) as film:
            top = int(
                (drawing.MARGIN + 0.85 + 2 * drawing.ROW_HEIGHT) * animation.DEFAULT_CELL_SIZE
            )
            bar = film.convert("RGB").crop((film.width * 2 // 3 + 9, top, film.width - 20, top + 8))
        return len(bar.getcolors() or ())

    assert count_colors("plain.gif") == 1
    game_analysis.analyze_game(game, 100)
    assert count_colors("barred.gif") > 1


def test_the_bar_marks_estimates_with_a_tilde() -> None:
    board = Board.new(7, 7, ["a", "b"])
    for win_probabilities, labels in (
        ({"a": 0.47, "b": 0.53}, ["~47%", "~53%"]),
        ({"a": 1.0}, ["100%"]),
    ):
        texts = [
            one.text for one in drawing.shapes(board, win_probabilities) if isinstance(one, Text)
        ]
        assert [text for text in texts if "%" in text] == labels


@pytest.mark.usefixtures("quick")
def test_the_command_prints_and_saves(game: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert game_analyze_command.main([str(game), "--nodes", "100"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("12 turns, 100 nodes ")
    assert str(analysis_path(game)) in out
    assert GameAnalysis.load(analysis_path(game)).is_complete
    assert game_analyze_command.main([str(game), "--nodes", "100", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["turns"], told["nodes"]) == (12, 100)
    found = GameAnalysis.load(analysis_path(game)).mistakes
    assert found is not None
    assert sorted(one["turn"] for one in told["mistakes"]) == sorted(one.turn for one in found)
    assert {one["annotation"] for one in told["mistakes"]} <= {"?", "??"}


@pytest.mark.parametrize(("own", "assumed"), [(None, 3), (2, None)])
def test_the_command_and_the_page_assume_the_view_radius(
    own: int | None, assumed: int | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "game.jsonl"
    replay = played(turns=1)
    replay.set_default_view_radius(own)
    replay.save(path)
    client = replay_pages.create_app([path], view_radius=3).test_client()
    client.post(f"/analysis/{path.name}", json={})
    until(lambda: client.get(f"/analysis/{path.name}").get_json()["state"] == "done")
    assert GameAnalysis.load(analysis_path(path)).view_radius == assumed
    unlimited = replay_pages.create_app([path]).test_client()
    state = unlimited.get(f"/analysis/{path.name}").get_json()["state"]
    assert state == ("done" if own else "none")
    status = game_analyze_command.main([str(path), "--view-radius", "3"])
    out, error = capsys.readouterr()
    assert status == (2 if own else 0)
    assert ("--view-radius has no effect on games" in error) is (own is not None)
    assert out.endswith("game.jsonl --view-radius 3\n") is (own is None)


def test_a_terminated_command_saves_its_results(tmp_path: Path) -> None:
    game = tmp_path / "game.jsonl.gz"
    played(turns=60).save(game)
    with running(*COMMAND, "game", "analyze", game, "--quiet", "--nodes", "1000000") as process:
        until(lambda: analysis_path(game).exists())
        process.terminate()
        assert process.wait(60) == 128 + 15
    found = GameAnalysis.load(analysis_path(game))
    assert found.positions
    assert not found.is_complete


def finished(seed: int = 3) -> Replay:
    """Play a whole game of three random snakes."""
    board = Board.new(7, 7, 3, game=Game(seed=seed))
    return Replay.from_play(board, {s.id: snakes.make("safe-random", seed) for s in board.snakes})


@pytest.mark.usefixtures("quick")
def test_a_failed_analysis_reports_the_reason(tmp_path: Path) -> None:
    bad = tmp_path / "bad.jsonl"
    bad.write_text("{}\n")
    with contextlib.closing(AnalysisQueue()) as runner:
        runner.start(bad)
        until(lambda: runner.status_to_dict(bad)["state"] == "failed")
        assert "bad.jsonl, line 1" in runner.status_to_dict(bad)["error"]


def test_a_killed_analysis_reports_its_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state is "failed", although some turns are analyzed and standard error is empty."""
    path = tmp_path / "game.jsonl"
    played(turns=2).save(path)
    GameAnalysis(game_analysis._file_sha256(path), 9, 0, 1, None).save(analysis_path(path))
    killed = tmp_path / "python"
    killed.write_text("#!/bin/sh\nkill -9 $$\n")
    killed.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(killed))
    with contextlib.closing(AnalysisQueue()) as runner:
        runner.start(path)
        until(lambda: runner.status_to_dict(path)["state"] == "failed")
        assert "status -9" in runner.status_to_dict(path)["error"]


def test_a_scenario_needs_a_search_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = SimpleNamespace(acquire=lambda timeout: False)
    monkeypatch.setattr(what_if, "_search_slots", busy)
    board = Board.from_text("A . . . . B\n. . . . . .")
    board.you_id = "a"
    with pytest.raises(analysis_queue.BusyError):
        what_if.build_scenario([board])


def test_closing_stops_the_process(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    played(turns=60).save(path)
    runner = AnalysisQueue()
    runner.start(path)
    until(lambda: runner._process is not None)
    process = runner._process
    assert process is not None
    runner.close()
    assert process.poll() is not None


def test_visitors_without_a_token_cannot_start_an_analysis(game: Path) -> None:
    app = replay_pages.create_app([game.parent])
    app.config["TOKEN"] = "secret"
    client = app.test_client()
    assert 'data-may="false"' in client.get("/replay/game.jsonl.gz").text
    refused = client.post("/analysis/game.jsonl.gz", json={})
    assert (refused.status_code, "; open the address with" in refused.text) == (403, True)
    assert client.get("/?token=secret").status_code == 302
    assert 'data-may="true"' in client.get("/replay/game.jsonl.gz").text
    allowed = replay_pages.create_app([game.parent])
    refused = allowed.test_client().post("/analysis/game.jsonl.gz", data="{}")
    assert (refused.status_code, "application/json" in refused.get_json()["error"]) == (400, True)
    assert allowed.test_client().get("/analysis/none.jsonl").status_code == 404


def test_what_if_plays_other_moves() -> None:
    board = Board.from_text("A . . . . B\n. . . . . .\n. . . . . .")
    (*_, after), played_on = what_if.play_branch([board], "rl-dd")
    assert played_on == "rl-dd"
    assert [snake.head for snake in after.snakes] == [(1, 1), (4, 1)]
    assert after.turn == 2
    assert board.turn == 0
    (*_, chosen), words = what_if.play_branch([board], "xl")
    assert words[1] == "l"
    assert chosen.snakes[0].head in {(1, 2), (0, 1)}


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ("r", r"2.* 'r'"),
        ("rz", r"'z'.* u, d, l, r"),
        ("rx-rl", "last turn"),
        ("uu-rr", "turn 2"),
        ("-".join(["rl"] * 61), "60 turns"),
    ],
)
def test_unplayable_moves_are_reported(groups: str, words: str) -> None:
    board = Board.from_text("A . . . . B\n. . . . . .")
    with pytest.raises(ValueError, match=words):
        what_if.play_branch([board], groups)


def with_limited_view(text: str, turn: int) -> Board:
    board = Board.from_text(text)
    board.turn = turn
    game = replace(board.game, settings=replace(board.game.settings, view_radius=2))
    return Board.from_state(board, game)


def search_values(*boards: Board) -> Any:
    """Return the search values of the candidates of snake a, by move."""
    assessment = what_if.describe_branch(boards, "")["snakes"]["a"]
    return {one["move"]: one["value"] for one in assessment["candidates"]}


def test_what_if_decides_by_the_visible_information() -> None:
    """Hidden cells have no effect on a snake with limited view, but remembered cells do."""
    rows = [". . . . . . . ."] * 6
    beside = with_limited_view("\n".join(["> > A . . . . .", *rows, ". . . . B < < <"]), 5)
    away = with_limited_view("\n".join(["> > A . . . . .", *rows, "> > > B . . . ."]), 5)
    assert search_values(beside) == search_values(away)
    moves = [what_if.play_branch([board], "xu")[1] for board in (beside, away)]
    assert moves[0] == moves[1]
    seen = with_limited_view("\n".join(["> > A . B < < <", *rows, ". . . . . . . ."]), 4)
    assert search_values(seen, beside) != search_values(beside)


def test_a_position_becomes_a_scenario(game: Path) -> None:
    client = replay_pages.create_app([game.parent]).test_client()
    answer = client.get("/turn/4/scenario/game.jsonl.gz?you=snake_1")
    assert answer.headers["Content-Disposition"] == "attachment; filename=turn-4.txt"
    (made,) = scenarios.from_text(answer.text)
    board = Replay.load(game).board(4)
    assert made.board.you.id == "snake_1"
    assert set(made.allowed) <= set(board.safe_moves("snake_1"))
    off = client.get("/turn/4/text/game.jsonl.gz?if=xx")
    assert Board.from_text(off.text).turn == 5
    wrong = client.get("/turn/4/frame/game.jsonl.gz?if=zz")
    assert (wrong.status_code, "'z'" in wrong.get_json()["error"]) == (404, True)
    frame = client.get("/turn/4/frame/game.jsonl.gz?if=xx").get_json()
    total = sum(snake["win_probability"] for snake in frame["snakes"].values())
    assert total == pytest.approx(1, abs=1e-3)


def test_a_long_game_is_sent_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_stream, "_FIRST_CHUNK_BYTES", 600)
    monkeypatch.setattr(frame_stream, "_CHUNK_BYTES", 900)
    replay = finished()
    replay.save(tmp_path / "game.jsonl.gz")
    client = replay_pages.create_app([tmp_path]).test_client()
    frames: list[Any] = []
    more, pieces = True, 0
    while more:
        answer = client.get(
            f"/data/game.jsonl.gz?since={len(frames)}", headers={"Accept-Encoding": "gzip"}
        )
        piece = json.loads(gzip.decompress(answer.data))
        assert piece["from"] == len(frames)
        frames += piece["frames"]
        more, pieces = piece["more"], pieces + 1
    assert pieces > 2
    assert len(frames) == len(replay.turns) + 1
    assert [frame["turn"] for frame in frames] == list(range(len(frames)))
    assert [death["id"] for death in piece["deaths"]] == [who for _, who, _ in replay.deaths()]
    assert client.get("/data/game.jsonl.gz?since=100000").status_code == 404


def test_damage_in_a_later_chunk_is_reported_with_that_chunk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_stream, "_FIRST_CHUNK_BYTES", 1000)
    lines = finished().to_lines()
    lines[-1]["end"]["turn"] += 1
    path = tmp_path / "game.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    client = replay_pages.create_app([tmp_path]).test_client()
    first = client.get("/data/game.jsonl").get_json()
    assert first["more"] is True
    answer = client.get(f"/data/game.jsonl?since={len(first['frames'])}")
    assert answer.status_code == 422


def test_pages_and_scripts_are_compressed_if_accepted(game: Path) -> None:
    client = replay_pages.create_app([game.parent]).test_client()
    for address in ("/static/player.js", "/replay/game.jsonl.gz", "/static/style.css"):
        with client.get(address) as plain:
            assert "Content-Encoding" not in plain.headers
            content = plain.data
        with client.get(address, headers={"Accept-Encoding": "gzip"}) as small:
            assert small.headers["Content-Encoding"] == "gzip"
            assert gzip.decompress(small.data) == content
            assert len(small.data) < len(content) / 2 + 600
