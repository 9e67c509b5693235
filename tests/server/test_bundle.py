"""Bundles: the same snake everywhere, and no code that runs too early."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Game
from battlesnake_heuristics.search.evaluation import BUILTIN_PATH as EVALUATION
from battlesnake_server import bundle
from battlesnake_server.arena import league_config
from battlesnake_server.arena.players import LocalPlayer
from battlesnake_server.arena.tournament import (
    Entrant,
    ScheduledGame,
    TournamentSettings,
    open_players,
    play_scheduled_game,
)
from battlesnake_server.bundle import Bundle
from battlesnake_server.commands import pack_command
from battlesnake_server.live.app import create_app
from battlesnake_server.live.sessions import _session_seed
from battlesnake_server.strategy_loader import (
    DEFAULT_POLICY_PATH,
    SAFE_FILTER_NAMES,
    PolicyFactory,
    strategy_factory,
)
from battlesnake_server.web.roster import Roster
from tests.processes import COMMAND, free_port, run, served
from tests.server.test_hostile_files import zipped
from tests.server.test_lambda_handler import http_api
from tests.server.test_serve import Engine

RULES = '''
from battlesnake_gym import snakes
from battlesnake_heuristics import SAFE, Filter, Pipeline, When
from battlesnake_heuristics.rule_based import filters
from battlesnake_heuristics.rule_based.conditions import hungry
from battlesnake_heuristics.rule_based.preferences import food, space


@Filter
def edges(view, move):
    """Keeps off the edge."""
    x, y = view.targets[move]
    return float(not (0 < x < view.board.width - 1 and 0 < y < view.board.height - 1))


def mine(seed):
    """Mine."""
    return Pipeline(*SAFE, edges, When(hungry, [food * 3]), space, seed=seed)


snakes.register("mine", mine)
filters.register(edges)
'''

LOOKS = ("--color", "#123456", "--head", "evil", "--tail", "bolt", "--author", "somebody")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "my_rules.py"
    path.write_text(RULES)
    return path


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that runs `battlesnake-gym pack` and returns the bundle's path."""
    return lambda *arguments: pack(tmp_path / "snake.zip", *arguments)


def pack(path: Path, *arguments: str | Path) -> Path:
    assert pack_command.main([*map(str, arguments), "-o", str(path)]) == 0
    return path


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of `RULES`, which tests only read."""
    folder = tmp_path_factory.mktemp("packed")
    (folder / "my_rules.py").write_text(RULES)
    return pack(folder / "snake.zip", folder / "my_rules.py")


def recorded(count: int) -> list[dict[str, Any]]:
    """Return the move requests of games of four cautious snakes, in order."""
    bodies: list[dict[str, Any]] = []
    for seed in range(1, 1000):
        start = Board.new(11, 11, 4, game=Game(seed=seed, id=f"game-{seed}", timeout=10_000))
        players = {snake.id: snakes.make("cautious", seed) for snake in start.snakes}
        for board in Replay.from_play(start, players).boards():
            if not board.is_over():
                bodies += [board.to_api(snake.id) for snake in board.living]
        if len(bodies) >= count:
            return bodies[:count]
    raise AssertionError("the games are too short")


def ids(body: dict[str, Any]) -> tuple[str, str]:
    return body["game"]["id"], body["you"]["id"]


def played(build: snakes.StrategyFactory, bodies: list[dict[str, Any]]) -> list[str]:
    """Return the moves of a live snake's sessions, without a server."""
    sessions: dict[tuple[str, str], LocalPlayer] = {}
    moves = []
    for body in bodies:
        key = ids(body)
        if key not in sessions:
            sessions[key] = LocalPlayer(build(_session_seed(key)), 10.0)
        answer = asyncio.run(sessions[key].move(body))
        assert not answer.problem
        moves.append(str(answer.move))
    return moves


def over_http(address: str, path: str, bodies: list[dict[str, Any]]) -> list[str]:
    with contextlib.closing(Engine(address)) as engine:
        answers = [engine.post(path, body)[1]["move"] for body in bodies]
        for body in {ids(body): body for body in bodies}.values():
            engine.post("/end", body)
        return answers


def on_lambda(folder: Path, bodies: list[dict[str, Any]], patch: pytest.MonkeyPatch) -> list[str]:
    patch.setenv("BATTLESNAKE_SNAKE", str(folder / bundle.BUNDLE_METADATA_FILE))
    patch.delitem(sys.modules, "battlesnake_server.live.lambda_handler", raising=False)
    handler = importlib.import_module("battlesnake_server.live.lambda_handler").handler
    answers = [handler(http_api("POST", "/move", json.dumps(body)), None) for body in bodies]
    return [json.loads(answer["body"])["move"] for answer in answers]


def in_a_league(path: Path, folder: Path, count: int) -> Iterator[tuple[Replay, int]]:
    """Play a bundle in a league until it has made ``count`` moves; yield replays and seeds."""
    told = {
        "name": "Club",
        "snakes": {"mine": str(path), "other": "cautious"},
        "boards": [{"width": 11, "height": 11, "max_turns": 300}],
        "timeout": 10_000,
    }
    plan = league_config.LeagueConfig.parse(told, folder)
    sources = {member.name: member.source for member in plan.entrants}
    setup = plan.game_settings(plan.boards[0], ["mine", "other"], sources)
    for fixture in setup.missing_games(count):
        replay = Replay.load(str(play_scheduled_game(setup, fixture, folder).replay))
        yield replay, fixture.seed + fixture.seats.index(0)
        count -= sum(replay.snake_id("mine") in turn.moves for turn in replay.turns)
        if count <= 0:
            return


def assert_the_league_plays(build: snakes.StrategyFactory, replay: Replay, seed: int) -> None:
    """Check that the moves of "mine" in a league's game are those of a strategy with that seed."""
    mine = replay.snake_id("mine")
    player = LocalPlayer(build(seed), 10.0)
    for board, turn in zip(replay.boards(), replay.turns, strict=False):
        if mine in turn.moves:
            assert not turn.problems
            answer = asyncio.run(player.move(board.to_api(mine)))
            assert turn.moves[mine] == answer.move, f"the league, {board}"


OVER_A_POLICY = RULES + "rules = [edges, When(hungry, [food * 0.5], [space * 0.3])]\n"

KINDS = {
    "rules": ["RULES"],
    "policy": ["RULES", "--policy", "shipped", "--filters"],
    "rules over a policy": ["RULES", "--policy", "shipped", "--filters", "walls"],
    "evaluation": ["--evaluation", str(EVALUATION), "--nodes", "30"],
}


def test_the_looks_are_the_bundle_s_unless_others_are_given(
    rules: Path, make: Callable[..., Path]
) -> None:
    path = make(rules, *LOOKS)
    client = create_app({"SNAKE": str(path), "TAIL": "curled"}).test_client()
    told = client.get("/").json
    assert told is not None
    assert (told["color"], told["head"], told["author"]) == ("#123456", "evil", "somebody")
    assert told["tail"] == "curled"

    async def introduced() -> dict[str, str]:
        async with open_players(Entrant.parse_all([f"me={path}"]), 1.0, 1) as (player,):
            return await player.fetch_customization()

    looks = {"color": "#123456", "head": "evil", "tail": "bolt"}
    assert asyncio.run(introduced()) == looks
    setup = TournamentSettings((str(path),), GameSpec(1, ruleset="solo", max_turns=2), nodes=5)
    play_scheduled_game(setup, ScheduledGame(0, 1, (0,)), path.parent)
    (replay,) = path.parent.glob("game-*.jsonl.gz")
    assert Replay.load(replay).first.snakes[0].customizations == looks


def test_what_is_no_bundle_has_no_looks() -> None:
    assert bundle.bundle_customization("cautious") == bundle.bundle_customization(None) == {}


ONLY = """
from battlesnake_heuristics import Filter
rules = [Filter(lambda view, move: move != {!r})]
"""


def test_rules_alone_overrule_a_policy(
    rules: Path, make: Callable[..., Path], board: Board
) -> None:
    """Without filters and rules, the arena can batch the policy's observations."""
    board.you_id = "snake_0"
    plain = snakes.factory(str(make("--policy", "shipped")))
    assert isinstance(plain, PolicyFactory)
    only = "left" if plain(1)(board).move != "left" else "right"
    rules.write_text(ONLY.format(only))
    assert snakes.make(str(make(rules, "--policy", "shipped")))(board).move == only


def test_a_run_directory_is_packed_as_its_policy(tmp_path: Path, make: Callable[..., Path]) -> None:
    shutil.copytree(DEFAULT_POLICY_PATH.parent, tmp_path / "first" / "model")
    files = Bundle.load(make("--policy", tmp_path / "first")).files
    assert files["policy.onnx"] == DEFAULT_POLICY_PATH.read_bytes()


def test_a_debugger_sees_the_rules() -> None:
    source = "def rule():\n    return 1\n"
    assert (
        inspect.getsource(bundle.run_extension_code(source.encode(), "unpacked.py").rule) == source
    )


def test_a_server_reads_its_bundle_once(
    make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make("--snake", "cautious", *LOOKS)
    opened: list[str] = []
    read = bundle.Bundle.load

    def noted(path: str | Path) -> bundle.Bundle:
        opened.append(str(path))
        return read(path)

    monkeypatch.setattr(bundle.Bundle, "load", noted)
    app = create_app({"SNAKE": str(path)})
    assert app.test_client().get("/").get_json()["color"] == "#123456"
    assert opened == [str(path)]
    make("--snake", "hungry")  # Another file with the same name.
    assert create_app({"SNAKE": str(path)}).test_client().get("/").get_json()["color"] != "#123456"
    assert len(opened) > 1


def test_nothing_runs_before_the_snake_is_chosen(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    real = bundle.run_extension_code

    def noting(source: bytes, name: str) -> object:
        ran.append(name)
        return real(source, name)

    monkeypatch.setattr(bundle, "run_extension_code", noting)
    opened = Bundle.load(packed)
    roster = Roster([f"guest={packed}"])
    assert opened.customization == {}
    assert ran == []
    roster.find("guest", "snake").strategy_factory()
    assert len(ran) == 1


def test_bundles_of_one_name_do_not_meet(
    packed: Path, rules: Path, make: Callable[..., Path], board: Board
) -> None:
    """Both files register "mine" and "edges"; the registrations must not leak."""
    rules.write_text(
        "from battlesnake_gym import snakes\n"
        "up = snakes.Decision('up')\n"
        "snakes.register('mine', lambda seed: lambda board, seconds=None: up)\n"
    )
    second = make(rules)
    board.you_id = "snake_0"
    assert type(snakes.make(str(packed))).__name__ == "Pipeline"
    assert snakes.make(str(second))(board).move == "up"
    assert "mine" not in snakes.names()
    with pytest.raises(ValueError, match="'edges'"):
        strategy_factory("shipped", filters=["edges"])


def test_a_search_in_a_bundle_can_be_bounded_where_it_is_named(make: Callable[..., Path]) -> None:
    path = make("--evaluation", str(EVALUATION))
    assert isinstance(snakes.make(f"{path}@10"), snakes.FixedNodesSearch)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("rules.py", b"print('somebody else')", r"rules.py"),
        ("rules.py", None, r"snake.json.* rules.py"),
        ("more.py", b"", r"snake.json.* more.py"),
        ("snake.json", None, r"snake.json"),
        ("snake.json", b"[]", r"snake.json"),
        ("snake.json", b'{"format": 9, "files": {}}', r"format.* 9.* 1.* 2"),
    ],
)
def test_a_bundle_that_was_changed_is_refused(
    packed: Path, tmp_path: Path, name: str, data: bytes | None, message: str
) -> None:
    """A file of the bundle is changed, added or removed."""
    with zipfile.ZipFile(packed) as archive:
        files = {info.filename: archive.read(info) for info in archive.infolist()}
    files.pop(name, None)
    if data is not None:
        files[name] = data
    with pytest.raises(ValueError, match=message):
        Bundle.load(zipped(tmp_path / "changed.zip", files))


def test_what_is_no_bundle_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"nobody\.zip"):
        snakes.make(str(tmp_path / "nobody.zip"))
    (tmp_path / "text.zip").write_text("text")
    with pytest.raises(ValueError, match=r"text\.zip"):
        Bundle.load(tmp_path / "text.zip")
    monkeypatch.setattr(bundle, "_MAX_UNPACKED_BYTES", 1000)
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("rules.py", bytes(1 << 20))
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        Bundle.load(tmp_path / "bomb.zip")


@pytest.mark.parametrize("signature", [b"PK\x05\x06", b"PK\x01\x02"])
def test_a_damaged_archive_names_its_file(tmp_path: Path, packed: Path, signature: bytes) -> None:
    """Every damaged number of the directory; zipfile raises many kinds of exceptions for them."""
    good, path = packed.read_bytes(), tmp_path / "damaged.zip"
    for offset in range(good.rindex(signature), min(good.rindex(signature) + 46, len(good))):
        for value in (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x80"):
            path.write_bytes(good[:offset] + value + good[offset + len(value) :])
            try:
                Bundle.load(path)
            except ValueError as error:
                assert str(error).startswith(f"{path}: "), value  # noqa: PT017
    path.write_bytes(good[:-6] + b"\xff\xff\xff\xff" + good[-2:])
    with pytest.raises(ValueError, match=r"damaged\.zip"):
        Bundle.load(path)


def test_a_bundle_of_format_1_still_plays() -> None:
    path = Path(__file__).parents[1] / "data/formats/bundle_1.zip"
    packed = Bundle.load(path)
    assert packed.metadata["format"] == 2
    assert packed.metadata["nodes"] == 400
    looks = {"color": "#3366cc", "head": "evil", "tail": "bolt", "author": "jane"}
    assert packed.customization == bundle.bundle_customization(str(path)) == looks
    strategy = snakes.make(str(path))
    assert isinstance(strategy, snakes.FixedNodesSearch)
    board = Board.new(11, 11, 2, game=Game(seed=1))
    assert strategy(Board.from_api(board.to_api("snake_0"))).move in board.safe_moves("snake_0")


def test_code_of_a_bundle_of_format_1_still_plays() -> None:
    """Its extension code imports modules that have moved."""
    strategy = snakes.make(str(Path(__file__).parents[1] / "data/formats/bundle_code_1.zip"))
    board = Board.new(11, 11, 2, game=Game(seed=1))
    decision = strategy(Board.from_api(board.to_api("snake_0")))
    assert "room_before_rivals" in decision.reasons[-1].rule
    assert decision.move in board.safe_moves("snake_0")


def test_packing_twice_gives_the_same_bytes(
    packed: Path, rules: Path, make: Callable[..., Path]
) -> None:
    assert make(rules).read_bytes() == packed.read_bytes()


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("import helper", [], r"line 1.* ModuleNotFoundError.* a single file"),
        ("1/0", [], "line 1: ZeroDivisionError"),
        ("def", [], "line 1: SyntaxError"),
        ("\0", [], r"\.py: SyntaxError"),
        ("x = 1", [], r"registers no snake; define .*\bregister$"),
        (RULES, ["--snake", "yours"], r"'yours'.* mine"),
        (RULES, ["--nodes", "5"], "search"),
        (RULES, ["--color", "blue"], r"color.* #rrggbb.* #3366cc.* 'blue'"),
        (RULES, ["--filters"], r"--filters.* --policy"),
        (RULES, ["--evaluation", str(EVALUATION)], "--evaluation"),
        ("x = 1", ["--policy", "shipped"], "`rules`"),
        (RULES, ["--policy", "shipped", "--filters", "walls"], "nor a selected filter"),
        ("rules = 1", ["--policy", "shipped"], r"\brules\b"),
        (RULES, ["--policy", "nowhere.onnx"], "nowhere"),
        (RULES, ["--policy", "shipped", "--filters", "edge"], r"'edge'.*edges"),
        (
            RULES + "snakes.register('mine', lambda seed: open('more.txt'))",
            [],
            "files",
        ),
    ],
)
def test_what_does_not_play_is_not_packed(
    source: str,
    options: list[str],
    message: str,
    rules: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rules.write_text(source)
    # Messages shorten long paths, so the names are relative.
    monkeypatch.chdir(tmp_path)
    assert pack_command.main([rules.name, *options, "-o", "snake.zip"]) == 2
    assert re.search(message, capsys.readouterr().err)
    assert list(tmp_path.iterdir()) == [rules]


def test_rules_over_a_policy_of_another_size_are_tried(
    make_policy: Callable[..., Path], rules: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules.write_text(
        "from battlesnake_heuristics import Filter\n"
        "rules = [Filter(lambda view, move: float(open('more.txt').read()))]\n"
    )
    policy = make_policy(sizes=[(7, 7)])
    options = [str(rules), "--policy", str(policy), "-o", str(rules.with_name("snake.zip"))]
    assert pack_command.main(options) == 2
    assert "more.txt" in capsys.readouterr().err


def test_the_command_says_what_is_in_it(rules: Path, tmp_path: Path) -> None:
    own = os.environ | {
        "BATTLESNAKE_GYM_EXTENSIONS": rules.name
    }  # Other processes do not find this relative path.
    done = run(*COMMAND, "pack", rules, *LOOKS, cwd=tmp_path, env=own, check=True)
    assert re.search("bytes.* mine", done.stdout)
    assert re.search(r"#123456.* evil", done.stdout)


def test_a_file_with_functions_is_packed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "mine.py", tmp_path / "mine.zip"
    source.write_text("info = lambda: {'head': 'evill'}\nmove = lambda state: 'left'\n")
    assert pack_command.main([str(source), "--color", "#123456", "-o", str(output)]) == 0
    assert capsys.readouterr().out.endswith("head evill (drawn as default), color #123456\n")
    packed = Bundle.load(output)
    assert packed.customization == {"head": "evill", "color": "#123456"}
    decision = packed.factory()(1)(Board.new(7, 7, 2), 0.1)
    assert snakes.to_decision(decision).move == "left"
    source.write_text("info = lambda: {'color': 'red'}\nmove = lambda state: 'left'\n")
    assert pack_command.main([str(source), "-o", str(output)]) == 2
    assert re.search(r"info\(\) in .*mine\.py: color must be", capsys.readouterr().err)
    source.write_text(RULES + "\nrules = [filters.walls]\nasync def move(state): ...\n")
    assert pack_command.main([str(source), "--policy", "shipped", "-o", str(output)]) == 0


@pytest.mark.parametrize(
    "count", [60, pytest.param(1000, marks=[pytest.mark.slow])], ids=["few", "a-thousand"]
)
@pytest.mark.parametrize("kind", list(KINDS))
def test_the_same_moves_everywhere(
    kind: str,
    count: int,
    rules: Path,
    make: Callable[..., Path],
    serve: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kind == "rules over a policy":
        rules.write_text(OVER_A_POLICY)
    path = make(*(rules if word == "RULES" else word for word in KINDS[kind]))
    bodies = recorded(count)
    with snakes.capture_registrations() as registered, bundle.capture_filter_registrations():
        bundle.run_extension_code(RULES.encode(), "rules")
        learned = strategy_factory(DEFAULT_POLICY_PATH, filters=[*SAFE_FILTER_NAMES, "edges"])
        if kind == "rules over a policy":
            learned = strategy_factory(DEFAULT_POLICY_PATH, filters=["walls"], rules=rules)
    searching = snakes.factory("champion@30")
    builds = {"rules": registered["mine"], "evaluation": searching}
    build = builds.get(kind, learned)
    moves = played(build, bodies)
    assert len(set(moves)) == 4

    assert played(Entrant(str(path), "mine").strategy_factory(), bodies) == moves, "the arena"
    address = serve("--snake", str(path))
    assert over_http(address, "/move", bodies) == moves, "serve"
    with zipfile.ZipFile(path) as archive:
        archive.extractall(tmp_path / "task")
    assert on_lambda(tmp_path / "task", bodies, monkeypatch) == moves, "Lambda"
    dockerfile = Path(__file__).parents[2] / "deployment/server/Dockerfile"
    words = json.loads(re.findall(r"^CMD (.*)$", dockerfile.read_text(), re.MULTILINE)[-1])
    port, programs = str(free_port()), f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {"PATH": programs, "BATTLESNAKE_SNAKE": str(path), "PORT": port}
    with served(words, port, env=environment, cwd=tmp_path) as address:
        assert over_http(address, "/move", bodies) == moves, "the image's command"
    for replay, seed in in_a_league(path, tmp_path, count):
        assert_the_league_plays(build, replay, seed)


@pytest.mark.parametrize("code", ["lambda seed: {}[0]", "lambda seed: lambda *board: {}[0]"])
def test_pack_names_the_line_of_a_snake_that_fails(
    code: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "faulty.py"
    path.write_text(f"from battlesnake_gym import snakes\nsnakes.register('faulty', {code})\n")
    assert pack_command.main([str(path), "-o", str(tmp_path / "snake.zip")]) == 2
    assert (
        "the snake cannot play: snake.zip/rules.py, line 2: KeyError: 0" in capsys.readouterr().err
    )
