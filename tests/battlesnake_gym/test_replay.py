"""Replays: lossless files, old formats, and errors about damaged files."""

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.draw import drawing
from battlesnake_gym.replays import limits, official_format
from battlesnake_gym.replays.replay import Replay, ReplayError
from battlesnake_gym.rules import RULESETS, Game, Settings
from battlesnake_gym.snakes import Decision, Reason
from tests.battlesnake_gym import hostile_replays
from tests.json_strategies import JUNK, places, replaced


def record(seed: int, *, ruleset: str, map_id: str, snakes: int = 3, wild: float = 0.05) -> Replay:
    """Record a random game with all kinds of data."""
    draw = random.Random(seed)
    game = Game(ruleset, map_id, Settings(shrink_every_n_turns=4), seed + 1, id=f"g{seed}")
    board = Board.new(11, 11, snakes, game=game)
    for snake in board.snakes:
        snake.name, snake.customizations = snake.id.upper(), {"color": "#123456"}
    replay = Replay(board, info={"recorder": "test", "number": seed})
    while not replay.last.is_over() and len(replay.turns) < 80:
        board = replay.last
        moves = {s.id: draw.choice(board.safe_moves(s.id) or ["up"]) for s in board.living}
        if draw.random() < wild:
            moves[draw.choice(list(moves))] = draw.choice(["", "UP", "left", "nope"])
        decisions = {
            snake_id: Decision(
                move,
                (Reason("walls", ("up",), {"down": draw.random()}, "note"),),
                {"up": float("-inf"), "down": draw.random()},
                "boo",
            )
            for snake_id, move in moves.items()
        }
        replay.append(
            moves,
            latency={snake_id: round(draw.random() * 500, 2) for snake_id in moves},
            shouts={snake_id: "boo" for snake_id in moves if draw.random() < 0.2},
            decisions=decisions,
        )
    return replay


ALL = [(ruleset, "standard") for ruleset in RULESETS] + [
    ("standard", name)
    for name in ("royale", "hz_castle_wall", "healing_pools", "snail_mode", "hz_spiral")
]


def stored(replay: Replay, folder: Path) -> Replay:
    """Save a replay and load it again."""
    replay.save(folder / "stored.jsonl")
    return Replay.load(folder / "stored.jsonl")


@pytest.mark.parametrize(("ruleset", "map_id"), ALL)
@pytest.mark.parametrize("name", ["game.jsonl", "game.jsonl.gz"])
def test_round_trip_keeps_everything(tmp_path: Path, ruleset: str, map_id: str, name: str) -> None:
    replay = record(3, ruleset=ruleset, map_id=map_id, snakes=3)
    replay.save(tmp_path / name)
    loaded = Replay.load(tmp_path / name)
    assert loaded == replay
    assert loaded.to_lines() == replay.to_lines()
    for original, read in zip(replay.boards(), loaded.boards(), strict=True):
        assert original == read
        assert original.snakes == read.snakes  # names, latencies and shouts too
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_equal_games_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        record(5, ruleset="standard", map_id="standard").save(tmp_path / name)
    content = (tmp_path / "a.jsonl.gz").read_bytes()
    assert content == (tmp_path / "b.jsonl.gz").read_bytes()
    assert content[4:8] == bytes(4)  # the timestamp of gzip


def test_files_are_strict_json(tmp_path: Path) -> None:
    """Files contain no Infinity, which browsers reject; NumPy numbers are supported."""
    replay = Replay(Board.from_text("A . B"))
    scores: dict[str, Any] = {"up": float("inf"), "down": np.float32(0.5), "left": np.int64(3)}
    replay.append({"a": "up", "b": "up"}, decisions={"a": Decision("up", scores=scores)})
    replay.save(tmp_path / "game.jsonl")

    def reject(word: str) -> None:
        raise AssertionError(word)

    for line in (tmp_path / "game.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=reject)
    loaded = Replay.load(tmp_path / "game.jsonl").turns[0].decisions["a"].scores
    assert loaded == {"up": float("inf"), "down": 0.5, "left": 3}


def test_board_returns_the_position_of_a_turn() -> None:
    replay = record(7, ruleset="standard", map_id="standard")
    boards = list(replay.boards())
    for turn in (0, 1, len(replay.turns) // 2, len(replay.turns)):
        board = replay.board(turn)
        assert board == boards[turn]
        assert board.turn == turn
    for turn in (-1, len(boards)):
        with pytest.raises(ReplayError, match=rf"turn .*\b0 .* {turn}\b"):
            replay.board(turn)


def test_boards_are_independent() -> None:
    replay = record(7, ruleset="standard", map_id="standard")
    before = replay.to_lines()
    for board in [*replay.boards(), replay.last, replay.board(2)]:
        board.snakes[0].body.append((0, 0))
        board.food.append((0, 0))
    assert replay.to_lines() == before
    assert len(set(replay.boards())) == len(replay.turns) + 1


def test_positions_that_differ_from_the_rules_are_kept(tmp_path: Path) -> None:
    """Another engine placed food, moved a hazard and raised a snake's health."""
    replay = Replay(Board.from_text("A . . B"))
    after = replay.last
    after.step({"a": "right", "b": "left"})
    after.food, after.hazards = [(0, 0)], [(3, 0)]
    after.snakes[1].health = 50
    replay.append({"a": "right", "b": "left"}, after=after)
    replay.append({"a": "right", "b": "left"}, after=None)
    again = stored(replay, tmp_path)
    assert again.board(1) == after
    assert again.last.food == [(0, 0)]
    assert again.last == replay.last
    before = json.dumps(replay.to_lines())
    for board in [after, *replay.boards()]:
        board.food.clear()
        board.hazards.clear()
        board.snakes[1].body.clear()
    assert json.dumps(replay.to_lines()) == before


def test_later_turns_do_not_change_stored_food() -> None:
    """The rules add food on the second turn, which must not appear on the first."""
    game = Game(seed=4, settings=Settings(food_spawn_chance=100))
    replay = Replay(Board.new(snakes=2, game=game))
    after = replay.last
    moves = {snake.id: "up" for snake in after.snakes}
    after.step(moves)
    after.food = [(5, 5)]
    replay.append(moves, after=after)
    replay.append(moves)
    assert len(replay.last.food) == 2
    assert replay.board(1).food == [(5, 5)]


def test_memory_of_maps_is_kept(tmp_path: Path) -> None:
    middle = record(3, ruleset="standard", map_id="hz_castle_wall").board(30)
    assert any(isinstance(value, list) for value in middle.memory.values())
    replay = Replay(middle)
    for _ in range(5):
        board = replay.last
        replay.append({s.id: (board.safe_moves(s.id) or ["up"])[0] for s in board.living})
    again = stored(replay, tmp_path)
    assert list(again.boards()) == list(replay.boards())


def test_positions_that_follow_from_the_rules_are_not_stored() -> None:
    replay = Replay(Board.new(snakes=2))
    after = replay.last
    after.step({"snake_0": "up", "snake_1": "down"})
    replay.append({"snake_0": "up", "snake_1": "down"}, after=after)
    assert set(replay.to_lines()[1]) == {"turn", "moves"}


def test_latency_and_shout_appear_on_the_next_board() -> None:
    replay = Replay(Board.from_text("A . . B"))
    replay.append({"a": "right", "b": "left"}, latency={"a": 12.5, "b": 7}, shouts={"b": "hey"})
    replay.append({"a": "up", "b": "up"})
    first, second = replay.board(1), replay.board(2)
    assert [(s.latency, s.shout) for s in first.snakes] == [("12.5", ""), ("7", "hey")]
    assert [(s.latency, s.shout) for s in second.snakes] == [("12.5", ""), ("7", "")]


def test_turn_needs_the_moves_of_all_living_snakes() -> None:
    replay = Replay(Board.from_text("A . . B"))
    before = replay.last
    with pytest.raises(ValueError, match="b"):
        replay.append({"a": "right"})
    assert replay.turns == []
    assert replay.last == before


Change = Callable[[list[Any]], object]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines.clear(), r"game\.jsonl"),
        (lambda lines: lines.pop(), r"game\.jsonl.* line 3.* 'end'"),
        (lambda lines: lines.pop(1), r"line 2.* turn.* 1.* 2"),
        (lambda lines: lines.pop(0), r"line 1.* replay"),
        (lambda lines: lines.insert(1, 7), r"line 2.* JSON.* 7"),
        (lambda lines: lines[0].update(replay=99), r"line 1.* replay.* 1.* 2.* 99"),
        (lambda lines: lines[0]["game"].pop("seed"), r"line 1.* game\.seed"),
        (
            lambda lines: lines[0]["first"]["snakes"][1]["body"].__setitem__(0, [3]),
            r"line 1.* first\.snakes\[1\]\.body\[0\].* \[x, y\].* \[3\]",
        ),
        (
            lambda lines: lines[0]["first"]["snakes"][0].update(eliminated_cause="boredom"),
            r"line 1.* first\.snakes\[0\]\.eliminated_cause",
        ),
        (lambda lines: lines[2]["moves"].pop("a"), r"line 3.*\ba\b"),
        (lambda lines: lines[2].update(moves=[]), r"line 3.* moves.* JSON.* \[\]"),
        (lambda lines: lines[2]["moves"].update(a=3), r"line 3.* moves\.a.* 3"),
        (
            lambda lines: lines[2].update(latency={"a": "slow"}),
            r"line 3.* latency\.a.* 'slow'",
        ),
        (
            lambda lines: lines[2].update(decisions={"a": {"move": "up", "reasons": [4]}}),
            r"line 3.* decisions\.a\.reasons\[0\].* JSON.* 4",
        ),
        (lambda lines: lines[2].update(food=[[1, "x"]]), r"line 3.* food\[0\]\.y"),
        (lambda lines: lines[2]["moves"].update(a="up"), r"line 4.* end"),
        (lambda lines: lines[3]["end"].update(turn=9), r"line 4.* end"),
    ],
)
def test_damaged_file_names_line_and_field(tmp_path: Path, change: Change, message: str) -> None:
    replay = Replay(Board.from_text("A . . . .\n. . . . B"))
    replay.append({"a": "right", "b": "left"})
    replay.append({"a": "right", "b": "left"})
    lines = json.loads(json.dumps(replay.to_lines()))
    change(lines)
    (tmp_path / "game.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(ReplayError, match=message):
        Replay.load(tmp_path / "game.jsonl")


def test_truncated_files_are_rejected(tmp_path: Path) -> None:
    replay = record(2, ruleset="standard", map_id="standard")
    replay.save(tmp_path / "game.jsonl")
    replay.save(tmp_path / "game.jsonl.gz")
    for name, message in (("game.jsonl", "line .* is not JSON"), ("game.jsonl.gz", "damaged gzip")):
        content = (tmp_path / name).read_bytes()
        (tmp_path / name).write_bytes(content[: len(content) * 2 // 3])
        with pytest.raises(ReplayError, match=message):
            Replay.load(tmp_path / name)
    (tmp_path / "picture.jsonl").write_bytes(bytes(range(256)))
    with pytest.raises(ReplayError, match=r"line 1.* JSON"):
        Replay.load(tmp_path / "picture.jsonl")


def test_failed_save_keeps_the_old_file(tmp_path: Path) -> None:
    replay = record(2, ruleset="standard", map_id="standard")
    replay.save(tmp_path / "game.jsonl")
    before = (tmp_path / "game.jsonl").read_bytes()
    with (tmp_path / "game.jsonl").open("rb") as reader:
        record(4, ruleset="standard", map_id="standard").save(tmp_path / "game.jsonl")
        assert reader.read() == before  # a concurrent reader is not disturbed
    replay.save(tmp_path / "game.jsonl")
    replay.info["file"] = open  # not representable as JSON
    with pytest.raises(TypeError):
        replay.save(tmp_path / "game.jsonl")
    assert (tmp_path / "game.jsonl").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


OLD_FORMAT = Path(__file__).parents[1] / "data" / "formats" / "replay_1"


def test_format_1_is_read() -> None:
    """Format 1 called the field ``inferred`` ``guessed``."""
    replay = Replay.load(OLD_FORMAT / "inferred.jsonl")
    assert len(replay.turns[3].inferred) == 2
    assert [cause for _, _, cause in replay.deaths()] == ["head-collision"] * 2
    decisions = Replay.load(OLD_FORMAT / "decisions.jsonl.gz").turns[0].decisions
    assert all(decision.reasons for decision in decisions.values())
    head, *turns = replay.to_lines()
    assert head["replay"] == 2
    assert turns[3]["inferred"] == replay.turns[3].inferred
    assert "guessed" not in turns[3]


def visible(board: Board) -> object:
    living = [(s.id, s.name, s.shout, s.body, s.health) for s in board.living]
    return board.turn, living, board.food, board.hazards


@pytest.mark.parametrize(("ruleset", "map_id"), ALL)
def test_official_format_keeps_visible_positions(tmp_path: Path, ruleset: str, map_id: str) -> None:
    replay = record(11, ruleset=ruleset, map_id=map_id, wild=0.0)
    official_format.save(replay.boards(), tmp_path / "game.jsonl")
    loaded = Replay.load(tmp_path / "game.jsonl")
    assert [visible(board) for board in loaded.boards()] == [
        visible(board) for board in replay.boards()
    ]
    assert [(turn, who) for turn, who, _ in loaded.deaths()] == [
        (turn, who) for turn, who, _ in replay.deaths()
    ]
    assert loaded.game.seed == UNKNOWN_SEED
    assert (loaded.game.ruleset, loaded.game.settings) == (ruleset, replay.game.settings)
    for original, read in zip(replay.turns, loaded.turns, strict=True):
        assert original.latency.keys() >= read.latency.keys()
        for snake_id in set(read.moves) - set(read.inferred):
            assert original.moves[snake_id] == read.moves[snake_id]
    official_format.save(loaded.boards(), tmp_path / "again.jsonl")
    assert Replay.load(tmp_path / "again.jsonl").deaths() == loaded.deaths()
    loaded.save(tmp_path / "own.jsonl")
    assert Replay.load(tmp_path / "own.jsonl") == loaded


def test_official_format_has_the_lines_of_the_official_cli(tmp_path: Path) -> None:
    replay = Replay(Board.from_text("id=g1 timeout=300\nA . . . B\nA: name=Ann\nB: name=Bob"))
    replay.append({"a": "up", "b": "left"}, latency={"a": 5, "b": 8})
    official_format.save(replay.boards(), tmp_path / "game.jsonl")
    game, *turns, result = map(json.loads, (tmp_path / "game.jsonl").read_text().splitlines())
    assert list(game) == ["id", "ruleset", "map", "timeout", "source"]
    assert (game["id"], game["timeout"], game["ruleset"]["version"]) == ("g1", 300, "cli")
    assert [list(turn) for turn in turns] == [["game", "turn", "board", "you"]] * 2
    assert [[s["id"] for s in turn["board"]["snakes"]] for turn in turns] == [["a", "b"], ["b"]]
    assert turns[1]["you"]["latency"] == "8"
    assert result == {"winnerId": "b", "winnerName": "Bob", "isDraw": False}


def official(tmp_path: Path, *texts: str, you: dict[str, Any] | None = None) -> Path:
    """Write a file of the official CLI with these positions; ``you`` is set in the last one."""
    boards = [Board.from_text(text) for text in texts]
    lines = [boards[0].to_api()["game"]]
    for turn, board in enumerate(boards):
        board.turn = turn
        lines.append({**board.to_api(), "you": board.to_api(board.snakes[0].id)["you"]})
    if you:
        lines[-1]["you"] = you
    lines.append({"winnerId": "", "winnerName": "", "isDraw": True})
    path = tmp_path / "official.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def test_official_format_of_a_solo_game(tmp_path: Path) -> None:
    replay = Replay.load(official(tmp_path, "A < .\n. . ."))
    assert replay.game.solo
    assert not replay.last.is_over()


START = ". . .\nA < .\n. . .\n. . B\n. . ^"
NEXT = ". . .\n. . .\n. . B\n. . ^\n. . ^\nB: health=99"


def test_move_of_an_eliminated_snake_is_inferred(tmp_path: Path) -> None:
    replay = Replay.load(official(tmp_path, START, NEXT))
    assert replay.turns[0].inferred == ["a"]
    assert replay.turns[0].moves == {"a": "left", "b": "up"}  # straight ahead, into the wall
    assert replay.deaths() == [(1, "a", "wall-collision")]


def test_last_body_shows_the_move(tmp_path: Path) -> None:
    body = [{"x": 1, "y": 3}, {"x": 0, "y": 3}, {"x": 1, "y": 3}]
    you = {"id": "a", "health": 99, "body": body}
    replay = Replay.load(official(tmp_path, START, NEXT, you=you))
    assert replay.turns[0].inferred == []
    assert replay.turns[0].moves["a"] == "right"
    assert replay.deaths() == [(1, "a", "snake-self-collision")]


@pytest.mark.parametrize(
    ("later", "message"),
    [
        (". . .\n. A .\n. . .\n. . B\nC: at=0,0", r"line 3.* 'c'"),
        (". . .\n. . .\n. . B\n. . ^\nB: health=99", r"line 3.* 'a'"),
    ],
)
def test_inconsistent_official_file_is_rejected(tmp_path: Path, later: str, message: str) -> None:
    with pytest.raises(ReplayError, match=message):
        Replay.load(official(tmp_path, ". . .\n. A .\n. . .\n. . B", later))


def test_you_without_id_is_rejected(tmp_path: Path) -> None:
    you = {"id": [], "body": [{"x": 0, "y": 3}]}
    with pytest.raises(ReplayError, match=r"line 3.* you\.id.* \[\]"):
        Replay.load(official(tmp_path, START, NEXT, you=you))


def test_missing_turn_is_rejected(tmp_path: Path) -> None:
    path = official(tmp_path, START, NEXT)
    path.write_text(path.read_text().replace('"turn": 1', '"turn": 2'))
    with pytest.raises(ReplayError, match=r"line 3.* turn.* 1.* 2"):
        Replay.load(path)


def test_too_large_files_are_rejected_with_the_limit(tmp_path: Path) -> None:
    for name, words in hostile_replays.write(tmp_path).items():
        with pytest.raises(ReplayError) as caught:
            Replay.load(tmp_path / name)
        assert words in str(caught.value), name


@pytest.mark.parametrize(
    ("limit", "maximum"),
    [("MAX_REPLAY_TURNS", 2), ("MAX_TOTAL_CELLS", 100), ("MAX_REPLAY_SNAKES", 0),
     ("MAX_REPLAY_BYTES", 100), ("MAX_LINE_BYTES", 20), ("MAX_JSON_VALUES", 9)],
)  # fmt: skip
def test_too_large_game_is_saved_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, maximum: int
) -> None:
    replay = Replay(Board.from_text("ruleset=solo\nA . .\n. . ."))
    for move in ("right", "right", "down"):
        replay.append({"a": move})
    path = tmp_path / "large.jsonl"
    with monkeypatch.context() as small:
        small.setattr(limits, limit, maximum)
        with pytest.warns(UserWarning, match=rf"limits\.{limit}\b"):
            replay.save(path)
        with pytest.warns(UserWarning, match="limits"):
            Replay(replay.first, replay.turns).save(path)
        with pytest.raises(ReplayError, match=rf"limits\.{limit}\)"):
            Replay.load(path)
    assert Replay.load(path) == replay


@pytest.mark.parametrize("file_format", ["own", "official"])
@given(data=st.data())
@settings(max_examples=40)
def test_fuzzed_file_is_read_or_rejected(file_format: str, data: st.DataObject) -> None:
    lines = json.loads(json.dumps(FUZZED[file_format]))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.sampled_from(sorted(places(lines), key=str)))
        lines = replaced(lines, place, data.draw(JUNK))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "game.jsonl"
        path.write_text("\n".join(json.dumps(line) for line in lines))
        try:
            replay = Replay.load(path)
        except ReplayError:
            return
    for board in replay.boards():
        str(board).encode()
        json.dumps(board.to_api())
        ElementTree.fromstring(drawing.svg(board).encode())


def fuzzed(file_format: str) -> list[Any]:
    """Return the first turns of a game as JSON lines."""
    replay = record(3, ruleset="royale", map_id="healing_pools", snakes=2)
    replay = Replay(replay.first, replay.turns[:6])
    if file_format == "own":
        return replay.to_lines()
    with tempfile.TemporaryDirectory() as folder:
        official_format.save(replay.boards(), Path(folder) / "game.jsonl")
        return [json.loads(line) for line in (Path(folder) / "game.jsonl").read_text().splitlines()]


FUZZED = {name: fuzzed(name) for name in ("own", "official")}


@pytest.mark.parametrize("view_radius", [None, 3])
def test_the_view_radius_is_optional_in_a_file(tmp_path: Path, view_radius: int | None) -> None:
    settings = Settings(view_radius=view_radius)
    replay = Replay(Board.new(7, 7, 2, game=Game(settings=settings, seed=1)))
    path = tmp_path / "game.jsonl"
    replay.save(path)
    assert Replay.load(path).game.settings == settings
    path.write_text(path.read_text().replace('"view_radius":null', '"other":null'))
    assert Replay.load(path).game.settings == settings


@pytest.mark.parametrize(("ruleset", "minimum"), [("standard", 1), ("constrictor", 60)])
def test_snakes_with_limited_view_see_the_new_food_of_every_file(
    tmp_path: Path, ruleset: str, minimum: int
) -> None:
    settings = Settings(view_radius=2, food_spawn_chance=100, minimum_food=minimum)
    replay = Replay(Board.new(snakes=2, game=Game(ruleset, seed=5, settings=settings)))
    for _ in range(6):
        replay.append({s.id: replay.last.safe_moves(s.id)[0] for s in replay.last.living})
    path = tmp_path / "official.jsonl"
    official_format.save(replay.boards(), path)
    seen = []
    for board in (*replay.boards(), *Replay.load(path).boards()):
        board.you_id = "snake_0"
        seen.append(board.limited().food)
    assert seen[:7] == seen[7:]
    assert any(abs(x - 1) + abs(y - 1) > 9 for food in seen[1:7] for x, y in food)


@pytest.mark.parametrize("lists_stacked_segments_once", [False, True])
def test_replays_of_the_blackout_competition_are_read(
    tmp_path: Path, lists_stacked_segments_once: bool
) -> None:
    def cells(body: list[tuple[int, int]]) -> list[dict[str, int]]:
        once = dict.fromkeys(body) if lists_stacked_segments_once else body
        return [{"x": x, "y": y} for x, y in once]

    game = Game(seed=7, settings=Settings(food_spawn_chance=40))
    board = Board.new(11, 11, ["7", "8", "9", "10"], game=game)
    rng, boards, frames = random.Random(1), [], []
    while not board.is_over() and board.turn < 40:
        boards.append(board.copy())
        frames.append({
            "turn": board.turn, "width": 11, "height": 11, "food": cells(board.food),
            "dead_snakes": [],
            "snakes": [{"id": s.id, "name": f"s{s.id}", "health": s.health, "body": cells(s.body),
                        "head": cells(s.body)[0]} for s in board.living],
        })  # fmt: skip
        board.step({s.id: rng.choice(board.safe_moves(s.id) or ["up"]) for s in board.living})
    path = tmp_path / "12.json"
    path.write_text(json.dumps({"moves": frames}))
    replay = Replay.load(path)
    assert replay.game.settings.view_radius == 5
    read = list(replay.boards())
    assert len(read) == len(boards) > 15
    for shown, true in zip(read, boards, strict=True):
        assert [(s.id, s.body, s.health) for s in shown.living] == [
            (s.id, s.body, s.health) for s in true.living
        ]
        assert sorted(shown.food) == sorted(true.food)
    path.write_text('{"moves": []}')
    with pytest.raises(ReplayError, match=r"12\.json.*moves\[0\]"):
        Replay.load(path)
