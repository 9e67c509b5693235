"""The page that plays, in a real browser: the official rules in WebAssembly, and a game by hand."""

import contextlib
import gzip
import itertools
import random
import re
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flask import Flask
from PIL import ImageSequence

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.draw import customization
from battlesnake_gym.engine.state_words import pack_state
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import MOVES, Game, Settings
from battlesnake_heuristics.analysis.loss_analysis import LossAnalysis
from battlesnake_heuristics.analysis.position_analysis import PositionAnalyzer
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import Search
from battlesnake_server import strategy_loader
from tests.server import web_site
from tests.server.browser import Browser, browser, quiet

__all__ = ["browser", "quiet"]

HERE = Path(__file__).parents[2]
sys.path.insert(0, str(HERE / "tools"))
import build_site  # noqa: E402

ASK = """
  const [message, done] = arguments;
  window.asked ??= new Worker('worker.js', {type: 'module'});
  window.asked.onmessage = ({data}) => done(data);
  window.asked.postMessage(message);
"""


def files_served(folder: Path) -> contextlib.AbstractContextManager[str]:
    """The address of a server of these files, for as long as the block lasts."""
    return web_site.serving(Flask("files", static_folder=folder, static_url_path=""))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page, built as for the site."""
    pytest.importorskip("ziglang", reason="needs the extra dev")
    pytest.importorskip("onnx", reason="needs the extra rllib")
    folder = tmp_path_factory.mktemp("play")
    build_site._write_play_page(folder / "docs" / "play")
    build_site._write_start_page(folder)
    with files_served(folder) as address:
        yield f"{address}/docs/play/index.html"


def fetched(page: str, name: str) -> bytes:
    """A file beside the page."""
    with urllib.request.urlopen(page.replace("index.html", name)) as answer:
        content: bytes = answer.read()
    return content


def test_the_stated_size_is_the_size(page: str) -> None:
    """docs/tutorials/play-and-watch.md says how much a visitor loads: 370 kB at most, all told."""
    size = len(fetched(page, "game.wasm")) / 1000
    text = (HERE / "docs" / "tutorials" / "play-and-watch.md").read_text()
    stated = re.search(r"WebAssembly\s+\((\d+) kB\)", text)
    assert stated is not None
    assert float(stated[1]) == pytest.approx(size, rel=0.1)
    names = (
        *build_site.PAGE_FILES,
        *build_site.SHARED_FILES,
        "facts.js",
        "game.wasm",
        "policy.bin",
    )
    whole = sum(len(gzip.compress(fetched(page, name), 9)) for name in names) / 1000
    stated = re.search(r"compressed\s+page\s+has\s+(\d+) kB", text)
    assert stated is not None
    assert float(stated[1]) == pytest.approx(whole, rel=0.02)
    assert whole <= 370


def words_of(board: Board) -> list[int]:
    return list(memoryview(pack_state(board)).cast("i"))


def ask(browser: Browser, message: dict[str, object]) -> dict[str, Any]:
    """What the page's worker answers."""
    browser.driver.set_script_timeout(30)
    answer = browser.driver.execute_async_script(ASK, message)
    assert isinstance(answer, dict)
    return answer


def begin(browser: Browser, page: str, board: Board, **more: object) -> dict[str, Any]:
    """Open the page and start the game of ``board`` in its worker."""
    browser.open(page)
    game = board.game
    start = {
        "width": board.width, "height": board.height, "snakes": len(board.snakes),
        "seed": game.seed, "ruleset": game.ruleset, "map": game.map,
        "view_radius": game.settings.view_radius,
    }  # fmt: skip
    return ask(browser, {"start": start, **more})


@pytest.mark.parametrize(
    ("ruleset", "board_map", "width"),
    [("standard", "standard", 11), ("wrapped", "standard", 7), ("royale", "royale", 11)],
)
def test_the_page_plays_by_the_rules(
    browser: Browser, page: str, ruleset: str, board_map: str, width: int
) -> None:
    """The same game turn by turn as the Python rules, food included."""
    board = Board.new(width, width, 3, game=Game(ruleset, board_map, seed=77))
    told = begin(browser, page, board)
    assert told["words"] == words_of(board)
    player = snakes.make("cautious", 3)
    for _ in range(60):
        if board.is_over():
            break
        moves = {}
        for snake in board.living:
            board.you_id = snake.id
            moves[snake.id] = player(board.copy()).move
        seats = {
            str(seat): MOVES.index(moves[snake.id])
            for seat, snake in enumerate(board.snakes)
            if snake.alive
        }
        told = ask(browser, {"turn": {"moves": seats, "players": {}}})
        board.step(moves)
        assert told["words"] == words_of(board)
    assert board.turn > 30
    assert told["over"] == board.is_over()


@pytest.mark.parametrize("count", [2, 4])
def test_the_page_thinks_as_the_champion(browser: Browser, page: str, count: int) -> None:
    """The same moves and values as in Python, which is held to the rules."""
    board = Board.new(11, 11, count, game=Game(seed=5))
    begin(browser, page, board)
    champion = Search(nodes=300, evaluation=load_builtin(), decoupled=True)
    for _ in range(12):
        players = [{"seconds": 0, "nodes": 300}] * count
        told = ask(browser, {"turn": {"moves": {}, "players": players}})
        decisions = told["decisions"]
        assert isinstance(decisions, dict)
        moves = {}
        for seat, snake in enumerate(board.snakes):
            board.you_id = snake.id
            decision = champion(board)
            moves[snake.id] = decision.move
            seen = decisions[str(seat)]
            values = dict(zip(MOVES, seen["values"], strict=True))
            assert MOVES[seen["move"]] == decision.move
            assert {move: value for move, value in values.items() if value is not None} == (
                decision.scores
            )
        board.step(moves)


def test_the_page_avoids_a_fatal_hazard_like_python(browser: Browser, page: str) -> None:
    seed = 1966
    start = Board.new(7, 7, 2, game=Game("royale", "royale", seed=seed))
    board, luck = start.copy(), random.Random(seed)
    past = []
    while board.turn < 29:
        moves = {one.id: luck.choice(board.safe_moves(one.id) or MOVES) for one in board.living}
        past.append([MOVES.index(move) for move in moves.values()])
        board.step(moves)
    begin(browser, page, start, moves=past)
    player = {"seconds": 0, "nodes": 300}
    seen = ask(browser, {"turn": {"moves": {}, "players": [player] * 2}})["decisions"]["1"]
    assert [MOVES[seen["move"]]] == board.safe_moves("snake_1")
    board.you_id = "snake_1"
    expected = snakes.make("champion@300")(board.without_seed()).reasons[0].scores
    assert {
        MOVES[move]: value for move, value in enumerate(seen["values"]) if value is not None
    } == expected


def test_named_rivals_and_the_policy_play_as_in_python(browser: Browser, page: str) -> None:
    """Rules pick among their best moves; the policy, though rounded, mostly picks the same."""
    names = ["hungry", "cautious", "hunter", "territory"]
    policy = strategy_loader.strategy_factory(
        strategy_loader.DEFAULT_POLICY_PATH, filters=["head_to_heads"]
    )
    asked = same = 0
    for seat_of_policy in range(4):
        board = Board.new(11, 11, 4, game=Game(seed=seat_of_policy + 1))
        begin(browser, page, board)
        seats = [
            {"policy": True} if seat == seat_of_policy else {"builtin": names[seat]}
            for seat in range(4)
        ]
        for _ in range(15):
            told = ask(browser, {"turn": {"moves": {}, "players": seats}})
            moves = {}
            for seat, snake in enumerate(board.snakes):
                if not snake.alive:
                    continue
                board.you_id = snake.id
                moves[snake.id] = MOVES[told["moves"][seat]]
                if seat == seat_of_policy:
                    asked, same = asked + 1, same + (policy(0)(board).move == moves[snake.id])
                else:
                    scores = snakes.make(names[seat])(board).scores
                    assert scores[moves[snake.id]] == max(scores.values())
            board.step(moves)
            assert told["words"] == words_of(board)
    assert asked > 40
    assert same >= 0.8 * asked


def test_with_a_view_radius_rivals_decide_by_their_view(browser: Browser, page: str) -> None:
    board = Board.new(11, 11, 4, game=Game(seed=3, settings=Settings(view_radius=2)))
    begin(browser, page, board)
    hidden = 0
    for _ in range(15):
        told = ask(browser, {"turn": {"moves": {}, "players": [{"builtin": "hungry"}] * 4}})
        moves = {}
        for seat, snake in enumerate(board.snakes):
            if not snake.alive:
                continue
            board.you_id = snake.id
            moves[snake.id] = move = MOVES[told["moves"][seat]]
            limited, complete = (snakes.make("hungry")(b).scores for b in (board.limited(), board))
            assert limited[move] == max(limited.values())
            hidden += complete[move] < max(complete.values())
        board.step(moves)
        assert told["words"] == words_of(board)
    assert hidden > 5


def test_a_visitor_sees_only_the_view(quiet: Browser, page: str) -> None:
    quiet.open(linked(page, ruleset="blackout").replace("gentle", "hungry"), is_turn(0))
    quiet.press(to_the_wall()[0])
    quiet.wait(f"{is_turn(1)} && document.body.dataset.still === 'true'")
    count = "document.querySelectorAll('#board {}').length"
    assert quiet.run(count.format(".fog")) == quiet.run(count.format(".snake")) == 1
    assert quiet.run("document.getElementById('win-probabilities').hidden")
    chosen(quiet, "strength", "champion")
    quiet.wait("document.getElementById('status').textContent.includes('rule-based')")
    link = quiet.run("document.getElementById('copy').dataset.copy")
    assert "strength=hungry" in link, "the game keeps its settings"
    quiet.press(to_the_wall()[1])
    quiet.wait(is_turn(2))
    quiet.open(page.partition("#")[0] + quiet.run("document.getElementById('copy').dataset.copy"))
    quiet.wait(is_turn(2))


def test_a_visitor_plays_a_game(browser: Browser, page: str) -> None:
    browser.look()
    browser.complaints()
    browser.open(page)
    browser.wait("document.body.dataset.turn === '0'", 30)
    browser.press("ArrowLeft")
    browser.wait("document.body.dataset.turn === '1'", 30)
    assert "Champion" in browser.text("#snakes")
    assert " ahead" in browser.text("#snakes")
    for _ in range(20):
        if browser.run("document.body.dataset.over") == "true":
            break
        before = browser.run("document.body.dataset.turn")
        browser.run("document.getElementById('left').click()")
        browser.wait(f"document.body.dataset.turn !== '{before}'", 30)
    assert "won" in browser.text("#status") or "draw" in browser.text("#status")
    browser.run("document.getElementById('new').click()")
    browser.wait("document.body.dataset.turn === '0'", 30)
    assert browser.complaints() == []


def linked(page: str, size: str = "11x11", ruleset: str = "standard", opponents: int = 1) -> str:
    """The address of the beginning of a game against weak rivals, in which chance has no part."""
    game = f"size={size}&ruleset={ruleset}&opponents={opponents}&strength=gentle&who=play&seed=5"
    return f"{page}#{game}&moves="


def is_turn(turn: int) -> str:
    return f"document.body.dataset.turn === '{turn}'"


def test_the_sites_first_page_is_the_board(quiet: Browser, page: str) -> None:
    quiet.open(page.replace("docs/play/", ""), is_turn(0))
    assert quiet.run("document.querySelector('nav a').href") == page.replace("play/", "")
    assert "policy.bin" not in str(quiet.run("performance.getEntries().map(entry => entry.name)"))


def to_the_wall() -> tuple[str, str, str, int]:
    """Keys of the game of `linked`: two inwards (across, along), one out, its turns."""
    x, y = Board.new(11, 11, 2, game=Game(seed=5)).snakes[0].head
    keys = ("ArrowUp", "ArrowDown", y) if y < 5 else ("ArrowDown", "ArrowUp", 10 - y)
    return "ArrowRight" if x < 5 else "ArrowLeft", *keys


def test_keys_pressed_early_count_and_the_way_back_is_ignored(quiet: Browser, page: str) -> None:
    across, along, _, _ = to_the_wall()
    back = "ArrowLeft" if across == "ArrowRight" else "ArrowRight"
    quiet.open(linked(page), is_turn(0))
    quiet.press(across)
    quiet.wait(is_turn(1))
    quiet.press(back, along, across, along)
    quiet.wait(is_turn(4))
    assert quiet.run("document.body.dataset.over") == "false"


def test_a_turn_in_progress_is_not_part_of_the_next_game(quiet: Browser, page: str) -> None:
    across, along, _, _ = to_the_wall()
    quiet.open(linked(page), is_turn(0))
    clicks = "[...arguments].forEach((id) => document.getElementById(id).click())"
    quiet.press(across)
    quiet.wait(is_turn(1))
    quiet.run(clicks, along[5:].lower(), "undo")
    quiet.wait(is_turn(0))
    quiet.press(along)
    quiet.wait(is_turn(1))
    quiet.run(clicks, "undo")
    quiet.wait(is_turn(0))


def test_a_lost_game_names_its_move_and_may_be_tried_again(quiet: Browser, page: str) -> None:
    _, _, out, room = to_the_wall()
    quiet.look(390, 844)
    quiet.open(linked(page), is_turn(0))
    top = "document.getElementById('new').getBoundingClientRect().top"
    place = quiet.run(top)
    for turn in range(room + 1):
        quiet.press(out)
        quiet.wait(is_turn(turn + 1))
    quiet.wait("!document.getElementById('again').hidden", 60)
    assert re.search(rf"turn {room}\b.* {out[5:].lower()} .*\b0%", quiet.text("#why"))
    assert quiet.text("#status") == "You hit a wall. Champion (gentle) won."
    assert quiet.run(top) == place < 844
    points = quiet.run("document.querySelector('#graph polyline').getAttribute('points')")
    assert points.endswith(f" {room + 1},100")
    quiet.run("document.querySelector('#mistakes button').click()")
    assert quiet.run("document.querySelectorAll('#board .line').length") > 0
    quiet.run("document.getElementById('replay').click()")
    for turn in (0, room + 1):
        quiet.wait(f"document.getElementById('turn').textContent === 'Turn {turn}'")
    quiet.run("document.getElementById('again').click()")
    quiet.wait(f"{is_turn(room)} && document.body.dataset.over === 'false'")
    quiet.run("document.getElementById('undo').click()")
    quiet.wait(is_turn(room - 1))


GAMES = [("7x7", "wrapped", 1), ("11x11", "royale", 3), ("19x19", "constrictor", 2)]


@pytest.mark.parametrize(
    "game", [*GAMES, *(pytest.param(game, marks=pytest.mark.slow) for game in 6 * GAMES)]
)
def test_a_link_leads_to_the_same_position(
    quiet: Browser, page: str, game: tuple[str, str, int]
) -> None:
    seen = """['board', 'turn', 'size', 'ruleset', 'opponents']
      .map(id => document.getElementById(id)).map(found => found.value ?? found.innerHTML)"""
    quiet.open(linked(page, *game), is_turn(0))
    for _ in range(random.randint(1, 12)):  # those for the way back are ignored
        quiet.press(random.choice(["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight"]))
        time.sleep(0.2)
    shown: Any = None
    while shown != (now := quiet.run(f"[{seen}, document.getElementById('copy').dataset.copy]")):
        shown = now
        time.sleep(1)  # the last turn is decisions about
        quiet.wait("document.body.dataset.still === 'true'")
    before, link = shown
    quiet.open(page + link, "document.body.dataset.turn")
    assert quiet.run(seen) == before


def chosen(browser: Browser, name: str, value: str) -> None:
    """Choose or drag as a visitor does."""
    event = "input" if name == "scrub" else "change"
    browser.run(
        "(field => { field.value = arguments[1]; field.dispatchEvent(new Event(arguments[2])); })"
        "(document.getElementById(arguments[0]))", name, value, event,
    )  # fmt: skip


def test_the_bar_is_the_champions_view_and_the_path_its_plan(quiet: Browser, page: str) -> None:
    across, along, _, _ = to_the_wall()
    quiet.open(linked(page), is_turn(0))
    quiet.press(across, along, across)
    quiet.wait(f"{is_turn(3)} && document.body.dataset.still === 'true'")
    moves = quiet.run(
        "new URLSearchParams(document.getElementById('copy').dataset.copy).get('moves')"
    )
    board = Board.new(11, 11, 2, game=Game(seed=5))
    for turn in range(3):
        board.step(
            {s.id: MOVES["udlr".index(moves[2 * turn + i])] for i, s in enumerate(board.snakes)}
        )
    shares = [one.win_probability for one in PositionAnalyzer().analyze(board).values()]
    percents = [f"about {round(100 * share)}%" for share in shares]
    label = f"You {percents[0]}, Champion (gentle) {percents[1]}"
    quiet.wait(f"document.getElementById('win-probabilities').ariaLabel.includes('{label}')")
    assert quiet.run("document.querySelectorAll('#board .line').length") == 0
    chosen(quiet, "sight", "lines")
    assert quiet.run("document.querySelectorAll('#board .line:not(.halo)').length") == 2
    chosen(quiet, "sight", "nothing")
    assert quiet.run("document.getElementById('win-probabilities').hidden")


def test_one_plays_on_from_any_turn_and_keeps_a_gif(quiet: Browser, page: str) -> None:
    across, along, _, _ = to_the_wall()
    quiet.open(linked(page), is_turn(0))
    for turn in range(6):
        quiet.press((across, along)[turn % 2])
        quiet.wait(is_turn(turn + 1))
    chosen(quiet, "scrub", "2")
    assert quiet.text("#turn") == "Turn 2"
    assert len(quiet.run("document.getElementById('copy').dataset.copy").split("moves=")[1]) == 4
    picture = quiet.saved_gif()
    assert (len(list(ImageSequence.Iterator(picture))), picture.size) == (3, (308, 308))
    quiet.run("document.getElementById('from').click()")
    quiet.wait(f"{is_turn(2)} && document.getElementById('from').disabled")
    quiet.press(along)
    quiet.wait(is_turn(3))


@pytest.mark.parametrize(("width", "height"), [(390, 844), (360, 640)])
def test_a_phone_shows_all_without_scrolling(
    quiet: Browser, page: str, width: int, height: int
) -> None:
    quiet.look(width, height)
    quiet.open(linked(page), is_turn(0))
    lowest = """Math.max(...['win-probabilities', 'board', 'status', 'scrub', 'new', 'down',
      'right'].map(id => document.getElementById(id).getBoundingClientRect().bottom))"""
    assert quiet.run(lowest) <= height
    quiet.run("document.querySelector('summary').click()")
    last = "document.getElementById('sight').getBoundingClientRect().bottom"
    assert quiet.run(last) <= height
    assert quiet.run("document.documentElement.scrollWidth") <= width


def test_nothing_moves_for_those_who_ask_for_that(quiet: Browser, page: str) -> None:
    moved = """(window.moved = 0, new MutationObserver(() => {
      window.moved += document.body.dataset.still === 'false'; }).observe(document.body,
      {attributes: true}))"""
    for calm in (False, True):
        value = "reduce" if calm else "no-preference"
        features = [{"name": "prefers-reduced-motion", "value": value}]
        quiet.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        quiet.open(linked(page), is_turn(0))
        quiet.run(moved)
        quiet.press(to_the_wall()[0])
        quiet.wait(f"{is_turn(1)} && document.body.dataset.still === 'true'")
        assert (quiet.run("window.moved") > 0) != calm


MACHADO = {
    "protanopia": [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]],
    "deuteranopia": [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]],
    "tritanopia": [[1.256, -0.077, -0.179], [-0.078, 0.931, 0.148], [0.005, 0.691, 0.304]],
}
"""What is left of linear red, green and blue. Source: Machado, Oliveira and Fernandes, 2009."""


@pytest.mark.parametrize("eyes", MACHADO)
def test_the_colour_blind_tell_the_snakes_apart(eyes: str) -> None:
    seen = []
    for look in build_site._snake_customizations():
        parts = np.array([int(look["color"][i : i + 2], 16) for i in (1, 3, 5)]) / 255
        left = np.clip(np.array(MACHADO[eyes]) @ parts**2.2, 0, 1) ** (1 / 2.2)
        seen.append("#" + "".join(f"{round(255 * part):02x}" for part in left))
    for one, other in itertools.combinations(seen, 2):
        assert customization._color_distance(one, other) > 1.5 * customization.MIN_COLOR_DISTANCE


def lost_game(seed: int, opponents: int) -> tuple[Replay, str] | None:
    """Play a game that the rule-based snake of seat 0 loses: the game, and its moves as in a link.

    The game ends with the elimination of seat 0.
    """
    replay = Replay(Board.new(11, 11, 1 + opponents, game=Game(seed=seed)))
    players = [snakes.make(("cautious", "hungry")[seed % 2], seed)]
    players += [Search(nodes=12, evaluation=load_builtin())] * opponents
    letters = ""
    while replay.last.snakes[0].alive and len(replay.last.living) > 1:
        moves = {}
        for snake, player in zip(replay.last.snakes, players, strict=True):
            board = replay.last.copy()
            board.you_id = snake.id
            moves[snake.id] = player(board).move if snake.alive else ""
        letters += "".join((move or "-")[0] for move in moves.values())
        replay.append(moves)
    return None if replay.last.snakes[0].alive else (replay, letters)


def page_review(browser: Browser, address: str) -> str:
    """Open a lost game and return the verdict of the page."""
    browser.open(address)
    browser.wait("document.getElementById('why').textContent.includes('Analyzing')", 60)
    deadline = time.monotonic() + 600
    while "Analyzing" in (text := browser.text("#why")) and time.monotonic() < deadline:
        time.sleep(0.5)
    return text


@pytest.mark.parametrize(
    "games", [2, pytest.param(10, marks=(pytest.mark.slow, pytest.mark.timeout(2400)))]
)
def test_page_and_coach_name_the_same_move(quiet: Browser, page: str, games: int) -> None:
    """The last game has four snakes, and the page judges it when seat 0 is eliminated."""
    judged = 0
    for seed in itertools.count(1):
        opponents = 3 if judged == games - 1 else 1
        if (lost := lost_game(seed, opponents)) is None:
            continue
        replay, letters = lost
        address = linked(page, opponents=opponents).replace("seed=5", f"seed={seed}") + letters
        verdict, loss = page_review(quiet, address), LossAnalysis.from_replay(replay, "snake_0")
        assert loss is not None
        if (mistake := loss.mistake) is None:
            assert verdict == "No single move lost the game."
        else:
            found = re.search(r"turn (\d+): (\w+) .*?(\d+)%, (\w+) .*?(\d+)%", verdict)
            assert found is not None
            expected = (
                f"{mistake.turn}", mistake.move, f"{100 * mistake.played_win_probability:.0f}",
                mistake.better_move, f"{100 * mistake.best_win_probability:.0f}",
            )  # fmt: skip
            assert found.groups() == expected
        judged += 1
        if judged == games:
            break


def test_the_bar_and_the_status_belong_to_the_shown_turn(quiet: Browser, page: str) -> None:
    """A shared lost game shows its turn 0 as undecided, and Undo shows the probabilities again."""
    lost = lost_game(5, 1)
    assert lost is not None
    quiet.open(linked(page) + lost[1], "document.body.dataset.over === 'true'")
    assert "won" in quiet.text("#status")
    label = "document.getElementById('win-probabilities').ariaLabel"
    chosen(quiet, "scrub", "0")
    assert "won" not in quiet.text("#status")
    assert "100%" not in quiet.run(label)
    quiet.wait(f"{label}.includes('You about')")
    quiet.run("document.getElementById('undo').click()")
    quiet.wait("document.body.dataset.over === 'false'")
    quiet.wait(f"{label}.includes('You about')")


def test_a_damaged_link_is_refused(quiet: Browser, page: str) -> None:
    quiet.open(linked(page) + "udx")
    quiet.wait("document.getElementById('status').textContent.includes('damaged')")
    quiet.run("document.getElementById('new').click()")
    quiet.wait(is_turn(0))
    quiet.open(linked(page).replace("gentle", "perfect"))
    quiet.wait("document.getElementById('status').textContent.includes('damaged')")
    quiet.run("document.getElementById('new').click()")
    quiet.wait(is_turn(0))


def test_it_plays_itself_where_one_watches(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.run("document.getElementById('strength').value = 'gentle'")
    browser.enter("#who", "watch")
    browser.wait("Number(document.body.dataset.turn) > 2", 60)
    assert "You" not in browser.text("#snakes")


def test_two_chosen_snakes_play_each_other(browser: Browser, page: str) -> None:
    browser.open(page)
    browser.run("document.getElementById('strength').value = 'hungry'")
    browser.enter("#who", "territory")
    browser.wait("Number(document.body.dataset.turn) > 2", 60)
    seats = browser.text("#snakes")
    assert "Territory: length" in seats
    assert "Hungry: length" in seats
    assert "You" not in seats
