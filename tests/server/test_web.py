"""Tests of the arena's pages without a browser: content, validation and access control."""

from __future__ import annotations

import errno
import itertools
import json
import re
import signal
import subprocess
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event
from sqlalchemy.orm import selectinload

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays import engine_frames
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Settings
from battlesnake_heuristics.analysis import scenarios
from battlesnake_server.arena.database import StoredGame, Tournament
from battlesnake_server.arena.results import compute_standings
from battlesnake_server.arena.tournament import (
    GameResult,
    play_scheduled_games,
    replay_path,
)
from battlesnake_server.http.page_server import MAX_REQUEST_BODY_BYTES
from battlesnake_server.web import game_manager, keyboard_player
from battlesnake_server.web.games_page import GAMES_PER_PAGE
from battlesnake_server.web.live_games import MAX_FINISHED_GAMES, LiveGames
from battlesnake_server.web.position_editor import EXAMPLE_BOARD
from tests.json_strategies import JUNK, places, replaced
from tests.processes import COMMAND, below, fetch, free_port, running, until, until_gone
from tests.server import misbehaving_snakes, web_site
from tests.server.test_database import a_game
from tests.server.web_site import Pages


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return web_site.make(tmp_path_factory.mktemp("arena"))


@pytest.fixture
def client(pages: Pages) -> FlaskClient:
    return pages.client


def rows(pages: Pages) -> list[StoredGame]:
    with pages.database.session() as session:
        every = session.query(StoredGame).options(selectinload(StoredGame.seats))
        return every.order_by(StoredGame.id).all()


def replay_of(game: StoredGame | GameResult) -> Path:
    """Return the replay file of a stored game."""
    assert game.replay is not None
    return Path(game.replay)


def wait_until_over(client: FlaskClient, game_id: str) -> dict[str, Any]:
    until(lambda: client.get(f"/game/{game_id}/data").get_json()["over"])
    game: dict[str, Any] = client.get(f"/game/{game_id}/data").get_json()
    return game


def refusal(client: FlaskClient, address: str, sent: object) -> str:
    """Send JSON that must be refused with status 400; return the error message."""
    answer = client.post(address, json=sent)
    assert answer.status_code == 400
    return str(answer.get_json()["error"])


def test_leaderboard_shows_stored_results(pages: Pages, client: FlaskClient) -> None:
    page = client.get("/").text
    lines = compute_standings(rows(pages))
    found = re.findall(r'<th scope="row"><a[^>]*>([^<]*)</a>', page)
    assert found == [line.snake.replace("<", "&lt;").replace(">", "&gt;") for line in lines]
    for line in lines:
        assert f"<b>{line.rating.mu:.1f}</b>" in page
        half = (line.rating.ci_high - line.rating.ci_low) / 2
        assert f"± {half:.1f}" in page
    assert "NAME<b>" not in page
    assert json.loads(client.get("/leaderboard.json").data)[0]["snake"] == lines[0].snake
    bars = re.findall(r'class="endings".*?</svg>', page, re.DOTALL)
    for line, bar in zip(lines, bars, strict=True):
        widths = re.findall(r'class="end-([a-z-]+)" x="\d+" width="(\d+)"', bar)
        assert {cause: int(width) for cause, width in widths} == line.endings


def test_leaderboard_of_one_tournament(client: FlaskClient) -> None:
    assert re.search(r"hungry, cautious, NAME&lt;b&gt;=straight .*7x7", client.get("/").text)
    assert client.get("/?tournament=99").text.count('scope="row"') == 0
    assert client.get("/?tournament=").text.count('scope="row"') == 3
    for unknown in ("99", "x"):
        assert client.get(f"/leaderboard.json?tournament={unknown}").get_json() == []


def test_leaderboard_follows_inserted_and_deleted_games(tmp_path: Path) -> None:
    pages = web_site.make(tmp_path, games=2)
    first = pages.client.get("/leaderboard.json?tournament=1").get_json()
    assert sum(line["games"] for line in first) == 2 * 6
    web_site.play(pages, games=4)
    whole = compute_standings(rows(pages))
    told = pages.client.get("/leaderboard.json?tournament=1").get_json()
    assert told == json.loads(json.dumps([line.to_dict() for line in whole]))
    assert sum(line["games"] for line in told) == 2 * 12
    with pages.database.session() as session:
        session.delete(session.get_one(StoredGame, 1))
        session.commit()
    told = pages.client.get("/leaderboard.json?tournament=1").get_json()
    lines = compute_standings(rows(pages))
    assert told == json.loads(json.dumps([line.to_dict() for line in lines]))


def test_snake_page_shows_results(pages: Pages, client: FlaskClient) -> None:
    games = [game for game in rows(pages) if any(s.snake == "hungry" for s in game.seats)]
    page = client.get("/snake/hungry").text
    (chart,) = re.findall(r"data-chart='([^']*)'", page)
    ((_, _, x, y, low, high),) = json.loads(chart)["curves"]
    assert x == list(range(1, len(games) + 1))
    (line,) = (line for line in compute_standings(rows(pages)) if line.snake == "hungry")
    assert f"<b>{line.rating.mu:.1f}</b>" in page
    rating = (line.rating.mu, line.rating.ci_low, line.rating.ci_high)
    assert (y[-1], low[-1], high[-1]) == pytest.approx(rating, rel=1e-5)
    ahead = dict.fromkeys(("cautious", "NAME<b>"), 0)
    for game in games:
        (other,) = (seat for seat in game.seats if seat.snake != "hungry")
        lasts = {seat.snake: seat.eliminated_on if seat.cause else 10**6 for seat in game.seats}
        ahead[other.snake] += lasts["hungry"] > lasts[other.snake]
    for name, count in ahead.items():
        shown = name.replace("<", "&lt;").replace(">", "&gt;")
        assert re.search(rf'>{shown}</a></th>\s*<td class="number">{count}</td>', page)
    openings = sum(int(n) for n in re.findall(r'[↑→↓←]+</th><td class="number">(\d+)<', page))
    assert openings == len(games)
    assert "↑" in page
    assert client.get("/snake/NAME<b>").status_code == 200
    assert client.get("/snake/nobody").status_code == 404
    assert client.get("/snake/hungry?tournament=99").status_code == 404


def test_games_are_filtered(pages: Pages, client: FlaskClient) -> None:
    everything = rows(pages)

    def shown(query: str) -> int:
        page = client.get(f"/games?{query}").text
        (total,) = re.findall(r'<span class="pale">(\d+)', page)
        assert page.count('class="game"') == int(total)
        return int(total)

    today = datetime.now(UTC).date()
    assert shown(f"from={today - timedelta(days=1)}&to={today + timedelta(days=1)}") == len(
        everything
    )
    assert shown(f"from={today + timedelta(days=2)}") == 0
    assert shown(f"to={today - timedelta(days=2)}") == 0
    seats = [(game, seat) for game in everything for seat in game.seats]
    for snake in ("hungry", ""):
        mine = [(game, seat) for game, seat in seats if not snake or seat.snake == snake]
        assert shown(f"snake={snake}") == len({game.id for game, _ in mine})
        won = {game.id for game, seat in mine if seat.won}
        assert shown(f"snake={snake}&ending=won") == len(won)
        drawn = {game.id for game, _ in mine if game.is_draw}
        assert shown(f"snake={snake}&ending=drawn") == len(drawn)
        for cause in {seat.cause for _, seat in seats} - {""}:
            hit = {game.id for game, seat in mine if seat.cause == cause}
            assert shown(f"snake={snake}&ending={cause}") == len(hit)
    page = client.get("/games?from=tomorrow&ending=eaten").text
    assert re.search(r"from.* 2026-03-02", page)
    page = client.get("/games").text
    assert [game.uuid for game in everything][::-1] == re.findall(r'href="./game/([^"]+)"', page)
    assert 'href="./game/' not in client.get("/games?snake=nobody").text
    assert client.get("/games?page=999").status_code == 200


def test_lists_of_many_games_are_paged_and_cached(tmp_path: Path) -> None:
    pages = web_site.make(tmp_path, games=0)
    with pages.database.session() as session:
        session.add(Tournament(id=1, settings={"snakes": ["made", "up"]}))
        session.add_all([a_game(number, 1) for number in range(1_500)])
        session.commit()
    reads: list[str] = []
    engine = pages.database.session().get_bind()
    event.listen(engine, "before_cursor_execute", lambda *told: reads.append(str(told[2:4])))
    first = pages.client.get("/games?snake=ä0&tournament=1").text
    assert first.count('class="game"') == GAMES_PER_PAGE
    assert not any("latencies" in read for read in reads)
    pages.client.get("/leaderboard.json?tournament=1")
    reads.clear()
    pages.client.get("/leaderboard.json?tournament=1")
    assert len(reads) < 5


HUGE = "1" + 30 * "0"


@pytest.mark.parametrize("number", [HUGE, "-" + HUGE, "9" * 5000, "1e400", "nan", "%00", "%ff", ""])
def test_huge_numbers_in_addresses(pages: Pages, client: FlaskClient, number: str) -> None:
    game = rows(pages)[0].uuid
    for address in (
        "/?tournament=", "/leaderboard.json?tournament=", "/games?tournament=", "/games?page=",
        "/games?snake=", f"/game/{game}/data?since=", f"/games/{game}/frames?offset=",
        f"/games/{game}/frames?limit=", f"/lab?game={game}&turn=", f"/game/{game}/turn/",
    ):  # fmt: skip
        ending = "/text" if address.endswith("/turn/") else ""
        assert client.get(address + number + ending).status_code in (200, 404), address
    assert client.get(f"/?tournament={HUGE}").status_code == 200


def test_game_data_equals_replay(pages: Pages, client: FlaskClient) -> None:
    row = rows(pages)[0]
    assert row.replay is not None
    replay = Replay.load(replay_of(row))
    game = client.get(f"/game/{row.uuid}/data").get_json()
    assert game["over"] is True
    assert [frame["turn"] for frame in game["frames"]] == list(range(len(replay.turns) + 1))
    assert game["deaths"] == [
        {"turn": turn, "id": snake, "cause": cause} for turn, snake, cause in replay.deaths()
    ]
    moves = [snake["next"]["move"] for snake in game["frames"][0]["snakes"]]
    assert moves == list(replay.turns[0].moves.values())
    assert game["frames"][0]["snakes"][0]["next"]["reasons"]
    rest = client.get(f"/game/{row.uuid}/data?since=3").get_json()
    assert (rest["from"], rest["frames"]) == (3, game["frames"][3:])
    assert Board.from_text(client.get(f"/game/{row.uuid}/turn/3/text").text) == replay.board(3)
    last = client.get(f"/game/{row.uuid}/last").get_json()
    assert last["frame"]["turn"] == len(replay.turns)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/game/nothing", "&#39;nothing&#39"),
        ("/game/nothing/data", "'nothing'"),
        ("/game/nothing/last", "nothing"),
        ("/game/..%2f..%2fetc%2fpasswd/data", ""),
        ("/game/{}/turn/9999/text", r"turn.* 0"),
        ("/game/{}/turn/0/json?you=x", "'x'"),
        ("/game/{}/turn/0/gif", ""),
        ("/lab?game=nothing", "nothing"),
        ("/lab?game={}&turn=9999", "turn"),
        ("/lab/shipped/9999", "9999"),
        ("/games/nothing", "nothing"),
        ("/games/nothing/frames", "nothing"),
        ("/nowhere", ""),
    ],
)
def test_unknown_addresses(pages: Pages, client: FlaskClient, address: str, words: str) -> None:
    answer = client.get(address.format(rows(pages)[0].uuid))
    assert answer.status_code == 404
    assert re.search(words, answer.get_json()["error"] if answer.is_json else answer.text)


def test_missing_and_damaged_replays(tmp_path: Path) -> None:
    pages = web_site.make(tmp_path, games=1)
    gone, damaged, none = (game.uuid for game in rows(pages))
    with pages.database.session() as session:
        kept = {game.uuid: game for game in session.query(StoredGame)}
        replay_of(kept[gone]).unlink()
        replay_of(kept[damaged]).write_text('{"replay": 1}\n')
        kept[none].replay = None
        session.commit()
    client = pages.client
    for game, status, words in [
        (gone, 404, "No such file"), (damaged, 422, "first.width"),
        (none, 404, "--replays"),
    ]:  # fmt: skip
        answer = client.get(f"/game/{game}/data")
        assert (answer.status_code, words in answer.get_json()["error"]) == (status, True)
        assert client.get(f"/game/{game}").status_code == 404
    assert "no replay" in client.get("/games").text


def test_missing_package_files_are_logged(
    empty: Pages, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scenarios, "BUILTIN_SCENARIOS", [Path("missing.txt")])
    assert empty.client.get("/lab/shipped/0").status_code == 500
    assert "missing.txt" in caplog.text


def test_live_game_grows(empty: Pages) -> None:
    client, broadcast = empty.client, empty.broadcast
    board = web_site.announce(broadcast, "on", 2)
    (card,) = client.get("/live.json").get_json()
    assert client.get("/leaderboard.json?live").get_json() == {"live": 1, "snakes": []}
    assert re.search(r"<div data-live[^>]*>\s*<p><a[^>]*>1 game live", client.get("/").text)
    assert card["page"] == "./game/on"
    assert card["frame"]["turn"] == 2
    game = client.get("/game/on/data").get_json()
    assert (game["over"], len(game["frames"])) == (False, 3)
    assert game["frames"][1]["snakes"][0]["next"]["move"] == "down"
    assert game["frames"][2]["snakes"][0]["next"] is None
    assert game["frames"][2]["snakes"][0]["shout"] == "hey"
    began = time.monotonic()
    timer = threading.Timer(0.3, broadcast.publish_event, ("on", None))
    timer.start()
    rest = client.get("/game/on/data?since=2&wait").get_json()
    assert time.monotonic() - began > 0.2, "the response waited for a new frame"
    assert (rest["over"], rest["from"], len(rest["frames"])) == (True, 2, 1)
    assert rest["frames"][0]["snakes"][0]["body"] == [list(c) for c in board.snakes[0].body]
    assert client.get("/live.json").get_json() == []
    timer.join()


def test_broadcast_keeps_only_recent_games() -> None:
    broadcast = LiveGames()
    for number in range(MAX_FINISHED_GAMES + 5):
        web_site.announce(broadcast, str(number), 1, end=number != 0)
    assert broadcast.find("0") is not None, "it is still on"
    assert broadcast.find("1") is None
    assert broadcast.find(str(MAX_FINISHED_GAMES + 4)) is not None
    broadcast.publish_event("unknown", None)


def test_tournament_processes_announce_every_turn(tmp_path: Path) -> None:
    broadcast = LiveGames()
    results = list(
        play_scheduled_games(
            web_site.SETUP,
            web_site.SETUP.missing_games(1),
            2,
            tmp_path,
            broadcast.publish_event,
        )
    )
    assert len(results) == 3
    for result in results:
        timeline = broadcast.find(result.uuid)
        assert timeline is not None
        assert timeline.over
        assert list(timeline.replay.boards()) == list(Replay.load(replay_of(result)).boards())


GAME_REQUEST = {"snakes": ["hungry", "hungry"], "width": 7, "height": 7, "timeout": 2000, "seed": 3}


def begin(pages: Pages, visitor: str = "127.0.0.1", **change: Any) -> tuple[int, dict[str, Any]]:
    """Start a long game of a keyboard player from a visitor's address."""
    game_request = {
        "snakes": ["hungry"], "keyboard_player": "Ann", "width": 25, "height": 25, **change,
    }  # fmt: skip
    sent = pages.client.post("/play", json=game_request, environ_base={"REMOTE_ADDR": visitor})
    return sent.status_code, sent.get_json()


def play(pages: Pages, **change: Any) -> dict[str, Any]:
    """Start a game, and return the game after its end."""
    return wait_until_over(pages.client, begin(pages, **change)[1]["game"])


def test_visitors_start_games_that_are_stored(empty: Pages) -> None:
    client = empty.client
    answer = client.post("/play", json={**GAME_REQUEST, "snakes": ["hungry"] * 3})
    assert answer.status_code == 201
    assert answer.get_json()["page"] == f"./game/{answer.get_json()['game']}"
    game = wait_until_over(client, answer.get_json()["game"])
    assert [snake["name"] for snake in game["snakes"]] == ["hungry", "hungry (2)", "hungry (3)"]
    (row,) = rows(empty)
    assert (row.uuid, row.seed, row.turns) == (game["id"], 3, len(game["frames"]) - 1)
    assert Replay.load(replay_of(row)).last.turn == row.turns
    assert client.get("/").text.count('scope="row"') == 3
    # The second game finds the row of the first.
    assert client.post("/play", json=GAME_REQUEST).status_code == 201
    until(lambda: len(rows(empty)) == 2)
    assert [row.number for row in rows(empty)] == [0, 1]
    assert len({row.tournament_id for row in rows(empty)}) == 1


def test_leaderboard_prefers_tournaments_over_visitors_games(tmp_path: Path) -> None:
    pages = web_site.make(tmp_path, games=1)
    play(pages, **GAME_REQUEST, keyboard_player=None)
    until(lambda: len(rows(pages)) == 4)
    page = pages.client.get("/").text
    assert page.count('scope="row"') == 3, "the tournament's snakes"


def test_keyboard_player_steers(empty: Pages) -> None:
    client = empty.client
    _, begun = begin(empty, snakes=["straight"], width=11, height=11, timeout=2000, seed=3)
    game_id, key = begun["game"], begun["page"].partition("?key=")[2]
    assert f'data-key="{key}"' in client.get(begun["page"].lstrip(".")).text
    assert "data-key" not in client.get(f"/game/{game_id}?key=guess").text

    def press(move: str, with_key: str = key) -> tuple[int, dict[str, Any]]:
        sent = client.post(f"/game/{game_id}/press", json={"key": with_key, "move": move})
        return sent.status_code, sent.get_json()

    game = client.get(f"/game/{game_id}/data").get_json()
    assert (len(game["frames"]), game["snakes"][0]["name"]) == (1, "Ann")
    x, y = game["frames"][0]["snakes"][0]["body"][0]
    assert press("left", "guess")[0] == 403
    assert press("left")[0] == 200
    game = client.get(f"/game/{game_id}/data?since=0&wait").get_json()
    assert game["frames"][-1]["snakes"][0]["body"][0] == [x - 1, y]
    press("right")  # moves back into the own neck are ignored
    press("up")
    game = client.get(f"/game/{game_id}/data?since=1&wait").get_json()
    assert game["frames"][-1]["turn"] == 2
    assert game["frames"][-1]["snakes"][0]["body"][0] == [x - 1, y + 1]
    while not client.get(f"/game/{game_id}/data").get_json()["over"]:
        press("left")
        time.sleep(0.02)
    wait_until_over(client, game_id)
    assert press("left") == (200, {"over": True})


def test_the_turn_limit_ends_a_game_without_another_key(empty: Pages) -> None:
    _, begun = begin(empty, max_turns=1)
    key = begun["page"].partition("?key=")[2]
    empty.client.post(f"/game/{begun['game']}/press", json={"key": key, "move": "up"})
    assert wait_until_over(empty.client, begun["game"])["frames"][-1]["turn"] == 1


def test_keyboard_player_steers_alone_in_a_solo_game(empty: Pages) -> None:
    _, begun = begin(empty, snakes=["random"], ruleset="solo", seed=3)
    game_id, key = begun["game"], begun["page"].partition("?key=")[2]
    deaths: list[dict[str, Any]] = []
    for turn, move in enumerate(itertools.cycle(("up", "left", "down", "right")), 1):
        empty.client.post(f"/game/{game_id}/press", json={"key": key, "move": move})
        game = empty.client.get(f"/game/{game_id}/data?since={turn - 1}&wait").get_json()
        assert (game["over"], game["frames"][-1]["turn"]) == (False, turn)
        if deaths:
            break
        deaths = game["deaths"]
    empty.client.post(f"/game/{game_id}/stop", json={})


def test_game_with_turn_delay_does_not_wait_for_keys(empty: Pages) -> None:
    game = play(empty, snakes=[], turn_delay_ms=20, width=7, height=7)
    heads = [frame["snakes"][0]["body"][0] for frame in game["frames"]]
    assert [y for _, y in heads] == list(range(heads[0][1], 8)), "straight up into the wall"


def test_absent_keyboard_player_moves_straight_ahead(
    empty: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyboard_player, "_KEY_TIMEOUT_S", 0.05)
    game = play(empty, snakes=["straight"], width=7, height=7)
    assert game["deaths"][0]["cause"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"snakes": ["nobody"]}, r"snakes\[0\].* 'nobody'"),
        ({"snakes": ["hungry", {"a": 1}]}, r"snakes\[1\].* \{'a'.* 1\}"),
        ({"snakes": ["os.system"]}, r"snakes\[0\]"),
        ({"snakes": ["../policy.onnx"]}, r"snakes\[0\]"),
        ({"snakes": ["http://127.0.0.1:1/"]}, "--allow-visitor-urls"),
        ({"snakes": []}, r"snakes.* 1.* 8.* 0"),
        ({"snakes": ["hungry"] * 9}, r"snakes.* 1.* 8.* 9"),
        ({"snakes": "hungry"}, r"snakes.* 'hungry'"),
        ({"width": 1}, r"width.* 3.* 25.* 1"),
        ({"height": "11"}, r"height.* '11'"),
        ({"ruleset": "chess"}, r"ruleset.* standard"),
        ({"map": "atlantis"}, r"map.* standard"),
        ({"map": "arcade_maze"}, "arcade_maze"),
        ({"timeout": 10**9}, r"timeout.* 20.* 5000"),
        ({"max_turns": 10**9}, r"max_turns.* 1.* 2000.* 1000000000"),
        ({"turn_delay_ms": -1}, r"turn_delay_ms.* 0.* 5000.* -1"),
        ({"keyboard_player": ""}, r"keyboard_player.* 1.* 24.* ''"),
        ({"keyboard_player": 7}, r"keyboard_player.* 1.* 24.* 7"),
        ({"keyboard_player": "minimax"}, r"keyboard_player.* 'minimax'"),
        ({"seed": 0}, r"seed.* 1"),
    ],
)
def test_invalid_game_requests(empty: Pages, change: dict[str, Any], words: str) -> None:
    for address in ("/play", "/play/preview"):
        assert re.search(words, refusal(empty.client, address, {**GAME_REQUEST, **change}))
    assert empty.client.get("/live.json").get_json() == []


@pytest.mark.parametrize(
    "address", ["/play", "/lab/ask", "/lab/read", "/lab/scenario", "/game/x/press"]
)
def test_only_json_objects_are_accepted(empty: Pages, address: str) -> None:
    client = empty.client
    requests: list[tuple[dict[str, Any], str]] = [
        ({"data": "{}"}, "application/json"),
        ({"data": "{", "content_type": "application/json"}, "JSON"),
        ({"json": [1]}, "list"),
        ({"data": "[" * 10**5, "content_type": "application/json"}, "JSON"),
        ({"data": b"\xff", "content_type": "application/json"}, "JSON"),
    ]
    for sent, words in requests:
        answer = client.post(address, **sent)
        assert (answer.status_code, words in answer.get_json()["error"]) == (400, True)
    large = client.post(
        address, data=b" " * (MAX_REQUEST_BODY_BYTES + 1), content_type="application/json"
    )
    assert large.status_code in (400, 413)


def test_concurrent_games_are_limited(empty: Pages) -> None:
    answers = [begin(empty, f"192.0.2.{i // game_manager.MAX_GAMES_PER_VISITOR}") for i in range(7)]
    assert [status for status, _ in answers] == [201] * game_manager.MAX_GAMES + [503]
    assert answers[-1][1]["error"].startswith(f"{game_manager.MAX_GAMES} games")
    stop(empty, answers[0][1]["game"])
    status, sent = begin(empty, "192.0.2.1")
    assert status == 503
    assert sent["error"].startswith(f"{game_manager.MAX_GAMES_PER_VISITOR} ")
    assert begin(empty, "192.0.2.9")[0] == 201
    for game_id, _ in empty.broadcast.live_games():
        stop(empty, game_id)


def stop(pages: Pages, game_id: str) -> dict[str, Any]:
    """Stop a game and wait until it is over."""
    assert pages.client.post(f"/game/{game_id}/stop", json={}).get_json() == {"stopped": True}
    return wait_until_over(pages.client, game_id)


@pytest.mark.parametrize(
    "game_request",
    [
        {},
        {"turn_delay_ms": 5000},
        {"keyboard_player": None, "snakes": ["cautious"] * 2, "timeout": 5000},
    ],
)
def test_stop_game(empty: Pages, game_request: dict[str, Any]) -> None:
    game_id = begin(empty, **game_request)[1]["game"]
    assert 'id="stop"' in empty.client.get(f"/game/{game_id}").text
    game = stop(empty, game_id)
    assert len(game["frames"]) < game_manager.DEFAULT_PAGE_TURNS
    assert not game["deaths"], "the game was stopped before an elimination"
    assert 'id="stop"' not in empty.client.get(f"/game/{game_id}").text
    assert empty.client.post(f"/game/{game_id}/stop", json={}).get_json() == {"stopped": False}
    assert rows(empty) == [], "stopped games are not stored"


SHORT_GAME: dict[str, Any] = {
    "keyboard_player": None, "snakes": ["hungry", "cautious"], "max_turns": 3, "timeout": 5000,
}  # fmt: skip


def test_a_game_whose_number_another_server_took_is_stored_under_the_next(
    empty: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(directory: Path, number: int, game_id: str) -> Path:
        if number < 3:
            with empty.database.session() as session:
                tournament = Tournament.find(session, game_manager.VISITOR_TOURNAMENT)
                if tournament is None:
                    return replay_path(directory, number, game_id)
                session.add(
                    StoredGame(tournament_id=tournament.id, number=number, uuid=f"other-{number}",
                               seed=1, turns=1, finished=True, seats=[])
                )  # fmt: skip
                session.commit()
        return replay_path(directory, number, game_id)

    play(empty, **SHORT_GAME)  # creates the tournament
    monkeypatch.setattr("battlesnake_server.web.game_manager.replay_path", taken)
    game = play(empty, **SHORT_GAME)
    assert game["problem"] == ""
    stored = rows(empty)
    assert [row.number for row in stored] == [0, 1, 2, 3]
    assert stored[-1].replay is not None
    replays = Path(stored[-1].replay).parent
    assert sorted(path.name[:10] for path in replays.iterdir()) == ["game-00000", "game-00003"]


def test_a_game_that_cannot_be_stored_says_so_on_its_page(
    empty: Pages, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Replay, "save", full)
    game = play(empty, **SHORT_GAME)
    assert game["problem"].endswith(": No space left on device")
    assert rows(empty) == []


def test_maximum_turns_and_duration(empty: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(play(empty, **SHORT_GAME)["frames"]) == 4
    monkeypatch.setattr(game_manager, "_MAX_GAME_S", -1)
    assert len(play(empty, **SHORT_GAME)["frames"]) == 1


def test_extra_snakes_and_allowed_urls_play(
    tmp_path: Path, policy_file: Path, cautious: str
) -> None:
    pages = web_site.make(
        tmp_path, f"mine={policy_file}", f"far={cautious}", games=0, allow_urls=True
    )
    assert '<option value="mine">' in pages.client.get("/play").text
    inner = misbehaving_snakes.Recorder()
    with misbehaving_snakes.snake(inner) as typed:
        mixed = {"snakes": ["mine", "far", typed], "width": 11, "height": 11, "timeout": 5000}
        game = play(pages, keyboard_player=None, seed=3, **mixed)
        asked = {"snake": typed, "board": Board.from_text(". . .\n. A .\n. ^ .\nA: you").to_api()}
        assert "address" in refusal(pages.client, "/lab/ask", asked)
    assert [snake["name"] for snake in game["snakes"]] == ["mine", "far", typed]
    (row,) = rows(pages)
    assert [set(seat.problems) for seat in row.seats] == [set(), set(), {"address"}]
    assert not inner.requests, "the operator named no address of this machine for visitors"
    for url in ("http://", "http://[", "http://h\n/", "http://" + "h" * 600):
        typed_request = {**GAME_REQUEST, "snakes": [url, "hungry"]}
        assert "URL" in refusal(pages.client, "/play", typed_request)


def request_of(board: Board) -> dict[str, Any]:
    return board.to_api(board.you_id or board.snakes[0].id)


def example() -> Board:
    return Board.from_text(EXAMPLE_BOARD)


def test_query_policies_and_urls(tmp_path: Path, policy_file: Path, cautious: str) -> None:
    invited = (f"mine={policy_file}", f"far={cautious}", f"gone=http://127.0.0.1:{free_port()}")
    pages = web_site.make(tmp_path, *invited, games=0)
    board = example()
    for snake in ("mine", "far"):
        sent = {"snake": snake, "milliseconds": 1000, "board": request_of(board)}
        answer = pages.client.post("/lab/ask", json=sent).get_json()
        assert answer["next"]["move"] in board.safe_moves("a")
        assert bool(answer["next"]["scores"]) == (snake == "mine")
    small = Board.from_text("A < .\n. . .\n. . B")
    sent = {"snake": "mine", "board": request_of(small)}
    assert re.search(r"mine.* 11x11.* 3x3", refusal(pages.client, "/lab/ask", sent))
    sent = {"snake": "gone", "milliseconds": 5000, "board": request_of(board)}
    assert re.match(r"gone .*\(connection\)$", refusal(pages.client, "/lab/ask", sent))


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return the example's request with the field at ``path`` set to ``value``."""
    way = tuple(int(key) if key.isdigit() else key for key in path.split("."))
    return {"snake": "cautious", "board": replaced(request_of(example()), way, value)}


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ({"snake": "nobody"}, r"snake.* 'nobody'"),
        ({"snake": "http://127.0.0.1:1"}, "--allow-visitor-urls"),
        ({"snake": "cautious"}, "board"),
        ({"snake": "cautious", "board": 7}, r"board.* JSON.* 7"),
        ({"snake": "cautious", "milliseconds": 10**7}, r"milliseconds.* 10.* 5000"),
        (changed("board.width", 60), r"board\.width.* 25.* 60"),
        (changed("board.height", 10**9), r"board\.height"),
        (changed("board.food", [{"x": 1}]), r"board\.food\[0\]\.y"),
        (changed("board.food", [{"x": 99, "y": 1}]), r"board\.food\[0\].* \(99, 1\)"),
        (changed("board.food", [{"x": 1, "y": 1}] * 2), r"board\.food\[0\].* \(1, 1\)"),
        (changed("board.hazards", [{"x": 1, "y": 1}] * 300), "255"),
        (changed("board.snakes.0.body.1", {"x": 9, "y": 9}), r"body\[1\]"),
        (changed("board.snakes.1.health", 0), r"board\.snakes\[1\]\.health.* 1.* 100.* 0"),
        (changed("board.snakes.1.id", "a"), r"board\.snakes\[1\]\.id"),
        (changed("you", None), "you"),
        (changed("game.ruleset.name", "chess"), r"game\.ruleset\.name.* standard"),
        (changed("board.snakes", [{"id": str(i), "health": 9, "body": [{"x": i % 11, "y": i // 11}]}
                                  for i in range(17)]), r"board\.snakes.* 16"),
    ],
)  # fmt: skip
def test_invalid_queries(client: FlaskClient, sent: dict[str, Any], words: str) -> None:
    assert re.search(words, refusal(client, "/lab/ask", sent))


SENT: dict[str, dict[str, Any]] = {
    "/lab/ask": {"snake": "tree", "milliseconds": 20, "board": request_of(example())},
    "/lab/scenario": {"name": "n", "note": "", "allowed": ["up"], "board": request_of(example())},
    "/play/preview": {
        **GAME_REQUEST,
        "keyboard_player": "Ann",
        "turn_delay_ms": 5,
        "map": "hz_rings",
    },
    "/lab/read": {"text": json.dumps(request_of(example()))},
}


@given(address=st.sampled_from(sorted(SENT)), data=st.data())
@settings(max_examples=150, suppress_health_check=list(HealthCheck))
def test_random_fields_never_cause_server_errors(
    pages: Pages, address: str, data: st.DataObject
) -> None:
    sent: Any = SENT[address]
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(sorted(places(sent), key=str)))
        sent = replaced(sent, place, data.draw(JUNK))
    text = json.dumps(sent)
    if data.draw(st.booleans()) and address == "/lab/read":
        text = json.dumps({"text": data.draw(st.text())})
    answer = pages.client.post(address, data=text, content_type="application/json")
    assert answer.status_code in (200, 400), answer.text
    if answer.status_code == 400:
        assert answer.get_json()["error"]


def test_scenario_round_trip(client: FlaskClient) -> None:
    board = example()
    facts = {"name": "corner", "note": "why", "allowed": ["left", "down"]}
    text = client.post("/lab/scenario", json={**facts, "board": request_of(board)}).text
    (scenario,) = scenarios.from_text(text)
    assert (scenario.name, scenario.note, scenario.allowed) == ("corner", "why", ("left", "down"))
    assert [(s.body, s.health) for s in scenario.board.snakes] == [
        (s.body, s.health) for s in board.snakes
    ]
    assert sorted(scenario.board.food) == sorted(board.food)
    assert scenario.board.you_id == "a"
    for form in (text, json.dumps(scenario.to_dict())):
        back = client.post("/lab/read", json={"text": form}).get_json()
        assert back["scenario"] == facts
        assert [s["body"] for s in back["frame"]["snakes"]] == [
            [list(cell) for cell in s.body] for s in board.snakes
        ]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"allowed": []}, r"allowed.* up, down, left, right"),
        ({"allowed": ["jump"]}, "got jump"),
        ({"name": "two\nlines"}, "name"),
        ({"note": 5}, r"note.* 5"),
        ({"board": {}}, "board"),
    ],
)
def test_invalid_scenarios(client: FlaskClient, change: dict[str, Any], words: str) -> None:
    assert re.search(words, refusal(client, "/lab/scenario", SENT["/lab/scenario"] | change))


def test_open_boards_requests_and_builtin_scenarios(client: FlaskClient) -> None:
    board = example()
    for text in (str(board), json.dumps(request_of(board))):
        back = client.post("/lab/read", json={"text": text}).get_json()
        assert (back["width"], back["you"], "scenario" in back) == (11, "a", False)
        assert sorted(map(tuple, back["frame"]["food"])) == sorted(board.food)
    builtin = [
        scenario for path in scenarios.BUILTIN_SCENARIOS for scenario in scenarios.load(path)
    ]
    for number, scenario in enumerate(builtin):
        told = client.get(f"/lab/shipped/{number}").get_json()
        assert told["scenario"]["name"] == scenario.name
    for text, words in [
        ("scenario: x\nallowed: up\n? ?", "x: "), ("{", "Expecting"), ("[]", "no scenario"),
        ("A . ?", "?"), ("", "text"), ("[" * 10**5, "")]:  # fmt: skip
        assert words in refusal(client, "/lab/read", {"text": text})


def lower_keys(value: dict[str, Any]) -> dict[str, Any]:
    return {key.lower(): one for key, one in value.items()}


def test_engine_api(empty: Pages) -> None:
    board = web_site.announce(empty.broadcast, "on", 3)
    answer = empty.client.get("/games/on")
    game = answer.get_json()["Game"]
    assert (game["Status"], game["Width"], game["Height"]) == ("running", 6, 4)
    assert game["Ruleset"]["name"] == game["RulesetName"] == "standard"
    assert game["RulesStages"] == ["move", "starve", "hazard", "feed", "eliminate"]
    assert all(isinstance(value, str) for value in game["Ruleset"].values())
    limited = replace(board.game, settings=Settings(view_radius=3, food_spawn_chance=40))
    empty.broadcast.publish_event("limited", Board.from_state(board, limited))
    sent = json.loads(empty.client.get("/games/limited").data, object_hook=lower_keys)
    _, _, described = engine_frames.parse_description(sent, "limited")
    assert described is not None
    assert described["ruleset"]["settings"]["viewRadius"] == 3
    frames = empty.client.get("/games/on/frames?offset=1&limit=2")
    assert frames.get_json()["count"] == 2
    assert [frame["Turn"] for frame in frames.get_json()["frames"]] == [1, 2]
    (last,) = empty.client.get("/games/on/frames?offset=-1").get_json()["frames"]
    snake = last["Snakes"][0]
    assert snake["Body"] == [{"X": x, "Y": y} for x, y in board.snakes[0].body]
    assert (snake["Name"], snake["Health"], snake["Shout"]) == ("Ann", 97, "hey")
    assert set(snake) == {
        "ID", "Name", "Body", "Health", "Death", "Color", "HeadType", "TailType", "Latency",
        "Shout", "Squad", "Author", "StatusCode", "Error", "IsBot", "IsEnvironment",
    }  # fmt: skip
    web_site.announce(empty.broadcast, "over", 4, end=True)
    (last,) = empty.client.get("/games/over/frames?offset=-1").get_json()["frames"]
    deaths = [snake["Death"] for snake in last["Snakes"]]
    assert {death["Cause"] for death in deaths if death} == {"wall-collision"}
    assert {death["Turn"] for death in deaths if death} == {4}


def test_content_security_policy(client: FlaskClient) -> None:
    for address in ("/", "/games", "/live", "/play", "/lab", "/static/position_editor.js"):
        with client.get(address) as answer:
            policy = answer.headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "script-src 'self'" in policy


@pytest.mark.parametrize("tournament", [True, False])
def test_arena_command_with_pages(tmp_path: Path, tournament: bool) -> None:
    games = ["hungry", "straight", "--games=2", "--board-size=7", "--jobs=1"]
    database = f"--database=sqlite:///{tmp_path / 'arena.sqlite'}"
    call = (*COMMAND, "arena", *(games if tournament else []), "--web", "--port=0", database)
    with running(*call, cwd=tmp_path) as process:
        assert process.stderr is not None
        assert process.stdout is not None
        line = process.stderr.readline()
        (url,) = re.findall(r"http://127\.0\.0\.1:\S+", line)
        if tournament:
            assert process.stdout.readline().startswith("snake ")  # the table: all is played
        assert fetch(f"{url}games").count('href="./game/') == (2 if tournament else 0)
        assert len(list(tmp_path.glob("replays/*"))) == (2 if tournament else 0)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks into Linux's /proc")
def test_no_process_outlives_the_command(tmp_path: Path) -> None:
    with running(
        *COMMAND, "arena", "minimax", "minimax", "--games=40", "--timeout=100", "--web",
        "--port=0", "--jobs=2", "--max-turns=8",
        f"--database=sqlite:///{tmp_path / 'arena.sqlite'}", cwd=tmp_path,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        until(lambda: len(below(process.pid)) >= 3)  # two that play, and multiprocessing's own
        players = below(process.pid)
        process.terminate()
        assert process.wait(60) == 130
    until_gone(players)
