"""Every page with a list: a bad file, row or run marks its own card, and nothing else."""

from __future__ import annotations

import contextlib
import html
import json
import os
import re
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from battlesnake_gym.common.run_dir import CSV_FILE, RUN_FILE
from battlesnake_gym.replays.replay import Replay
from battlesnake_server.arena.database import Database
from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.replay_viewer import replay_library
from battlesnake_server.replay_viewer.replay_library import LibraryEntry
from battlesnake_server.runs import report
from battlesnake_server.runs.run_view import RunsView
from battlesnake_server.web import create_app, replay_pages, runs_page
from battlesnake_server.web.game_manager import Arena
from battlesnake_server.web.roster import Roster
from tests.battlesnake_gym import hostile_replays
from tests.battlesnake_gym.test_replay import FUZZED
from tests.json_strategies import JUNK, places, replaced
from tests.server import training_runs, web_site

GOOD = re.compile(r'class="game" href="[^"]*?replay/([^"]+)"')


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def listed(root: Path) -> str:
    """Return the list of the recorded games in a directory, after all files were read."""
    client = replay_pages.create_app([root]).test_client()
    while True:
        page = client.get("/")
        assert page.status_code == 200
        if replay_pages._UNREAD_MESSAGE not in page.text:
            return page.text


@given(data=st.data())
@settings(max_examples=40, deadline=None)
@pytest.mark.parametrize("file_format", ["own", "official"])
def test_damaged_games_mark_their_own_card(file_format: str, data: st.DataObject) -> None:
    lines = FUZZED[file_format]
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(sorted(places(lines), key=str)))
        lines = replaced(lines, place, data.draw(JUNK))
    with folder() as root:
        training_runs.played(1).save(root / "good.jsonl.gz")
        (root / "bad.jsonl").write_text("\n".join(map(json.dumps, lines)))
        page = listed(root)
        assert "good.jsonl.gz" in GOOD.findall(page)
        assert page.count("<li>") == 2


def test_hostile_files_and_names_mark_their_own_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay_pages, "REPLAYS_PER_PAGE", 99)
    bad = set(hostile_replays.write(tmp_path))
    for name in ("plain", "caf\udce9", "\x1b]0;title\x07", "<b>&#?%41 ", "\N{SNAKE}"):
        training_runs.played(1).save(tmp_path / f"{name}.jsonl")
    os.utime(tmp_path / "plain.jsonl", (1e12, 1e12))
    (tmp_path / "directory.jsonl").mkdir()
    (tmp_path / "nowhere.jsonl").symlink_to(tmp_path / "missing")
    (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
    client = replay_pages.create_app([tmp_path]).test_client()
    page = listed(tmp_path)
    assert set(re.findall(r"<h2>(.*?)</h2>", page)) == bad
    good = GOOD.findall(page)
    assert len(good) == 5
    for key in good:
        assert client.get(f"/replay/{html.unescape(key)}").status_code == 200
        assert len(client.get(f"/data/{html.unescape(key)}").get_json()["frames"]) == 7


def test_unexpected_errors_mark_their_own_card(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = LibraryEntry.load

    def fail(entry: LibraryEntry) -> Replay:
        if entry.key == "bad.jsonl":
            raise KeyError("any")
        return load(entry)

    monkeypatch.setattr(LibraryEntry, "load", fail)
    for name in ("good.jsonl", "bad.jsonl"):
        training_runs.played(1).save(tmp_path / name)
    page = listed(tmp_path)
    assert GOOD.findall(page) == ["good.jsonl"]
    assert "KeyError(&#39;any&#39;)" in page


def test_long_games_do_not_delay_the_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()
    load = LibraryEntry.load

    def slow(entry: LibraryEntry) -> Replay:
        assert entry.key != "long.jsonl" or may_end.wait(60)
        return load(entry)

    monkeypatch.setattr(LibraryEntry, "load", slow)
    monkeypatch.setattr(replay_pages, "_CARDS_TIMEOUT_S", 0.5)
    for turns, name in ((90, "long"), (6, "short")):
        training_runs.played(1, turns).save(tmp_path / f"{name}.jsonl")
    client = replay_pages.create_app([tmp_path]).test_client()
    try:
        for _ in range(2):
            start = time.monotonic()
            page = client.get("/").text
            assert time.monotonic() - start < 10
            assert GOOD.findall(page) == ["short.jsonl"]
            assert replay_pages._UNREAD_MESSAGE in page
    finally:
        may_end.set()
    assert set(GOOD.findall(listed(tmp_path))) == {"long.jsonl", "short.jsonl"}


def test_games_may_be_deleted_while_the_list_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("kept", "deleted"):
        training_runs.played(1).save(tmp_path / name / "game.jsonl")
    find = replay_library._find_replays

    def delete(root: Path) -> list[Path]:
        found = find(root)
        shutil.rmtree(tmp_path / "deleted", ignore_errors=True)
        return found

    monkeypatch.setattr(replay_library, "_find_replays", delete)
    assert GOOD.findall(listed(tmp_path)) == ["kept/game.jsonl"]


def run_pages(runs: Path) -> list[str]:
    """Return the pages of all runs and of each run, and write the reports."""
    view = RunsView(runs)
    client = runs_page.create_app(view).test_client()
    addresses = [f"/run/{quote(run['run'])}" for run in client.get("/runs.json").get_json()]
    answers = [client.get(address) for address in ("/", *addresses)]
    assert {answer.status_code for answer in answers} == {200}
    for run in view.refresh():
        report.write(run.path)
    return [answer.text for answer in answers]


STATUS = {
    "state": "running", "started_at": 1.0, "ended_at": 2.0, "reason": "x",
    "stop_conditions": {"minutes": 3.0, "num_iters": 10}, "versions": {"ray": "2"},
    "settings": {"algorithm": "DISTIL", "lr": 0.1, "rl.training.config.env_config.map": "x"},
    "identity": {"algorithm": "EXIT", "games": ["SelfPlaySetup("], "observation": "flat-num"},
}  # fmt: skip
TABLE = ["training_iteration,time_total_s,elo,elo_low,elo_high,elo_games,elo_best,qf_loss,Starved",
         "1,2,700,650,750,8,700,1,1", "2,4,701,650,750,8,701,2,1"]  # fmt: skip
CELLS = st.sampled_from(
    ["", "x", "nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "-1", "\0", "y" * 200_000, "elo"]
)


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_damaged_runs_mark_their_own_row(data: st.DataObject) -> None:
    status: Any = STATUS
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(st.sampled_from([(), *sorted(places(status), key=str)]))
        with contextlib.suppress(TypeError, KeyError, IndexError):  # An earlier change removed it.
            status = replaced(status, place, data.draw(JUNK))
    table = [line.split(",") for line in TABLE]
    for _ in range(data.draw(st.integers(0, 3))):
        row = data.draw(st.sampled_from(table))
        row[data.draw(st.integers(0, len(row) - 1))] = data.draw(CELLS)
    if data.draw(st.booleans()):
        column = data.draw(st.integers(0, 8))
        table = [row[:column] + row[column + 1 :] for row in table]
    with folder() as runs:
        training_runs.make(runs, "good", 3, games=(3,))
        (runs / "bad" / "checkpoints" / "checkpoint_00000²").mkdir(parents=True)
        (runs / "bad" / RUN_FILE).write_text(json.dumps(status))
        (runs / "bad" / CSV_FILE).write_text("\n".join([",".join(row) for row in table]) + "\n")
        page = run_pages(runs)[0]
        assert {'value="good"', 'value="bad"'} <= set(re.findall(r'value="[a-z]+"', page))


@pytest.mark.parametrize("name", [RUN_FILE, CSV_FILE])
@pytest.mark.parametrize(
    "content", ["", "{", "[1]", "\ud83d", "\0" * 9, "y" * 200_000 + "\n", None]
)
def test_damaged_files_of_runs_are_named(tmp_path: Path, name: str, content: str | None) -> None:
    training_runs.make(tmp_path, "good", 3)
    path = training_runs.make(tmp_path, "bad", 3, games=(3,)) / name
    path.unlink()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content.encode("utf-8", "surrogatepass"))
    page = run_pages(tmp_path)[0]
    assert page.count('scope="row"') == 2
    damaged = name == RUN_FILE or content is None or len(content) > 9
    assert page.count(f"{name} cannot") == damaged


def test_runs_with_any_name_are_shown(tmp_path: Path) -> None:
    for name in ("good", "caf\udce9", "\x1b]0;title\x07", "<b>&#?%41 ", "\N{SNAKE}"):
        training_runs.make(tmp_path, name, 3, games=(3,))
    (tmp_path / "caf\udce9" / "games" / "iteration-000003.jsonl.gz").write_bytes(b"damaged")
    pages = run_pages(tmp_path)
    assert pages[0].count('scope="row"') == 5
    assert [len(GOOD.findall(page)) for page in pages[1:]].count(1) == 4


def test_runs_may_be_deleted_while_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is deleted before each system call that reads its directory."""
    calls = {"stat": os.stat, "listdir": os.listdir, "open": open, "scandir": os.scandir}
    names = ["os.stat", "os.listdir", "io.open", "os.scandir"]
    for number in range(1, 200):
        training_runs.make(tmp_path, "good", 3)
        deleted = training_runs.make(tmp_path, "deleted", 3)
        client = runs_page.create_app(RunsView(tmp_path)).test_client()
        left = number

        def before(call: Any, deleted: Path = deleted) -> Any:
            def wrapped(path: Any, *args: Any, **options: Any) -> Any:
                nonlocal left
                if not isinstance(path, int) and str(path).startswith(str(deleted)):
                    left -= 1
                    if left == 0:
                        shutil.rmtree(deleted)
                return call(path, *args, **options)

            return wrapped

        with monkeypatch.context() as patched:
            for name, call in zip(names, calls.values(), strict=True):
                patched.setattr(name, before(call))
            answers = [client.get(address) for address in ("/", "/run/deleted")]
        assert answers[0].status_code == 200, number
        assert answers[1].status_code in (200, 404), number
        assert 'value="good"' in answers[0].text
        shutil.rmtree(tmp_path / "good")
        if left > 0:
            assert number > 8
            return
        shutil.rmtree(deleted, ignore_errors=True)
    pytest.fail("reads the run more than 200 times")


COLUMNS = {
    "games": ("number", "uuid", "seed", "turns", "finished", "replay", "played"),
    "seats": ("seat", "snake", "won", "cause", "killer", "eliminated_on", "length", "latencies",
              "problems", "opening"),
    "tournaments": ("created", "setup"),
    "league_snakes": ("benched", "cooldown_until", "failures", "reason"),
}  # fmt: skip
VALUES = (None, "x", 1 << 60, b"caf\xe9", '{"league": "test"}')


SNAKES = {"hungry": "hungry", "cautious": "cautious"}
LEAGUE = LeagueConfig.parse({"name": "test", "snakes": SNAKES}, Path("test"))
SEASON = '{"league": "test", "season": 1, "starts": "2026-03-02", "ends": "2026-03-03"}'


@pytest.fixture(scope="module")
def arena_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of a database with a tournament, a season and a snake's cooldown."""
    folder = web_site.make(tmp_path_factory.mktemp("arena")).folder
    with contextlib.closing(sqlite3.connect(folder / "arena.sqlite")) as database, database:
        for setup in (SEASON, '{"snakes": ["up", "down"]}'):
            database.execute(
                "INSERT INTO tournaments (created, setup) VALUES ('2026-03-02', ?)", (setup,)
            )
        for number in (1, 2, 3):
            database.execute(
                "INSERT INTO games SELECT NULL, ?, number, 'copy' || id, seed, turns, finished, "
                "replay, played FROM games WHERE id = ?", (2 + number // 2, number),
            )  # fmt: skip
            database.execute(
                "INSERT INTO seats SELECT NULL, (SELECT max(id) FROM games), seat, snake, won, "
                "cause, killer, eliminated_on, length, latencies, problems, opening FROM seats "
                "WHERE game_id = ?", (number,),
            )  # fmt: skip
        for name in ("hungry", "cautious"):
            database.execute(
                "INSERT INTO league_snakes (league, snake, benched, cooldown_until, failures, "
                "reason) VALUES ('test', ?, 0, '2026-03-02 01:00:00', 1, 'late')", (name,),
            )  # fmt: skip
    return folder


@pytest.mark.parametrize(
    ("table", "column"), [(table, column) for table, names in COLUMNS.items() for column in names]
)
def test_damaged_rows_mark_their_own_card(
    arena_folder: Path, tmp_path: Path, table: str, column: str
) -> None:
    path = tmp_path / "arena.sqlite"
    shutil.copy(arena_folder / "arena.sqlite", path)
    arena = Database(f"sqlite:///{path}")
    for number, value in enumerate(VALUES):
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            (good,) = database.execute(f"SELECT {column} FROM {table} WHERE id = 2").fetchone()
            with contextlib.suppress(sqlite3.IntegrityError):
                cast = "CAST(? AS TEXT)" if isinstance(value, bytes) and number % 2 else "?"
                database.execute(f"UPDATE {table} SET {column} = {cast} WHERE id = 2", (value,))
        app = create_app(Arena(arena, Roster(), arena_folder / "replays", LEAGUE))
        client = app.test_client()
        pages = {
            address: client.get(address)
            for address in ("/", "/?tournament=", "/leaderboard.json?tournament=", "/games",
                            "/games?tournament=1", "/live", "/league", "/league.json",
                            "/snake/hungry", "/snake/cautious", "/replays/")
        }  # fmt: skip
        assert {answer.status_code for answer in pages.values()} == {200}, value
        assert (
            pages["/games"].text.count('class="game') - pages["/games"].text.count('class="games')
            == 9
        )
        assert pages["/games"].text.count("is damaged") <= 1
        assert pages["/league"].text.count('scope="row"') == 2
        assert pages["/?tournament="].text.count('scope="row"') >= 3
        assert pages["/"].text.count("<option") == 4
        json.loads(pages["/leaderboard.json?tournament="].text, parse_constant=pytest.fail)
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute(f"UPDATE {table} SET {column} = ? WHERE id = 2", (good,))
