"""The database on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import event, insert, select
from sqlalchemy.exc import IntegrityError

from battlesnake_gym.game_spec import GameSpec
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.database import (
    Database,
    LeagueSnake,
    Seat,
    StoredGame,
    Tournament,
)
from battlesnake_server.arena.league import (
    League,
    Season,
)
from battlesnake_server.arena.league_config import LeagueConfig
from battlesnake_server.arena.league_snakes import LeagueSnakes
from battlesnake_server.arena.stored_tournament import StoredTournament
from battlesnake_server.arena.tournament import TournamentSettings
from battlesnake_server.commands import arena_command
from battlesnake_server.web import create_app
from battlesnake_server.web.game_manager import Arena
from battlesnake_server.web.roster import Roster
from tests.processes import free_port, until
from tests.server.fast_league import FastClock, play_here

DATA = Path(__file__).parents[1] / "data"


def postgres_folder() -> Path:
    """Return the directory of initdb and pg_ctl; skip the test without them."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    pytest.skip("needs a PostgreSQL server: install the package postgresql")


def unprivileged() -> str | None:
    """Return the user to run PostgreSQL as, because it rejects root; None if we are not root."""
    if os.geteuid() != 0:
        return None
    users = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in users else "nobody"


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """Run a PostgreSQL server; yield its URL."""
    binaries, user, port = postgres_folder(), unprivileged(), free_port()
    folder = Path(tempfile.mkdtemp(prefix="postgres-"))
    if user:
        shutil.chown(folder, user)

    def run(program: str, *arguments: str) -> None:
        command = [str(binaries / program), "-D", str(folder / "data"), *arguments]
        with (folder / "output").open("ab") as output:
            done = subprocess.run(command, user=user, stdout=output, stderr=output, cwd=folder)
        assert done.returncode == 0, (folder / "output").read_text()

    try:
        run("initdb", "--auth=trust", "--username=arena", "--encoding=UTF8", "--locale=C")
        options = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -F"
        run("pg_ctl", "-w", "-o", options, "-l", str(folder / "log"), "start")
        try:
            yield f"postgresql+psycopg://arena@127.0.0.1:{port}/postgres"
        finally:
            run("pg_ctl", "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'arena.sqlite'}"
    return str(request.getfixturevalue("postgres"))


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    one = Database(url)
    yield one
    one.close()


def a_game(number: int, tournament: int) -> StoredGame:
    seats = [
        Seat(seat=i, snake=f"ä{i}", won=i == 0, cause="" if i == 0 else "hazard", killer=None,
             eliminated_on=7 * i, length=4, latencies=[0.25, 3.0], problems={"timeout": i})
        for i in range(2)
    ]  # fmt: skip
    return StoredGame(tournament_id=tournament, number=number, uuid="u", seed=2**63 - 1, turns=7,
                finished=True, replay=None, seats=seats)  # fmt: skip


def test_what_is_stored_comes_back(url: str) -> None:
    database = Database(url)
    setup = {"snakes": ["ä0", "ä1"], "settings": {"chance": 15}, "max_turns": None, "test": url}
    with database.session() as session:
        assert Tournament.find(session, setup) is None
        tournaments = [Tournament(settings=settings) for settings in (setup, setup, {})]
        session.add_all(tournaments)
        session.commit()
        latest = tournaments[1].id
        session.add_all([a_game(1, latest), a_game(0, latest), a_game(0, tournaments[0].id)])
        session.commit()
    database.close()

    database = Database(url)  # the tables exist
    with database.session() as session:
        found = Tournament.find(session, setup)
        assert found is not None
        assert found.id == latest
        games = database.load_games(latest)
        assert [game.number for game in games] == [0, 1]
        assert games[0].seed == 2**63 - 1
        assert [seat.snake for seat in games[0].seats] == ["ä0", "ä1"]
        assert games[0].seats[1].latencies == [0.25, 3.0]
        assert games[0].seats[1].problems == {"timeout": 1}
        assert games[0].seats[1].cause == "hazard"
    database.close()


def test_a_database_of_version_0_1_is_converted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "arena.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.executescript((DATA / "formats" / "arena_1.sql").read_text())
    url = f"sqlite:///{path}"
    call = ["minimax@5", "hungry", "--board-size=7", "--max-turns=4", "--nodes=5", "--games=3"]
    assert arena_command.main([*call, "--jobs=1", "--json", "--resume", f"--database={url}"]) == 0
    assert [line["games"] for line in json.loads(capsys.readouterr().out)] == [3, 3]
    database = Database(url)
    with database.session() as session:
        (tournament,) = session.scalars(select(Tournament))
        assert (tournament.settings["num_snakes"], tournament.settings["nodes"]) == (2, 5)
        row = LeagueSnake.load_all(session, "Club", ["hungry"])["hungry"]
        assert (row.failures, row.reason, row.cooldown_until) == (
            2, "no answer", datetime(2026, 11, 27, 12),
        )  # fmt: skip
    database.close()


def test_a_tournament_with_damaged_settings_does_not_prevent_another(database: Database) -> None:
    database.transact(lambda session: session.execute(insert(Tournament).values(settings=[1])))
    settings = TournamentSettings(("hungry", "random"), GameSpec(2))
    assert StoredTournament.find(database, settings) is None


def test_only_the_rows_of_the_given_snakes_are_loaded(database: Database) -> None:
    loaded: list[str] = []
    with database.session() as session:
        for name in ("hungry", "tree", "cautious"):
            LeagueSnake.get_or_create(session, "Club", name).set_benched(True)
        session.commit()
        session.expunge_all()
        event.listen(session, "loaded_as_persistent", lambda _, row: loaded.append(row.snake))
        rows = LeagueSnake.load_all(session, "Club", iter(["tree", "new"]))
        benched = [(name, row.benched) for name, row in rows.items()]
        assert benched == [("tree", True), ("new", False)]
    assert loaded == ["tree"]


def test_a_game_is_stored_once(database: Database) -> None:
    with database.session() as session:
        tournament = Tournament(settings={})
        session.add(tournament)
        session.commit()
        session.add_all([a_game(0, tournament.id), a_game(0, tournament.id)])
        with pytest.raises(IntegrityError):
            session.commit()


def test_a_wrong_url_is_reported(tmp_path: Path) -> None:
    missing = f"sqlite:///{tmp_path}/no/such/folder/arena.sqlite"
    nobody = f"postgresql+psycopg://nobody@127.0.0.1:{free_port()}/nothing"
    for url in ("results.db", "nosuch://host/name", missing, nobody):
        with pytest.raises(ValueError, match="sqlite:///"):
            Database(url)


def test_the_pages_read_and_write_the_database(database: Database, tmp_path: Path) -> None:
    with database.session() as session:
        tournament = Tournament(settings=TournamentSettings(("ä0", "ä1"), GameSpec(2)).to_dict())
        session.add(tournament)
        session.commit()
        session.add_all([a_game(0, tournament.id), a_game(1, tournament.id)])
        session.commit()
        number = tournament.id
    client = create_app(Arena(database, Roster(), tmp_path)).test_client()
    (best, worst) = client.get(f"/leaderboard.json?tournament={number}").get_json()
    assert (best["snake"], best["wins"], worst["snake"]) == ("ä0", 2, "ä1")
    assert "ä0, ä1 · standard 11x11" in client.get("/").text
    page = client.get(f"/games?snake=ä1&tournament={number}").text
    assert page.count("no replay</p>") == 2
    sent = {"snakes": ["straight", "straight"], "width": 7, "height": 7}
    game = client.post("/play", json=sent).get_json()["game"]
    until(lambda: f"/game/{game}" in client.get("/games").text)


def test_a_league_resumes_from_the_database(
    database: Database, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = {"width": 7, "height": 7, "max_turns": 8}
    plan = LeagueConfig.parse(
        {"name": url, "snakes": {"ä": "hungry", "b": "random"}, "boards": [board]}, Path()
    )
    for problem in ("", "tired"):  # the second league reads what the first one stored
        players = LeagueSnakes(plan, AddressPolicy())

        def problems(names: Sequence[str], problem: str = problem) -> dict[str, str]:
            return {name: problem if name == "ä" else "" for name in names}

        monkeypatch.setattr(players, "find_problems", problems)
        league = League(players, database, clock=FastClock())
        if problem:
            league.run_once(play_here)
        else:
            league.run(play_here, games=2)
    with database.session() as session:
        (season,) = Season.load_all(session, url)
        assert [game.number for game in database.load_games(season.tournament)] == [0, 1]
        row = session.scalars(select(LeagueSnake).where(LeagueSnake.league == url)).one()
        assert (row.snake, row.reason, row.failures) == ("ä", "tired", 1)
        LeagueSnake.get_or_create(session, url, "b").set_benched(True)
        season.end(session, url, season.starts)
        session.commit()
    assert league.season == season
    league.run_once(play_here)
    assert league.season.number == 2
