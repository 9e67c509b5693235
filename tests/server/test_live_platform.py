"""Games of arena.battlesnake.com by URL, from a stand-in server."""

import argparse
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, request

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays import limits
from battlesnake_gym.replays.json_lines import ReplayError
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules.state import OFFSETS, Game
from battlesnake_heuristics.analysis import mistakes
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.commands import game_analyze_command, game_coach_command, game_watch_command
from battlesnake_server.replay_viewer import game_fetcher, game_urls
from battlesnake_server.replay_viewer.game_urls import (
    ARENA_API_URL,
    LEGACY_ENGINE_URL,
    find_engines,
)
from battlesnake_server.web import pages, replay_pages
from tests.server import web_site
from tests.server.live_platform import TOKEN, Kept, Platform, played

ID = "1c3a5f0e-8f0b-4a5e-9f6b-0123456789ab"
SAYS = [("move-request",), ("details",), ()]
GAMES = [
    (mode, size, snakes)
    for mode, snakes in [
        ("Standard", 4), ("Royale", 3), ("Constrictor", 2), ("Snail Mode", 4), ("Solo", 1),
    ]
    for size in (7, 11, 19, 11, 11)
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (f"https://arena.battlesnake.com/games/{ID}", [ARENA_API_URL]),
        (f"http://www.arena.battlesnake.com/games/{ID}?turn=12&autoplay=true", [ARENA_API_URL]),
        (f"arena.battlesnake.com/games/{ID}", [ARENA_API_URL]),
        (f"https://arena.battlesnake.com/api/games/{ID}", [ARENA_API_URL]),
        (f"https://arena.battlesnake.com/api/games/{ID}/details", [ARENA_API_URL]),
        (f"https://arena.battlesnake.com/api/games/{ID}/frames?offset=0", [ARENA_API_URL]),
        (f"wss://arena.battlesnake.com/api/games/{ID}/events", [ARENA_API_URL]),
        (f"https://board.battlesnake.com/?engine=https://arena.battlesnake.com/api&game={ID}",
         [ARENA_API_URL]),
        (f"https://board.battlesnake.com/?game={ID}&engine=https%3A%2F%2Fengine.battlesnake.com",
         [LEGACY_ENGINE_URL]),
        (f"https://board.battlesnake.com?game={ID}", [ARENA_API_URL, LEGACY_ENGINE_URL]),
        (f"https://play.battlesnake.com/game/{ID}/", [LEGACY_ENGINE_URL, ARENA_API_URL]),
        (f"https://engine.battlesnake.com/games/{ID}/frames", [LEGACY_ENGINE_URL]),
        (ID, [ARENA_API_URL, LEGACY_ENGINE_URL]),
        (f"http://10.1.2.3:80/games/{ID}", ["http://10.1.2.3:80", "http://10.1.2.3:80/api"]),
        (f"http://localhost:3000/api/games/{ID}", ["http://localhost:3000/api"]),
        (f"http://127.0.0.1:8085/arena/game/{ID}",
         ["http://127.0.0.1:8085/arena", "http://127.0.0.1:8085/arena/api"]),
    ],
)  # fmt: skip
def test_addresses(source: str, expected: list[str]) -> None:
    assert find_engines(source) == (expected, ID)


@pytest.mark.parametrize(
    "source",
    ["game.jsonl", "https://arena.battlesnake.com/games", "https://board.battlesnake.com/",
     "ftp://arena.battlesnake.com/games/x", "http://[/games/x", "file:///games/x",
     "https://board.battlesnake.com/?game=../x", "https://board.battlesnake.com/?game=..",
     "https://board.battlesnake.com/?game=%2Ftmp%2Fx", "https://board.battlesnake.com/?game=x%00",
     f"https://board.battlesnake.com/?engine=https://engine.battlesnake.com&game=../{ID}",
     f"https://board.battlesnake.com/?game=x/../{ID}"],
)  # fmt: skip
def test_what_is_no_address(source: str) -> None:
    with pytest.raises(ReplayError, match=r"file.* game"):
        find_engines(source)


@pytest.fixture(scope="module")
def platform() -> Platform:
    """All modes and board sizes, rules from each source, eliminated snakes listed or not."""
    return Platform(
        *(
            Kept(played(mode, size, snakes, seed), mode, seed % 4 > 0, SAYS[seed % 3],
                 "500" if seed % 2 else "timeout")
            for seed, (mode, size, snakes) in enumerate(GAMES)
        )
    )  # fmt: skip


@contextlib.contextmanager
def standing_in(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Replace the arena by a platform, and the old engine by a server without games."""
    with web_site.serving(platform.app) as address:
        monkeypatch.setattr(game_urls, "ARENA_API_URL", f"{address}/api")
        monkeypatch.setattr(game_urls, "LEGACY_ENGINE_URL", f"{address}/old")
        yield address


@pytest.fixture
def site(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv(game_fetcher.TOKEN_VARIABLE, TOKEN)
    with standing_in(platform, monkeypatch) as address:
        yield address


def fetch(source: str, **options: Any) -> Replay:
    return game_fetcher.fetch(source, REACH, **options)


REACH = AddressPolicy(frozenset({"loopback"}))


def test_every_game_is_the_game_that_was_played(site: str, platform: Platform) -> None:
    assert len(platform.games) == 25
    for game_id, kept in platform.games.items():
        found = Replay.fetch(f"{site}/games/{game_id}")
        assert (found.game.ruleset, found.game.id) == (kept.replay.game.ruleset, game_id)
        assert found.game.settings == kept.replay.game.settings
        for mine, theirs in zip(found.boards(), kept.replay.boards(), strict=True):
            assert mine.turn == theirs.turn
            assert sorted(mine.food) == sorted(theirs.food)
            assert sorted(mine.hazards) == sorted(theirs.hazards)
            for one, other in zip(mine.snakes, theirs.snakes, strict=True):
                assert (one.id, one.name, one.alive) == (other.id, other.name, other.alive)
                if kept.dead or one.alive:
                    assert (one.body, one.health) == (other.body, other.health)
                    assert one.eliminated_cause == other.eliminated_cause
        for turn, theirs_turn in zip(found.turns, kept.replay.turns, strict=True):
            for who in [snake for snake in turn.moves if snake not in turn.inferred]:
                assert turn.moves[who] == theirs_turn.moves[who]
            known = {who: time for who, time in theirs_turn.latency.items() if who in turn.latency}
            assert {**turn.latency, **known} == turn.latency
            assert turn.problems == {
                who: why for who, why in theirs_turn.problems.items() if who in turn.problems
            }
            if kept.dead:
                assert (turn.problems, turn.shouts) == (theirs_turn.problems, theirs_turn.shouts)
    told = {Replay.fetch(f"{site}/games/{game_id}").info["rules"] for game_id in platform.games}
    modes = {f"of mode {mode}" for mode, _, _ in GAMES}
    assert told == {"from its move requests", "inferred from its frames", *modes}


def test_the_next_engine_is_asked_where_the_first_has_no_such_game(
    site: str, platform: Platform
) -> None:
    game_id = next(iter(platform.games))
    assert fetch(f"https://play.battlesnake.com/game/{game_id}").game.id == game_id
    with pytest.raises(ReplayError, match="404"):
        fetch(ID)


@contextlib.contextmanager
def alone(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Platform, str]]:
    """Replace the arena by a platform with a single game; yield the platform and the game id."""
    platform = Platform(kept)
    with standing_in(platform, monkeypatch):
        yield platform, kept.replay.game.id


def test_rules_are_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = played("Standard", 7, 4, 1, least=1)
    short.turns = short.turns[:5]
    cut = Kept(Replay(short.first, short.turns), "Tag", says=())
    with alone(cut, monkeypatch) as (_, game_id):
        with pytest.raises(ReplayError, match=r"5 turns.* standard.* royale"):
            fetch(game_id)
        assert fetch(game_id, ruleset="royale").game.ruleset == "royale"
        with pytest.raises(ReplayError, match="'constrictor'"):
            fetch(game_id, ruleset="constrictor")
        cut.mode, cut.says = "Constrictor", ("details",)
        monkeypatch.setenv(game_fetcher.TOKEN_VARIABLE, TOKEN)
        with pytest.raises(ReplayError, match="'constrictor'"):
            fetch(game_id)
        for options, words in [
            ({"ruleset": "standrad"}, "standrad.* standard"),
            ({"ruleset": "standard", "board_map": "snail"}, "'snail'"),
            ({"board_map": "snail_mode"}, "--map .*--ruleset"),
        ]:
            with pytest.raises(ReplayError, match=words):
                fetch(game_id, **options)
    path = tmp_path / "own.jsonl"
    short.save(path)
    assert game_analyze_command.main([str(path), "--ruleset", "solo"]) == 2


def test_a_game_that_is_played_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Kept(played("Standard", 7, 4, 3), "Standard", status="running", shown=3)
    monkeypatch.setattr(game_fetcher, "_GAME_POLL_INTERVAL_S", 0.01)
    with alone(kept, monkeypatch) as (_, game_id):
        with pytest.raises(ReplayError, match="progress"):
            fetch(game_id)
        assert fetch(game_id, wait=True).deaths() == kept.replay.deaths()
    assert game_id in capsys.readouterr().err


def test_a_game_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with alone(Kept(played("Standard", 7, 4, 3), "Standard"), monkeypatch) as (_, game_id):
        path = game_fetcher.resolve_game(game_id, REACH, tmp_path)
    assert path == tmp_path / f"{game_id}.jsonl.gz"
    assert game_fetcher.resolve_game(game_id, REACH, tmp_path) == path


def test_an_id_names_no_file_outside_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = tmp_path / "replays"
    shown.mkdir()
    (tmp_path / "secret.jsonl.gz").touch()
    client = replay_pages.create_app([shown], address_policy=REACH).test_client()
    with alone(Kept(played("Standard", 7, 4, 3), "Standard"), monkeypatch) as (platform, game_id):
        answers = []
        for name in (f"../games/{game_id}", "../secret", f"{tmp_path}/secret", "../missing"):
            source = f"https://board.battlesnake.com/?game={name}"
            sent = client.post("/fetch", json={"game": source})
            answers.append((sent.status_code, sent.get_json()["error"].split(" is neither ")[1]))
            with pytest.raises(ReplayError, match=r"file.* game"):
                game_fetcher.resolve_game(source, REACH, shown)
        assert len(set(answers)) == 1, "existing and missing files get the same response"
        assert answers[0][0] == 400
        assert not platform.asked
    assert [path.name for path in tmp_path.rglob("*.gz")] == ["secret.jsonl.gz"]


def test_a_failed_game_is_read_as_far_as_it_went(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(played("Royale", 11, 3, 4), "Royale", status="failed", shown=20)
    with alone(kept, monkeypatch) as (_, game_id):
        found = fetch(game_id)
        assert (len(found.turns), found.last.is_over()) == (19, False)
        kept.shown = 0
        with pytest.raises(ReplayError, match="frames"):
            fetch(game_id)


def circling(turns: int) -> Replay:
    """Play one snake on a cycle of 100 cells, with occasional food in front of it."""
    rows = [[(x, y) for x in range(1, 10)][:: 1 if y % 2 else -1] for y in range(9, -1, -1)]
    cells = [(0, y) for y in range(10)] + [cell for row in rows for cell in row]
    board = Board.new(11, 11, 1, game=Game("solo", id=ID))
    board.snakes[0].body = [cells[3], cells[2], cells[1]]
    replay = Replay(board)
    replay.first.food = []
    replay = Replay(replay.first)
    ways = {offset: move for move, offset in OFFSETS.items()}
    for turn in range(turns):
        (x, y), (to_x, to_y) = cells[(turn + 3) % 100], cells[(turn + 4) % 100]
        move = ways[(to_x - x, to_y - y)]
        after = replay.last
        after.advance({"snake_0": move})
        after.food = [cells[(turn + 5) % 100]] if turn % 90 == 80 else []
        replay.append({"snake_0": move}, after=after, latency={"snake_0": 40.0})
    return replay


def test_a_game_of_5000_turns_comes_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(circling(5000), "Solo")
    with alone(kept, monkeypatch) as (platform, game_id):
        found = fetch(game_id)
    assert len(found.turns) == 5000
    assert found.last.snakes[0].body == kept.replay.last.snakes[0].body
    assert sum("/frames" in asked for asked in platform.asked) == 51


HUGE = "[" + "[]," * 1_600_000 + "[]]"
CROWD = ",".join(
    f'{{"ID": "{number}", "Health": 1, "Body": [{{"X": 1, "Y": 1}}]}}' for number in range(99)
)


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        (HUGE, "3000000 values"),
        ("[" * 200_000, "JSON"),
        ('[{"Turn": 0, "Snakes": [{"ID": "a", "Health": 1, "Body": []}]}]', r"body.* 'a'"),
        ('[{"Turn": 0, "Food": [{"X": 9999, "Y": 0}]}]', "1000 cells"),
        ('[{"Turn": 0, "Snakes": [{"ID": "a", "Health": 1e9, "Body": [{"X": 1, "Y": 1}]}]}]',
         "health"),
        ('[{"Turn": 0}, {"Turn": 2}]', r"turn.* 1.* 2"),
        (f'[{{"Turn": {"9" * 5000}}}]', "JSON"),
        ('"x"', "frames"),
        (f'[{{"Turn": 0, "Snakes": [{CROWD}]}}]', r"99.* 64"),
        ('[{"Turn": 0, "Snakes": 7}]', "snakes"),
    ],
    ids=range(10),
)  # fmt: skip
def test_a_hostile_answer_is_refused(
    frames: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = Flask("hostile")
    app.add_url_rule("/api/games/<i>", "game", lambda i: {"Game": {"Width": 11, "Height": 11}})
    body = f'{{"count": 1, "frames": {frames}}}'
    app.add_url_rule("/api/games/<i>/frames", "frames", lambda i: body)
    with web_site.serving(app) as site, pytest.raises(ReplayError, match=words):
        fetch(f"{site}/api/games/x")


@pytest.mark.parametrize("page", [30, 35, None])
def test_an_engine_chooses_the_size_of_its_pages(page: int | None) -> None:
    app = Flask("pages")
    app.add_url_rule("/api/games/<i>", "game", lambda i: {"Game": {"Width": 11, "Height": 11}})
    game = Kept(circling(69), "Solo").frames

    def frames(i: str) -> Any:
        first = request.args.get("offset", 0, int)
        return {"frames": game[first : first + page] if page else game}

    app.add_url_rule("/api/games/<i>/frames", "frames", frames)
    with web_site.serving(app) as site:
        assert fetch(f"{site}/api/games/x", ruleset="solo").last.turn == 69


def test_an_endless_game_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    app = Flask("endless")
    app.add_url_rule("/api/games/<i>", "game", lambda i: {"Game": {"Width": 5, "Height": 5}})

    def frames(i: str) -> Any:
        first = request.args.get("offset", 0, int)
        return {"frames": [{"Turn": turn} for turn in range(first, first + 100)]}

    app.add_url_rule("/api/games/<i>/frames", "frames", frames)
    monkeypatch.setattr(limits, "MAX_REPLAY_TURNS", 500)
    with web_site.serving(app) as site, pytest.raises(ReplayError, match="500 turns"):
        fetch(f"{site}/api/games/x")


def test_a_replay_of_the_blackout_site_is_fetched() -> None:
    board = Board.new(11, 11, ["7", "8"], game=Game(seed=7))
    frames = []
    for turn in range(4):
        snakes = [
            {
                "id": s.id,
                "name": s.id,
                "health": s.health,
                "body": [{"x": x, "y": y} for x, y in s.body],
            }
            for s in board.living
        ]
        food = [{"x": x, "y": y} for x, y in board.food]
        frames.append({"turn": turn, "width": 11, "height": 11, "food": food, "snakes": snakes})
        board.step({s.id: board.safe_moves(s.id)[0] for s in board.living})
    app = Flask("blackout")
    app.add_url_rule("/api/replay/12", "replay", lambda: {"moves": frames})
    with web_site.serving(app) as site:
        found = fetch(f"{site}/api/replay/12")
        assert len(found.turns) == 3
        assert found.game.settings.view_radius == 5
        with pytest.raises(ReplayError, match="status 404"):
            fetch(f"{site}/api/replay/13")


def test_the_token_goes_to_the_arena_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(game_fetcher.TOKEN_VARIABLE, TOKEN)
    header = {"Authorization": f"Bearer {TOKEN}"}
    assert game_fetcher._token_header(f"{ARENA_API_URL}/games/x") == header
    for address in (
        f"{LEGACY_ENGINE_URL}/games/x",
        "https://arena.battlesnake.com/apikeys",
        "http://a.b/api/",
    ):
        assert game_fetcher._token_header(address) == {}


@pytest.mark.usefixtures("site")
def test_pages_fetch_a_game(platform: Platform, tmp_path: Path) -> None:
    game_id = next(iter(platform.games))
    client = replay_pages.create_app([tmp_path], address_policy=REACH).test_client()
    assert "data-fetch" in client.get("/").text
    answer = client.post("/fetch", json={"game": game_id})
    assert answer.get_json()["page"] == f"./replay/{game_id}.jsonl.gz"
    assert client.get(f"/replay/{game_id}.jsonl.gz").status_code == 200
    for source in (ID, "x", str(tmp_path), ""):
        assert client.post("/fetch", json={"game": source}).status_code == 400
    assert client.post("/fetch", data={"game": game_id}).status_code == 400
    app = replay_pages.create_app([tmp_path])
    app.config["TOKEN"] = "secret"
    closed = app.test_client()
    assert "data-fetch" not in closed.get("/").text
    assert closed.post("/fetch", json={"game": game_id}).status_code == 403
    near = replay_pages.create_app([tmp_path]).test_client()
    assert "loopback address" in near.post("/fetch", json={"game": ID}).get_json()["error"]


@pytest.mark.usefixtures("site")
def test_commands_fetch_a_game(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mistakes, "ROLLOUT_ROUNDS", (2,))
    game_id = next(iter(platform.games))
    page = f"https://arena.battlesnake.com/games/{game_id}"
    near = ["--allow-networks", "loopback"]
    assert game_analyze_command.main([page, "--nodes", "100", *near]) == 0
    assert (tmp_path / f"{game_id}.jsonl.gz").exists()
    shown: list[str] = []

    def show(app: Flask, what: str, options: argparse.Namespace, path: str) -> int:
        shown.append(path)
        return 0

    monkeypatch.setattr(pages, "serve", show)
    assert game_watch_command.main([page, "--port", "0", *near]) == 0
    assert shown == [f"replay/{game_id}.jsonl.gz"]


@pytest.mark.usefixtures("site")
def test_the_coach_reads_the_last_games_of_a_ladder_snake(
    platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    kept = next(kept for kept in platform.games.values() if kept.replay.deaths())
    name = kept.replay.last.snake(kept.replay.deaths()[0][1]).name
    monkeypatch.setattr(platform, "ladder", {ID: name})
    near = ["--allow-networks", "loopback"]
    began = time.process_time()
    assert game_coach_command.main(["--snake", name, "--last", "20", *near]) in (0, 1)
    assert time.process_time() - began < 60
    out = capsys.readouterr().out
    assert out.startswith(f"{name}: 1 game, 1 lost\n")
    assert "500 ms" in out
    late = sum(name in {kept.replay.first.snake(who).name for who in turn.problems}
               for turn in kept.replay.turns)  # fmt: skip
    assert f"late moves: {late}" in out
    assert "total loss" in out
    monkeypatch.delenv(game_fetcher.TOKEN_VARIABLE)
    assert game_coach_command.main(["--snake", name, "--last", "20", *near]) == 2
    assert "set BATTLESNAKE_TOKEN" in capsys.readouterr().err
    assert game_coach_command.main(["--snake", "nobody", "--last", "2", *near]) == 2
    assert game_coach_command.main(["--last", "2"]) == 2
    page = f"https://arena.battlesnake.com/games/{kept.replay.game.id}"
    began = time.process_time()
    assert game_coach_command.main([page, *near]) in (0, 1)
    assert time.process_time() - began < 60
