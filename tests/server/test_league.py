"""Standing leagues: the file, a simulated day, killed processes, and the page."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from sqlalchemy import select

from battlesnake_gym.cli import main
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena import league as league_module
from battlesnake_server.arena import league_snakes
from battlesnake_server.arena.database import Database, LeagueSnake
from battlesnake_server.arena.league import (
    NUM_RECENT_OPPONENTS,
    League,
    Season,
    StartGame,
    _pair_entrants,
)
from battlesnake_server.arena.league_config import (
    EXAMPLE_LEAGUE_FILE,
    LeagueConfig,
    _LeagueEntrant,
)
from battlesnake_server.arena.league_snakes import LeagueSnakes
from battlesnake_server.arena.ratings import Ratings
from battlesnake_server.commands.league_command import _load_or_create_token
from battlesnake_server.web import create_app
from battlesnake_server.web.game_manager import Arena
from battlesnake_server.web.roster import Roster
from tests.processes import below, command_of, run, running, until, until_gone
from tests.server import misbehaving_snakes
from tests.server.fast_league import BEGIN, FastClock, play_here
from tests.server.test_arena_together import stored

SMALL = {"width": 7, "height": 7, "max_turns": 12}


def plan_of(snakes: dict[str, Any], **more: Any) -> LeagueConfig:
    return LeagueConfig.parse({"name": "Club", "snakes": snakes, "boards": [SMALL], **more}, Path())


MakeLeague = Callable[[LeagueConfig, Any], League]


@pytest.fixture
def make_league(database: Database) -> MakeLeague:
    """A function that makes a league from its plan and a clock."""

    def make(plan: LeagueConfig, clock: Any) -> League:
        return League(LeagueSnakes(plan, AddressPolicy()), database, clock=clock)

    return make


def run_until(league: League, clock: FastClock, hours: float, play: StartGame = play_here) -> None:
    while clock.hours < hours:
        league.run_once(play)


def bench(database: Database, benched: bool, *snakes: str) -> None:
    with database.session() as session:
        for snake in snakes:
            LeagueSnake.get_or_create(session, "Club", snake).set_benched(benched)
        session.commit()


def test_the_example_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["league", "--print-example"]) == 0
    file = tmp_path / "league.yaml"
    file.write_text(capsys.readouterr().out)
    plan = LeagueConfig.load(file)
    assert [entrant.name for entrant in plan.entrants] == ["hungry", "cautious", "search"]
    assert [(one.map, one.num_snakes) for one in plan.boards] == [("standard", 2), ("royale", 3)]
    text = re.sub(r"^  # (.*)", r"  \1", EXAMPLE_LEAGUE_FILE, flags=re.MULTILINE)
    file.write_text(text.replace("timeout: 500", "timeout: 4e2"))
    plan = LeagueConfig.load(file)
    written = _LeagueEntrant("written", command="python my_snake.py --port {port}")
    assert plan.entrants[-1] == written
    assert plan.timeout == 400


def test_paths_are_relative_to_the_league_file(tmp_path: Path) -> None:
    for file in ("policy.onnx", "my_rules.py", "snake.zip", "hungry"):
        (tmp_path / file).touch()
    sources = ["policy.onnx", "policy.onnx+my_rules.py", "snake.zip@9", "hungry", "minimax@9"]
    snakes = {f"snake {number}": source for number, source in enumerate(sources)}
    plan = LeagueConfig.parse({"name": "A", "snakes": snakes}, tmp_path)
    policy = tmp_path / "policy.onnx"
    assert [entrant.source for entrant in plan.entrants] == [
        f"{policy}",
        f"{policy}+{tmp_path}/my_rules.py",
        f"{tmp_path}/snake.zip@9",
        "hungry",
        "minimax@9",
    ]


@pytest.mark.usefixtures("in_own_folder")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": ""}, "name"),
        ({"snakes": {"a": "hungry"}}, r"2 snakes.* 1"),
        ({"snakes": {"a": "hungry", "b": 3}}, r"snakes\.b.* URL"),
        ({"snakes": {"a": "hungry", "b=c": "random"}}, "= / :"),
        ({"snakes": {"a": "hungry", "b": "c=random"}}, r"snakes\.b.* random"),
        ({"snakes": {"a": "hungry", "b": "hungri"}}, "hungry"),
        ({"snakes": {"a": "hungry", "b": {"comand": "x"}}}, "command"),
        ({"boards": [{"widht": 7}]}, r"boards\[0\].* 'widht'.* width"),
        ({"boards": [{"num_snakes": 3}]}, r"boards\[0\]\.num_snakes.* 2.* 2"),
        ({"boards": [{"map": "royal"}]}, "royale"),
        (
            {"boards": [{"shrink_every_n_turns": 5}]},
            r"boards\[0\]: shrink_every_n_turns has no effect in standard games on the map st",
        ),
        ({"boards": [{"width": 0}]}, r"boards\[0\]\.width.* 1"),
        ({"boards": [{"width": 2, "height": 1}]}, r"boards\[0\]: "),
        ({"season_day": 3}, "season_days"),
        ({"health_minutes": 3}, "health_check_minutes"),
        ({"boards": [{"snakes": 2}]}, "num_snakes"),
        ({"timeout": "long"}, "timeout"),
        ({"season_days": 10**11}, "season_days must be between 1 and 36500"),
    ],
)
def test_a_mistake_in_the_file_is_reported_in_one_line(
    change: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("league.yaml").write_text(
        yaml.safe_dump({"name": "A", "snakes": {"a": "hungry", "b": "random"}} | change)
    )
    assert main.main(["league", "league.yaml"]) == 2
    assert not Path("arena.sqlite").exists()
    err = capsys.readouterr().err
    assert re.search(message, err)
    assert err.count("\n") == 1


@pytest.mark.usefixtures("in_own_folder")
def test_a_health_check_opens_no_database(capsys: pytest.CaptureFixture[str]) -> None:
    Path("league.yaml").write_text("name: A\nsnakes: {a: hungry, b: random}\n")
    assert main.main(["league", "league.yaml", "--check-health"]) == 0
    assert capsys.readouterr().out == "a: healthy\nb: healthy\n"
    assert [*Path().iterdir()] == [Path("league.yaml")]


def test_closely_rated_snakes_meet_but_not_only_each_other() -> None:
    ratings = Ratings()
    for _ in range(6):  # two strong and two weak snakes, which alternate wins among themselves
        for better, worse in ("ac", "ad", "bc", "bd", "ab", "ba", "cd", "dc"):
            ratings.add_game([(better, 0), (worse, 1)])
    names = ["a", "b", "c", "d"]
    assert set(_pair_entrants(names, 2, ratings, {}, {"a": []})) == {"a", "b"}
    played = {"a": 2, "b": 2, "c": 1, "d": 2}
    assert _pair_entrants(names, 2, ratings, played, {"c": []}) == ["c", "d"]
    recent_opponents: dict[str, list[str]] = {name: [] for name in names}
    played = dict.fromkeys(names, 0)
    for _ in range(100):
        pair = _pair_entrants(names, 2, ratings, played, recent_opponents)
        for name, other in (pair, pair[::-1]):
            played[name] += 1
            recent_opponents[name].append(other)
            del recent_opponents[name][:-NUM_RECENT_OPPONENTS]
    assert recent_opponents["a"].count("b") > recent_opponents["a"].count("d")
    assert set(recent_opponents["a"]) == {"b", "c", "d"}


def test_a_day_of_a_league_with_an_unhealthy_snake_and_hourly_restarts(
    make_league: MakeLeague, database: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = FastClock()
    healthy = misbehaving_snakes.Recorder()

    def sometimes(connection: Any, head: bytes, body: bytes) -> bool | None:
        return None if 6 <= clock.hours < 9 else healthy(connection, head, body)

    with misbehaving_snakes.snake(sometimes) as url:
        plan = plan_of(
            {"h": "hungry", "c": "cautious", "s": "straight", "far": url},
            season_days=1, games_per_hour=4, health_check_minutes=30,
        )  # fmt: skip
        played: list[tuple[float, set[str]]] = []

        def play(setup: Any, scheduled: Any, replays: Any) -> Any:
            played.append((clock.hours, {snake.partition("=")[0] for snake in setup.snakes}))
            return play_here(setup, scheduled, replays)

        for hour in range(1, 26):  # each hour, a new object restores its state from the database
            run_until(make_league(plan, clock), clock, hour, play)
    with database.session() as session:
        second, first = Season.load_all(session, "Club")
        assert session.scalars(select(LeagueSnake.cooldown_until)).all() == [None]
    assert (first.starts, first.ends - first.starts) == (BEGIN, second.ends - second.starts)
    assert second.starts == first.ends
    games = database.load_games(first.tournament)
    # Each restart loses at most one game, and may add one by shortening a pause.
    assert 4 * 24 - 26 <= len(games) <= 4 * 24 + 26
    assert [game.number for game in games] == list(range(len(games)))
    with_far = [when for when, names in played if "far" in names]
    unhealthy = [when for when in with_far if 6 <= when < 9]
    assert len(unhealthy) <= 1  # detects the problem, unless a health check came first
    assert [when for when in with_far if when < 6]
    assert [when for when in with_far if 9 <= when < 11]
    log = capsys.readouterr().err
    cooldowns = [int(minutes) for minutes in re.findall(r"\bfar\b.* cooldown of (\d+) min", log)]
    assert cooldowns == [1, 2, 4, 8, 16, 32, 60, 60]
    assert len(re.findall(r"\bfar\b.* healthy\b", log)) == 1
    assert "season 2" in log


@pytest.mark.parametrize("change", [timedelta(hours=-1), timedelta(hours=1), timedelta(days=20)])
def test_a_change_of_the_system_clock_changes_neither_pace_nor_cooldowns_nor_seasons(
    change: timedelta,
    make_league: MakeLeague,
    database: Database,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed_s, changed = 0.0, timedelta()

    class PassingClock(league_module._SteadyClock):
        def wait(self, seconds: float, games: Any) -> None:
            nonlocal passed_s
            passed_s += 0 if games else seconds

    monkeypatch.setattr(league_module, "_monotonic_s", lambda: 500 + passed_s)
    monkeypatch.setattr(
        league_module, "utc_now", lambda: BEGIN + timedelta(seconds=passed_s) + changed
    )
    snakes = {"h": "hungry", "c": "cautious", "gone": str(tmp_path / "gone.zip")}
    plan = plan_of(snakes, games_per_hour=60, season_days=1)
    league = make_league(plan, PassingClock())

    def games_in(minutes: int) -> int:
        before, end = league.games, passed_s + 60 * minutes
        while passed_s < end:
            league.run_once(play_here)
        return league.games - before

    assert 9 <= games_in(10) <= 11
    changed = change
    assert 9 <= games_in(10) <= 11
    log = capsys.readouterr().err
    checks = [int(minutes) for minutes in re.findall(r"cooldown of (\d+) min", log)]
    assert checks == [1, 2, 4, 8, 16], "after 0, 1, 3, 7 and 15 minutes"
    assert log.count("system clock") == 1
    with database.session() as session:
        (season,) = Season.load_all(session, "Club")
    bench(database, True, "c")
    assert games_in(5) <= 1
    bench(database, False, "c")
    with database.session() as session:
        season.end(session, "Club", BEGIN + timedelta(seconds=passed_s) + changed)
        session.commit()
    assert games_in(5) >= 4
    assert league.season.number == season.number + 1


def test_a_cooldown_set_by_a_clock_that_was_ahead_ends(
    make_league: MakeLeague, database: Database
) -> None:
    clock = FastClock()
    plan = plan_of({"h": "hungry", "c": "cautious"}, games_per_hour=60)
    with database.session() as session:
        session.add(
            LeagueSnake(league="Club", snake="c", failures=2, reason="",
                        cooldown_until=BEGIN + timedelta(days=9))
        )  # fmt: skip
        session.commit()
    league = make_league(plan, clock)
    run_until(league, clock, 0.1)
    assert league.games >= 3, "the second cooldown in a row is 2 minutes long"


def test_failed_moves_start_a_cooldown_and_benched_snakes_do_not_play(
    make_league: MakeLeague, database: Database
) -> None:
    clock, recorder = FastClock(), misbehaving_snakes.Recorder()

    def only_introduces(connection: Any, head: bytes, body: bytes) -> bool | None:
        return recorder(connection, head, body) if head.startswith(b"GET") else None

    with misbehaving_snakes.snake(only_introduces) as url:
        plan = plan_of({"h": "hungry", "c": "cautious", "mute": url}, games_per_hour=60)
        league = make_league(plan, clock)
        run_until(league, clock, 0.1)
        games = database.load_games(league.season.tournament)
        with database.session() as session:
            row = session.scalars(select(LeagueSnake)).one()
            assert (row.snake, row.failures >= 2) == ("mute", True)
            assert re.fullmatch(r".*?(\d+) of \1 .*\(connection\)", row.reason)
        bench(database, True, "h", "mute")
        run_until(league, clock, 2)
        assert len(database.load_games(league.season.tournament)) == len(games)
        bench(database, False, "h")
        run_until(league, clock, 2.1)
        assert len(database.load_games(league.season.tournament)) > len(games)


def right_mover(folder: Path) -> str:
    """Return the command of a program that moves right."""
    (folder / "snake.py").write_text(misbehaving_snakes.PROGRAM)
    return f"{sys.executable} {folder / 'snake.py'} 0 nobody {{port}}"


def test_a_killed_league_leaves_no_process_and_resumes(tmp_path: Path) -> None:
    plan = {
        "name": "Club", "boards": [SMALL], "games_per_hour": 1_000_000, "timeout": 5000,
        "snakes": {"hungry": "hungry", "mine": {"command": right_mover(tmp_path)}},
    }  # fmt: skip
    (tmp_path / "league.yaml").write_text(yaml.safe_dump(plan))
    command = [sys.executable, "-m", "battlesnake_gym", "league", "league.yaml", "--jobs=1",
               "--port=0"]  # fmt: skip

    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with running(*command, cwd=tmp_path, **quiet) as process:
        until(lambda: len(stored(tmp_path)) >= 2, process=process)
        others = below(process.pid)
        assert any("snake.py" in words for words in others.values())
    until_gone(others)
    before = stored(tmp_path)
    done = run(*command, "--games=2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = stored(tmp_path)
    assert after[: len(before)] == before
    assert [number for number, _ in after] == list(range(len(before) + 2))
    assert all(Path(replay).exists() for _, replay in after)
    assert "season 1" in done.stderr
    assert re.search(rf"^hungry .* {len(after)} ", done.stdout, re.MULTILINE)


def test_a_program_that_ends_is_restarted(tmp_path: Path) -> None:
    plan = plan_of({"mine": {"command": right_mover(tmp_path)}, "h": "hungry"})
    with LeagueSnakes(plan, AddressPolicy()) as players:
        assert players.find_problems(["mine", "h"]) == {"mine": "", "h": ""}
        (snake,) = [
            number
            for number, words in below(os.getpid()).items()
            if "snake.py" in words and "battlesnake_server.arena.program_watchdog" not in words
        ]
        os.kill(snake, signal.SIGKILL)
        until(lambda: not command_of(snake))
        assert players.find_problems(["mine"]) == {"mine": ""}
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(players.sources["mine"])


def test_a_program_that_fails_restarts_after_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(league_snakes, "_START_TIMEOUT_S", 3.0)
    body = f"open({str(tmp_path / 'starts')!r}, 'a').write('x')"
    command = shlex.join([sys.executable, "-c", body])
    plan = plan_of({"mine": {"command": command}, "h": "hungry"})
    with LeagueSnakes(plan, AddressPolicy()) as players:
        problems = players.find_problems(["mine"])
    assert "exited with status 0" in problems["mine"]
    assert 2 <= len((tmp_path / "starts").read_text()) <= 6


@pytest.fixture
def club(database: Database) -> LeagueConfig:
    """A league of three that has played four games."""
    plan = plan_of({"h": "hungry", "c": "cautious", "s<b>": "straight"})
    league = healthy_league(plan, database, FastClock())
    while league.games < 4:
        league.run_once(play_here)
    return plan


class HealthySnakes(LeagueSnakes):
    """Snakes without health checks."""

    def find_problems(self, names: Sequence[str]) -> dict[str, str]:
        return dict.fromkeys(names, "")


def healthy_league(plan: LeagueConfig, database: Database, clock: FastClock) -> League:
    return League(HealthySnakes(plan, AddressPolicy()), database, clock=clock)


def test_a_season_stored_by_a_clock_that_was_ahead_ends(
    club: LeagueConfig, database: Database
) -> None:
    clock = FastClock()
    numbers = []
    for days in (4000, 0, 0):
        clock.time = BEGIN + timedelta(days=days)
        league = healthy_league(club, database, clock)
        league.run_once(play_here, 1)
        numbers.append(league.season.number)
    assert numbers == [2, 3, 3]
    assert league.season.starts == BEGIN


def test_the_page_shows_the_season_and_obeys_the_token(
    club: LeagueConfig, database: Database, tmp_path: Path
) -> None:
    token = _load_or_create_token(tmp_path / "token")
    assert _load_or_create_token(tmp_path / "token") == token
    assert (tmp_path / "token").stat().st_mode & 0o077 == 0
    app = create_app(Arena(database, Roster(), tmp_path, club))
    app.config["TOKEN"] = token
    stranger, operator = app.test_client(), app.test_client()
    assert operator.get(f"/league?token={token}").status_code == 302
    page = stranger.get("/league").text
    assert "season 1" in page
    assert "s&lt;b&gt;" in page
    assert "<b>" not in re.sub(r"<b>[-\d.]+</b>", "", page)
    assert "data-post" not in page
    assert operator.get("/league").text.count("data-post") == 4
    assert ">League</a>" in stranger.get("/").text
    assert "season 1" in stranger.get("/").text
    request = {"snake": "h", "benched": True}
    assert stranger.post("/league/bench", json=request).status_code == 403
    assert stranger.post("/league/season", json={}).status_code == 403
    assert states(stranger)["h"] == "healthy"
    assert operator.post("/league/bench", json=request).status_code == 200
    assert states(stranger)["h"] == "benched"
    with database.session() as session:
        row = session.scalars(select(LeagueSnake)).one()
        row.reason, row.cooldown_until = "no answer", BEGIN
        session.commit()
    benched = stranger.get("/league.json").get_json()["snakes"]
    assert {(one["reason"], one["cooldown_until"]) for one in benched} == {("", None)}
    for wrong in ({"snake": "nobody", "benched": True}, {"snake": "h"}, {"snake": 3}):
        answer = operator.post("/league/bench", json=wrong)
        assert (answer.status_code, len(answer.get_json()["error"]) > 10) == (400, True)
    assert operator.post("/league/season", json={}).status_code == 200
    with database.session() as session:
        (season,) = Season.load_all(session, "Club")
    clock = FastClock()
    clock.time = max(season.ends, clock.time)
    league = healthy_league(club, database, clock)
    league.run_once(play_here)
    assert league.season.number == 2
    assert stranger.get("/league.json").get_json()["season"] == 2


def states(client: Any) -> dict[str, str]:
    return {one["snake"]: one["state"] for one in client.get("/league.json").get_json()["snakes"]}
