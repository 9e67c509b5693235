"""Tests of the pages of recorded games: addresses, command, and behavior in a browser."""

import html
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from flask import request
from flask.testing import FlaskClient
from PIL import Image

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays import official_format
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Game, Settings
from battlesnake_gym.snakes import Decision, Reason
from battlesnake_server.commands import game_watch_command
from battlesnake_server.http.page_server import PageServer
from battlesnake_server.replay_viewer import frame_stream
from battlesnake_server.replay_viewer.replay_library import Library
from battlesnake_server.web import replay_pages
from tests.battlesnake_gym import hostile_replays
from tests.processes import fetch, fetch_json, running
from tests.server import web_site
from tests.server.browser import Browser

NAUGHTY = "<img src=x onerror=alert(1)>"
START = """
. . .~. .2. .
. A < < . . .
. . . . . * .
. . . . . . .
. C . . . . .
> ^ . . > B .
A: name="Ann" you
B: name="<img src=x onerror=alert(1)>"
C: name="Cleo" health=20
"""


def story() -> Replay:
    """Return a game of six turns: snake C hits the left wall on turn 3, snake B dies on turn 6."""
    replay = Replay(Board.from_text(START))
    paths = {
        "a": "down right right up right up",
        "b": "up up up left left left",
        "c": "up left left",
    }
    turns = {snake_id: words.split() for snake_id, words in paths.items()}
    for number in range(6):
        moves = {s.id: turns[s.id][number] for s in replay.last.living}
        reasons = (
            Reason("walls", vetoed=("up",), note="would leave the board"),
            Reason("space", scores={"down": 3.0, "left": 1.0, "right": -0.5}),
        )
        decision = Decision(
            moves["a"], reasons, {"up": float("-inf"), "down": 3.0, "left": 1.0, "right": -0.5}
        )
        replay.append(
            moves,
            latency=dict.fromkeys(moves, 40 + number),
            shouts={"b": f"hush {number} {NAUGHTY}"} if "b" in moves else {},
            decisions={"a": decision},
        )
    return replay


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("games")
    story().save(root / "deep" / "story.jsonl.gz")
    official_format.save(story().boards(), root / "official.jsonl")
    (root / "damaged.jsonl").write_text('{"replay": 1}\n')
    (root / "notes.txt").write_text("no game")
    return root


@pytest.fixture
def client(folder: Path) -> FlaskClient:
    return replay_pages.create_app([folder]).test_client()


def test_list_shows_games_and_damaged_files(client: FlaskClient) -> None:
    page = client.get("/").text
    assert "3 games" in page
    assert "deep/story.jsonl.gz" in page
    assert "damaged.jsonl, line 1: first.width" in page
    assert "notes.txt" not in page
    assert NAUGHTY not in page


def test_game_data_is_strict_json(client: FlaskClient) -> None:
    answer = client.get("/data/deep/story.jsonl.gz")
    game = json.loads(answer.data, parse_constant=lambda word: pytest.fail(word))
    assert (game["width"], game["height"], game["seed"]) == (7, 6, None)
    assert [snake["name"] for snake in game["snakes"]] == ["Ann", NAUGHTY, "Cleo"]
    replay = story()
    assert len(game["frames"]) == len(replay.turns) + 1
    assert [d["id"] for d in game["deaths"]] == [who for _, who, _ in replay.deaths()]
    for frame, board in zip(game["frames"], replay.boards(), strict=True):
        assert frame["turn"] == board.turn
        assert [s["body"] for s in frame["snakes"]] == [
            [list(c) for c in s.body] for s in board.snakes
        ]
        assert [s["health"] for s in frame["snakes"]] == [s.health for s in board.snakes]
        assert sorted(frame["food"]) == sorted(map(list, board.food))
        assert sum(layers for _, _, layers in frame["hazards"]) == len(board.hazards)
    assert game["frames"][0]["snakes"][0]["next"] == {
        "move": "down",
        "inferred": False,
        "problem": "",
        "scores": {"up": None, "down": 3.0, "left": 1.0, "right": -0.5},
        "reasons": [
            {"rule": "walls", "vetoed": ["up"], "scores": {}, "note": "would leave the board"},
            {"rule": "space", "vetoed": [], "scores": {"down": 3.0, "left": 1.0, "right": -0.5},
             "note": ""},
        ],
        "line": {},
    }  # fmt: skip
    assert game["frames"][-1]["snakes"][0]["next"] is None


def test_positions_as_text_json_and_image(client: FlaskClient) -> None:
    replay = story()
    for turn in range(len(replay.turns) + 1):
        text = client.get(f"/turn/{turn}/text/deep/story.jsonl.gz").text
        assert Board.from_text(text) == replay.board(turn)
    body = client.get("/turn/2/json/deep/story.jsonl.gz?you=c").get_json()
    assert body == replay.board(2).to_api("c")
    picture = client.get("/turn/2/png/deep/story.jsonl.gz")
    assert Image.open(io.BytesIO(picture.data)).format == "PNG"


@pytest.mark.parametrize(
    ("address", "status", "words"),
    [
        ("/replay/nothing.jsonl", 404, ""),
        ("/replay/notes.txt", 404, ""),
        ("/data/../../../etc/passwd", 404, ""),
        ("/data/%2e%2e/%2e%2e/etc/passwd", 404, ""),
        ("/data//etc/passwd", 404, ""),
        ("/data/damaged.jsonl", 422, r"damaged\.jsonl, line 1: first\.width"),
        ("/turn/99/text/official.jsonl", 404, r"turn.* 0.* 6.* 99"),
        ("/turn/1/json/official.jsonl?you=x", 404, r"'x'.* 'a'"),
        ("/turn/1/gif/official.jsonl", 404, ""),
        ("/nowhere", 404, ""),
    ],
)
def test_unknown_addresses(client: FlaskClient, address: str, status: int, words: str) -> None:
    answer = client.get(address, follow_redirects=True)
    assert answer.status_code == status
    assert re.search(words, answer.text)


def test_every_request_of_a_damaged_game_reports_the_damage(tmp_path: Path) -> None:
    story().save(tmp_path / "game.jsonl")
    lines = (tmp_path / "game.jsonl").read_text().splitlines()
    (tmp_path / "game.jsonl").write_text("\n".join([*lines[:3], "{}", *lines[4:]]))
    client = replay_pages.create_app([tmp_path]).test_client()
    for _ in range(2):
        answer = client.get("/data/game.jsonl")
        assert (answer.status_code, "line 4" in answer.text) == (422, True)


def test_new_and_changed_files_are_shown(tmp_path: Path) -> None:
    client = replay_pages.create_app([tmp_path]).test_client()
    assert client.get("/").status_code == 200
    for number in range(replay_pages.REPLAYS_PER_PAGE + 1):
        Replay(Board.from_text(f"turn={number}\nA . B")).save(tmp_path / f"{number:02}.jsonl")
        os.utime(tmp_path / f"{number:02}.jsonl", (number, number))
    first, second = client.get("/").text, client.get("/?page=2").text
    assert "24.jsonl" in first
    assert "00.jsonl" not in first  # the newest come first
    assert "00.jsonl" in second
    assert "1 of 2" in first
    assert client.get("/?page=999").text == second
    assert client.get("/data/03.jsonl").get_json()["frames"][0]["turn"] == 3
    Replay(Board.from_text("turn=70\nA . . B")).save(tmp_path / "03.jsonl")
    assert client.get("/data/03.jsonl").get_json()["frames"][0]["turn"] == 70


def test_other_hosts_require_a_token(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(PageServer, "wait", lambda server: None)
    for option in ("--host=0.0.0.0", "--allow-host=games.lan"):
        assert game_watch_command.main([str(folder), option, "--port=0", "--no-browser"]) == 0
        told = capsys.readouterr().out.splitlines()
        assert "/?token=" in told[1]
        assert told[1].startswith("open http://")
    assert game_watch_command.main([str(folder), "--port=0", "--no-browser"]) == 0
    assert "token" not in capsys.readouterr().out


def test_the_view_radius_applies_to_the_viewer_and_to_positions(folder: Path) -> None:
    """Games without a view radius get the radius of ``game watch --view-radius``."""
    client = replay_pages.create_app([folder], view_radius=3).test_client()
    key = "deep/story.jsonl.gz"
    assert client.get(f"/data/{key}").get_json()["view_radius"] == 3
    for query in ("", "?if=" + client.get(f"/turn/0/frame/{key}?if=xxx").get_json()["moves"]):
        position = client.get(f"/turn/0/json/{key}{query}").get_json()
        assert position["game"]["ruleset"]["settings"]["viewRadius"] == 3
    unlimited = replay_pages.create_app([folder]).test_client()
    assert unlimited.get(f"/data/{key}").get_json()["view_radius"] is None


@pytest.mark.parametrize(
    "key", ["../deep/story.jsonl.gz", "deep/../official.jsonl", "./official.jsonl", "/etc/passwd",
            "link/story.jsonl.gz", "a\0.jsonl", "x" * 5000 + ".jsonl", "notes.txt", ""],
)  # fmt: skip
def test_library_finds_only_listed_keys(folder: Path, tmp_path: Path, key: str) -> None:
    story().save(tmp_path / "inside" / "official.jsonl")
    (tmp_path / "inside" / "link").symlink_to(folder / "deep")
    library = Library([tmp_path / "inside", folder / "official.jsonl"])
    assert [entry.key for entry in library.entries()] == ["0/official.jsonl", "1/official.jsonl"]
    for entry in library.entries():
        assert library.find(entry.key) == entry
    assert [library.find(prefix + key) for prefix in ("", "0/", "1/")] == [None] * 3


def test_a_single_game_opens_at_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)

    monkeypatch.setattr(PageServer, "wait", lambda server: None)
    assert game_watch_command.main([str(folder / "official.jsonl"), "--port=0"]) == 0
    assert opened[0].endswith("/replay/official.jsonl")
    assert opened[0] in capsys.readouterr().out


def test_a_view_radius_without_effect_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(PageServer, "wait", lambda server: None)
    path = tmp_path / "game.jsonl"
    game = Game(settings=Settings(view_radius=2))
    Replay(Board.new(7, 7, 2, game=game)).save(path)
    assert game_watch_command.main([str(path), "--view-radius=3", "--port=0", "--no-browser"]) == 2
    assert "--view-radius has no effect on games with" in capsys.readouterr().err


def read_whole(address: str) -> None:
    """Read all chunks of a game; an error is reported with the chunk that contains it."""
    since, more = 0, True
    while more:
        chunk = fetch_json(f"{address}?since={since}")
        since, more = since + len(chunk["frames"]), chunk["more"]


def test_the_printed_address_of_all_interfaces_opens_here(tmp_path: Path) -> None:
    story().save(tmp_path / "good.jsonl.gz")
    command = (sys.executable, "-m", "battlesnake_gym", "game", "watch", str(tmp_path))
    with running(*command, "--host=0.0.0.0", "--port=0", "--no-browser") as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("serving 1 recorded game at http://127.0.0.1:")
        assert "good" in fetch(line.split()[5])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits its address space")
def test_hostile_files_in_one_gigabyte(tmp_path: Path) -> None:
    told = hostile_replays.write(tmp_path)
    story().save(tmp_path / "good.jsonl.gz")
    program = (
        f"exec {sys.executable} -m battlesnake_gym game watch {tmp_path} --port=0 --no-browser"
    )
    limited = ("bash", "-c", f"ulimit -v 1048576; {program}")
    with running(*limited, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[5]
        page, unread = "", True
        while unread:  # on a busy machine the list may come in chunks
            page = html.unescape(fetch(address))
            unread = replay_pages._UNREAD_MESSAGE in page
        assert page.count('class="game damaged"') == len(told)
        assert page.count('<a class="game"') == 1
        for name, words in told.items():
            card = page[page.index(f"<h2>{name}</h2>") :]
            assert words in card[: card.index("</li>")], name
        for name, words in told.items():
            with pytest.raises(urllib.error.HTTPError) as caught:
                read_whole(f"{address}data/{name}")
            assert (caught.value.code, words in json.load(caught.value)["error"]) == (422, True)
        assert len(fetch_json(f"{address}data/good.jsonl.gz")["frames"]) == 7
        peak = Path(f"/proc/{process.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
        assert int(peak) < 600 * 1024, "kilobytes"
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


@pytest.fixture(scope="module")
def site(folder: Path) -> Iterator[str]:
    with web_site.serving(replay_pages.create_app([folder])) as address:
        yield address


@pytest.fixture
def player(quiet: Browser, site: str) -> Browser:
    """Open the page of the story; the test fails if the console reports errors."""
    quiet.open(f"{site}/replay/deep/story.jsonl.gz")
    quiet.wait("document.querySelectorAll('#board .snake').length === 3")
    return quiet


def test_the_board_shows_the_position(player: Browser) -> None:
    board = story().board(0)
    heads = player.run(
        "[...document.querySelectorAll('#board .snake')].map(snake => {"
        " const all = [...snake.querySelectorAll('circle:not([class])')].at(-1);"
        " return [Number(snake.dataset.snake), all.cx.baseVal.value, all.cy.baseVal.value]; })"
    )
    assert sorted(heads) == [
        [i, s.head[0] + 0.5, board.height - s.head[1] - 0.5] for i, s in enumerate(board.snakes)
    ]
    foods = player.each("#board .food", "[part.cx.baseVal.value, part.cy.baseVal.value]")
    assert foods == [[x + 0.5, board.height - y - 0.5] for x, y in board.food]
    assert player.run("document.querySelectorAll('#board .hazard').length") == 2
    assert player.text("#board .layers") == "2"


def test_a_key_shows_what_a_snake_sees(quiet: Browser, folder: Path) -> None:
    def count(selector: str) -> object:
        return quiet.run(f"document.querySelectorAll('#board {selector}').length")

    with web_site.serving(replay_pages.create_app([folder], view_radius=3)) as address:
        quiet.open(f"{address}/replay/deep/story.jsonl.gz")
        quiet.wait("document.querySelectorAll('#board .snake').length === 3")
        assert (count(".fog"), count(".food")) == (0, 1)
        quiet.press("1")
        assert (count(".snake"), count(".fog"), count(".food")) == (2, 1, 1)
        assert "?" in quiet.text("#snakes li:nth-child(3) .health")
        drawn = quiet.run("document.querySelector('[data-snake=\"2\"] .body').getBBox().height")
        assert drawn < 1  # Only the head of snake C is visible, not its neck.
        quiet.press("ArrowRight")
        assert count(".food") == 0
        quiet.press("3")
        assert (count(".snake"), count(".food")) == (2, 0)
        quiet.run("document.getElementById('if-on').click()")
        quiet.wait("document.body.classList.contains('in-branch')")
        assert count(".fog") == 1
        quiet.press("Escape", "Escape")
        assert (count(".snake"), count(".fog"), count(".food")) == (3, 0, 1)
        quiet.open(f"{address}/replay/deep/story.jsonl.gz#turn=1&snake=2")
        quiet.wait("document.querySelectorAll('#board .snake').length === 1")
        quiet.run("document.getElementById('play').click()")
        quiet.wait("document.getElementById('turn').innerText.startsWith('6')")


def test_keys_change_the_turn(player: Browser) -> None:
    deaths = sorted({on for on, _, _ in story().deaths()})
    assert player.turn() == 0
    for key, expected in [
        ("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", 6), ("ArrowRight", 6),
        ("Home", 0), ("n", deaths[0]), ("n", deaths[1]), ("n", deaths[1]), ("p", deaths[0]),
    ]:  # fmt: skip
        player.press(key)
        assert player.turn() == expected, key
    player.wait(f"location.hash === '#turn={deaths[0]}'")


def test_buttons_and_timeline_change_the_turn(player: Browser) -> None:
    for name, expected in [
        ("end", 6),
        ("back", 5),
        ("start", 0),
        ("forward", 1),
        ("next-death", 3),
    ]:
        player.run(f"document.getElementById('{name}').click()")
        assert player.turn() == expected, name
    player.enter("#scrub", 4)
    assert player.turn() == 4


def test_playback_stops_at_the_end(player: Browser) -> None:
    player.press("+", "+")
    assert player.run("document.getElementById('speed').value") == "40"
    player.press(" ")
    player.wait("document.getElementById('turn').innerText.startsWith('6')")
    player.wait("!document.body.classList.contains('playing')")
    player.press("-", "-", "-", "-", "-", "-")
    assert player.run("document.getElementById('speed').value") == "1"
    player.press(" ")  # from the end it begins again
    player.wait("document.body.classList.contains('playing')")
    player.wait("document.getElementById('turn').innerText.startsWith('1')")
    player.press(" ")
    assert player.run("document.body.classList.contains('playing')") is False


def test_space_bars_within_one_frame_play_at_the_usual_speed(player: Browser) -> None:
    player.enter("#speed", 1)
    started = time.monotonic()
    player.run("[1, 2, 3].forEach(() => document.getElementById('play').click())")
    player.wait("document.getElementById('turn').innerText.startsWith('2')")
    assert time.monotonic() - started > 1.9


def test_playback_waits_in_a_hidden_tab(player: Browser) -> None:
    player.enter("#speed", 1)
    shown = player.driver.current_window_handle
    player.press(" ")
    player.driver.switch_to.new_window("tab")
    time.sleep(3)
    player.driver.close()
    player.driver.switch_to.window(shown)
    player.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert player.turn() <= 1


def test_playback_continues_into_later_chunks(
    quiet: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    story().save(tmp_path / "story.jsonl.gz")
    monkeypatch.setattr(frame_stream, "_FIRST_CHUNK_BYTES", 1)
    app = replay_pages.create_app([tmp_path])
    app.before_request(lambda: time.sleep(2) if "since" in request.args else None)
    with web_site.serving(app) as address:
        quiet.open(f"{address}/replay/story.jsonl.gz", "document.querySelector('#board .snake')")
        quiet.press(" ")
        quiet.wait("document.getElementById('turn').innerText.startsWith('6')")


def test_cards_show_health_latency_shouts_and_deaths(player: Browser) -> None:
    player.press("ArrowRight")
    ann, naughty, cleo = player.each(".snake-card", "part.innerText")
    assert "40 ms" in ann
    assert "99" in ann
    assert f"hush 0 {NAUGHTY}" in naughty
    assert "19" in cleo
    assert player.run("document.querySelectorAll('.meter.low').length") == 1
    player.press("n")
    fate = player.text("#snakes li:nth-child(3) .fate")
    assert re.search("wall.* turn 3", fate)
    assert player.run("document.querySelectorAll('#board .cross.fresh').length") == 1


def test_decision_is_shown(player: Browser) -> None:
    assert player.run("document.getElementById('decision').hidden") is True
    player.press("1")
    assert re.search("Ann.* down", player.text("#decision h2"))
    panel = player.text("#decision")
    for words in ("walls", "would leave the board", "space", "3", "\N{MINUS SIGN}0.50"):
        assert words in panel
    assert player.text("#board .value.chosen") == "3"
    assert player.text("#board .value.vetoed") == "✕"
    assert player.run("document.getElementById('as-json').href").endswith("?you=a")
    player.press("2")
    assert "walls" not in player.text("#decision")
    player.press("Escape")
    assert player.run("document.getElementById('decision').hidden") is True
    player.press("?")
    assert player.run("document.getElementById('help').open") is True


@pytest.mark.parametrize(
    ("turns", "links"),
    [(90, 1), *(pytest.param(n, 10, marks=pytest.mark.slow) for n in (50, 500, 2000, 5000))],
)
def test_address_leads_to_its_turn_while_chunks_load(
    quiet: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int, links: int
) -> None:
    """The address must not change to the turn that is shown while further chunks load."""
    board = Board.from_text("ruleset=solo\nA . .\n. . .")
    board.hazards = [(x, y) for x in range(3) for y in range(2)]  # they heal, so that it lives on
    board.game = replace(board.game, settings=Settings(hazard_damage_per_turn=-2))
    replay = Replay(board)
    while replay.last.turn < turns:
        replay.append({"a": ["right", "down", "left", "up"][replay.last.turn % 4]})
    replay.save(tmp_path / "long.jsonl")
    for name, size in (("_FIRST_CHUNK_BYTES", 2000), ("_CHUNK_BYTES", 100 * turns)):
        monkeypatch.setattr(frame_stream, name, size)
    app, slow = replay_pages.create_app([tmp_path]), [0.0]
    app.before_request(lambda: time.sleep(slow[0]) if "since" in request.args else None)
    with web_site.serving(app) as address:
        for milliseconds in (0, 400) if links == 1 else (0, 100, 200, 400, 800):
            slow[0] = milliseconds / 1000
            for linked in (*random.sample(range(replay.last.turn), links), turns + 7):
                whole = f"document.getElementById('scrub').max === '{turns}'"
                quiet.open(f"{address}/replay/long.jsonl#turn={linked}", whole)
                time.sleep(0.3)  # the address is written a moment later
                ends = quiet.run("[location.hash, document.getElementById('copy').dataset.copy]")
                wanted = min(linked, turns)
                assert [quiet.turn(), *ends] == [wanted, *[f"#turn={wanted}"] * 2], milliseconds


def test_damaged_game_shows_its_error(browser: Browser, site: str) -> None:
    browser.open(f"{site}/replay/damaged.jsonl")
    browser.wait("document.getElementById('message').innerText.includes('first.width')")
    assert "line 1: first.width" in browser.text("#message")
    browser.complaints()
