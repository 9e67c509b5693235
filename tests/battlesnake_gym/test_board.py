"""Boards: formats, safe moves, playing and equality."""

from __future__ import annotations

import copy
import itertools
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from battlesnake_gym import rules
from battlesnake_gym.boards.board import UNKNOWN_SEED, Board, BoardError
from battlesnake_gym.rules import MOVES, Game, RulesError, Settings, Snake
from tests.json_strategies import JUNK, places, replaced


def cells(*points: tuple[int, int]) -> list[dict[str, int]]:
    return [{"x": x, "y": y} for x, y in points]


def request() -> dict[str, Any]:
    """Return a request as the official CLI sends it."""
    me = {
        "id": "me", "name": "My Snake", "latency": "111", "health": 54,
        "body": cells((0, 0), (1, 0), (2, 0)), "head": {"x": 0, "y": 0}, "length": 3,
        "shout": "why are we shouting??", "squad": "",
        "customizations": {"color": "#FF0000", "head": "pixel", "tail": "pixel"},
    }  # fmt: skip
    other = {
        "id": "other", "name": "Another", "latency": "222", "health": 16,
        "body": cells((5, 4), (5, 3), (6, 3), (6, 2)), "head": {"x": 5, "y": 4}, "length": 4,
        "shout": "", "squad": "",
        "customizations": {"color": "#26CF04", "head": "silly", "tail": "curled"},
    }  # fmt: skip
    return {
        "game": {
            "id": "totally-unique", "map": "standard", "timeout": 700, "source": "league",
            "ruleset": {
                "name": "wrapped", "version": "cli",
                "settings": {
                    "foodSpawnChance": 25, "minimumFood": 2, "hazardDamagePerTurn": 15,
                    "hazardMap": "", "hazardMapAuthor": "", "royale": {"shrinkEveryNTurns": 5},
                    "squad": {
                        "allowBodyCollisions": False, "sharedElimination": False,
                        "sharedHealth": False, "sharedLength": False,
                    },
                },
            },
        },
        "turn": 14,
        "board": {
            "height": 11, "width": 9, "food": cells((5, 5), (2, 6)), "snakes": [me, other],
            "hazards": cells((3, 2), (3, 2), (1, 7)),
        },
        "you": copy.deepcopy(me),
    }  # fmt: skip


def games(count: int, seed: int = 0) -> list[list[Board]]:
    """Play random games, with mostly safe moves, on all rulesets and several maps."""
    played = []
    for number in range(count):
        draw = random.Random(seed + number)
        game = Game(
            ruleset=draw.choice(list(rules.RULESETS)),
            map=draw.choice(["standard", "royale", "empty", "healing_pools", "hz_spiral"]),
            settings=Settings(shrink_every_n_turns=5, food_spawn_chance=draw.choice([0, 15, 80])),
            seed=number + 1,
        )
        board = Board.new(7, 7, draw.choice([1, 2, 3]), game=game)
        boards = [board.copy()]
        while not board.is_over() and board.turn < 120:
            board.step({s.id: draw.choice(board.safe_moves(s.id) or ["up"]) for s in board.living})
            boards.append(board.copy())
        played.append(boards)
    return played


def test_request_round_trip() -> None:
    assert Board.from_api(request()).to_api() == {
        **request(),
        "you": request()["board"]["snakes"][0],
    }


def test_request_is_read() -> None:
    board = Board.from_api(request(), seed=9)
    assert (board.turn, board.width, board.height) == (14, 9, 11)
    assert board.game == Game(
        "wrapped", "standard", Settings(25, 2, 15, 5), 9, False, "totally-unique", 700, "league"
    )
    assert board.you.body == [(0, 0), (1, 0), (2, 0)]
    assert (board.you.name, board.you.latency, board.you.health) == ("My Snake", "111", 54)
    assert board.hazards == [(3, 2), (3, 2), (1, 7)]


def test_minimal_request_gets_default_settings() -> None:
    board = Board.from_api(
        {"board": {"width": 3, "height": 2, "snakes": [{"id": "a", "body": cells((1, 1))}]}}
    )
    assert board.game == Game(map="", seed=UNKNOWN_SEED, solo=True)
    assert board.you_id is None
    assert board.snakes[0].health == 100


@pytest.mark.parametrize(
    ("sent", "read"), [("12", "12"), (12, "12"), (12.5, "12.5"), ("", ""), (None, "")]
)
def test_latency_can_be_text_or_number(sent: object, read: str) -> None:
    body = request()
    body["board"]["snakes"][0]["latency"] = sent
    assert Board.from_api(body).you.latency == read


def test_null_lists_unknown_fields_and_rulesets_are_accepted() -> None:
    body = request()
    body["board"] |= {"food": None, "hazards": None, "sponsor": {"x": 1}}
    body["game"]["ruleset"]["name"] = "squad"
    body["royale"] = True
    board = Board.from_api(body)
    assert board.food == board.hazards == []
    board.step({"me": "down", "other": "up"})
    assert not board.snake("me").alive  # unknown rulesets are played as standard, without wrapping


def test_health_is_clamped_to_100() -> None:
    body = request()
    body["board"]["snakes"][0]["health"] = 150
    assert Board.from_api(body).you.health == 100


def test_listed_snakes_without_health_or_board_are_eliminated() -> None:
    body = request()
    body["board"]["snakes"][1]["health"] = 0
    body["board"]["snakes"].append({"id": "gone", "health": 0, "body": []})
    body["board"]["snakes"].append({"id": "walled", "body": cells((0, 11), (0, 10), (0, 9))})
    board = Board.from_api(body)
    assert [snake.id for snake in board.living] == ["me"]
    assert board.snake("other").eliminated_cause == "out-of-health"
    assert board.snake("walled").eliminated_cause == "wall-collision"


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (cells((8, 8), (8, 7), (8, 6)), ""),
        (cells((8, 8), (8, 8), (8, 8)), ""),
        (cells((6, 3), (7, 3), (8, 3)), "snake-collision"),
        (cells((5, 4), (4, 4), (3, 4)), "head-collision"),
        (cells((1, 5), (1, 6), (2, 6), (2, 5), (1, 5), (0, 5)), "snake-self-collision"),
    ],
)
def test_unlisted_you_is_added(body: list[dict[str, int]], cause: str) -> None:
    sent = request()
    del sent["board"]["snakes"][0]
    sent["you"]["body"] = body
    board = Board.from_api(sent)
    assert board.you.id == "me"
    assert board.you.eliminated_cause == cause


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ((), [], r"request.* JSON.* \[\]"),
        (("board",), None, "board"),
        (("board", "width"), None, r"board\.width"),
        (("board", "width"), 0, r"board\.width.* 1.* 100.* 0"),
        (("board", "height"), 10**9, r"board\.height.* 1.* 100.* 1000000000"),
        (("board", "height"), True, r"board\.height.* True"),
        (("board", "snakes"), {}, r"board\.snakes.* \{\}"),
        (("board", "snakes", 1), "x", r"board\.snakes\[1\].* JSON.* 'x'"),
        (("board", "snakes", 1, "id"), 7, r"board\.snakes\[1\]\.id.* 7"),
        (("board", "snakes", 1, "id"), "me", r"board\.snakes\[1\]\.id 'me'"),
        (("board", "snakes", 1, "body"), [], r"board\.snakes\[1\]\.body"),
        (
            ("board", "snakes", 1, "body", 0, "x"),
            "5",
            r"board\.snakes\[1\]\.body\[0\]\.x.* '5'",
        ),
        (("board", "snakes", 1, "body", 2), [6, 3], r"board\.snakes\[1\]\.body\[2\]"),
        (("board", "food", 1, "y"), 1.5, r"board\.food\[1\]\.y.* 1\.5"),
        (("board", "snakes", 0, "latency"), [], r"board\.snakes\[0\]\.latency"),
        (("game",), 3, r"game.* JSON.* 3"),
        (("game", "timeout"), "500", r"game\.timeout.* '500'"),
        (("game", "ruleset", "settings", "minimumFood"), "1", r"settings\.minimumFood"),
        (("turn",), -1, r"turn.* 0.* -1"),
        (("you",), "me", r"you.* JSON.* 'me'"),
        (("you", "id"), None, r"you\.id"),
    ],
)
def test_error_names_path_value_and_remedy(
    path: tuple[str | int, ...], value: object, message: str
) -> None:
    with pytest.raises(BoardError, match=f"^.*{message}"):
        Board.from_api(replaced(request(), path, value))


@given(st.sampled_from([(), *places(request())]), JUNK)
@settings(max_examples=400)
def test_fuzzed_request_is_read_or_rejected(path: tuple[str | int, ...], value: object) -> None:
    try:
        board = Board.from_api(replaced(request(), path, value))
    except BoardError:
        return
    assert Board.from_api(board.to_api()).game == board.game
    str(board)
    for snake in board.living:
        board.safe_moves(snake.id)


def test_text_round_trip() -> None:
    for boards in games(40):
        for board in boards:
            board.memory.clear()  # not part of the text
            board.you_id = board.snakes[0].id
            assert Board.from_text(str(board)) == board, str(board)


def test_bodies_without_arrows_are_listed_as_cells() -> None:
    board = Board.from_text("turn=3\nA < .\n. . .")
    board.snakes[0].body = [(0, 0), (0, 0), (1, 0), (0, 0)]
    board.snakes.append(Snake("b", [(1, 0), (2, 0), (2, 1)]))
    board.snakes.append(Snake("c", [(0, 2), (0, 1)], eliminated_cause="wall-collision"))
    board.food += [(0, 0), (9, 9)]
    board.hazards += [(-1, 4)] + [(2, 1)] * 12
    assert Board.from_text(str(board)) == board
    assert "at=0,0/0,0/1,0/0,0" in str(board)


def test_wrapped_bodies_cross_the_edge() -> None:
    board = Board.from_text("ruleset=wrapped\nA . > >\n. . . .")
    assert board.snakes[0].body == [(0, 1), (3, 1), (2, 1)]


def test_text_with_all_attributes() -> None:
    board = Board.from_text(
        """
        turn=12 ruleset=royale map=standard seed=7 hazard_damage_per_turn=5
        . . .~.~
        . A < .2
        B . ^ *
        ^ . . .
        A: id=me name="My Snake" health=90 length=5 you
        C: id=late at=0,3/0,2 cause=head-collision by=me on=9
        hazards: 0,0 9,9
        food: 3,3
        """
    )
    assert board.game == Game("royale", settings=Settings(hazard_damage_per_turn=5), seed=7)
    assert (board.turn, board.width, board.height, board.you_id) == (12, 4, 4, "me")
    assert board.you.body == [(1, 2), (2, 2), (2, 1), (2, 1), (2, 1)]
    assert (board.you.name, board.you.health) == ("My Snake", 90)
    assert board.snake("b").body == [(0, 1), (0, 0), (0, 0)]
    assert board.food == [(3, 1), (3, 3)]
    assert board.hazards == [(2, 3), (3, 3), (3, 2), (3, 2), (0, 0), (9, 9)]
    late = board.snake("late")
    assert (late.eliminated_cause, late.eliminated_by, late.eliminated_on) == (
        "head-collision", "me", 9,
    )  # fmt: skip


def test_spaces_are_ignored() -> None:
    text = ". A~ <2 .\n. . *~ ."
    assert (
        Board.from_text(text)
        == Board.from_text(".A~<2.\n\n  ..*~.")
        == Board.from_text(str(Board.from_text(text)))
    )
    assert Board.from_text(text).hazards == [(1, 1), (2, 1), (2, 1), (2, 0)]


def test_more_snakes_than_letters() -> None:
    board = Board.from_text("A")
    board.snakes = [Snake(f"s{i}", [(i % 8, i // 8)]) for i in range(40)]
    board.width = board.height = 8
    board.game = Game(seed=UNKNOWN_SEED)
    assert Board.from_text(str(board)) == board


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "row"),
        (". .\n.", r"row 2.* 1.* 2"),
        (". ? .", r"row 1.* 2.* '\?'"),
        (".x.", r"row 1.* 2.* 'x'"),
        ("A < . <", r"'<'.* \(3, 0\)"),
        ("> A <", r"\(0, 0\).* \(2, 0\).* \(1, 0\)"),
        ("A . A", r"\bA\b"),
        ("A <\nA: length=1", r"A.* length=1.* 2"),
        ("A <\nA: length=1000000000", r"A: length must be at most 10000, got 1000000000"),
        pytest.param("A " + "< " * 30_000, "at most 10000, got 30001", id="a long snake"),
        pytest.param("A\nA: " + "x" * 999, "^.{100}$", id="a long attribute"),
        ("A\nA: health=full", r"A.* health.* 'full'"),
        ("A\nA: health=150", r"A: health.* 1 to 100.* 150"),
        ("A\nA: health=0", r"A: health.* 1 to 100.* 0"),
        ("A\nA: colour=red", r"A.* 'colour'"),
        ("A\nB: id=b", r"^.*\bB:"),
        ("A\nB: at=1;2", r"B.* x,y.* '1;2'"),
        ("A B\nB: id=a", r"B.* 'a'"),
        ("A B\nA: you\nB: you", r"\byou\b.* a, b"),
        ("A\nA: cause=boredom", r"A.* cause=boredom"),
        ("moon=full\nA", "'moon'"),
        ("solo=true\nA", r"solo.* True or False.* 'true'"),
        ("view_radius=-1\nA", r"view_radius.* at least 0.* -1"),
        ("turn=1 late\nA", r"'late'.* key=value"),
        ('A\nA: name="Ann', "'name=\"Ann'"),
        ("A\nx: 3", "letter"),
    ],
)
def test_text_error_names_the_problem(text: str, message: str) -> None:
    with pytest.raises(BoardError, match=message):
        Board.from_text(text)


def survives(board: Board, moves: dict[str, str], snake_id: str) -> tuple[bool, bool]:
    """Return whether the snake survives these moves, and whether all others do."""
    after = board.copy()
    after.step(moves)
    rest = [snake.alive for snake in after.snakes if snake.id in moves and snake.id != snake_id]
    return after.snake(snake_id).alive, all(rest)


def test_safe_moves_agree_with_the_rules() -> None:
    """Play all combinations of moves: unsafe moves are always fatal, safe moves are not."""
    compared = 0
    for boards in games(60, seed=500):
        for board in boards[:: max(1, len(boards) // 12)]:
            if board.is_over():
                continue
            ids = [snake.id for snake in board.living]
            for snake_id in ids:
                safe = board.safe_moves(snake_id)
                others = [name for name in ids if name != snake_id]
                for move in MOVES:
                    outcomes = [
                        survives(
                            board,
                            {snake_id: move, **dict(zip(others, rest, strict=True))},
                            snake_id,
                        )
                        for rest in itertools.product(MOVES, repeat=len(others))
                    ]
                    compared += 1
                    if move in safe:
                        assert any(alive for alive, _ in outcomes), (str(board), snake_id, move)
                    else:
                        assert not any(alive and rest for alive, rest in outcomes), (
                            str(board), snake_id, move,
                        )  # fmt: skip
    assert compared > 2000


@pytest.mark.parametrize(
    ("text", "moves"),
    [
        ("turn=9\n. A . .\n. ^ . .\n. ^ . .", ["left", "right"]),
        ("A <\n. ^", ["down"]),
        ("A <\n> ^\nA: length=5", []),
        ("A <\n> ^\nA: length=4", ["down"]),
        ("ruleset=wrapped\n. . .\nA < .\n. . .", ["up", "down", "left"]),
        (". B .\n. A *\n. . .\nA: health=1", ["right"]),
        (".~.2.~\n.~A .\n. .9.\nA: health=20", ["left", "right"]),
        (".~*9.~\n.~A .\n. .9.\nA: health=2", ["up", "right"]),
        ("hazard_damage_per_turn=-9\n.~A .\nA: health=1", ["left"]),
        ("A\nB: at=0,0/0,1 cause=hazard", []),
    ],
)
def test_safe_moves_of_examples(text: str, moves: list[str]) -> None:
    assert Board.from_text(text).safe_moves("a") == moves


def test_safe_moves_default_to_you() -> None:
    board = Board.from_text("A . .\n. . B\nB: you")
    assert board.safe_moves() == board.safe_moves("b") == ["up", "left"]
    board.you_id = None
    with pytest.raises(BoardError, match=r"board\.you_id"):
        board.safe_moves()
    with pytest.raises(RulesError, match=r"'x'.* 'a'.* 'b'"):
        board.safe_moves("x")


@pytest.mark.parametrize(
    ("moves", "message"),
    [
        ({"a": "up"}, r"'b'.* up, down, left, right"),
        ({"a": "up", "b": "UP"}, r"'b'.* up, down, left, right.* 'UP'"),
        ({"a": "up", "b": "up", "c": "up"}, r"'c'.* 'a'.* 'b'"),
    ],
)
def test_invalid_step_changes_nothing(moves: dict[str, str], message: str) -> None:
    board = Board.from_text("A . B")
    before = board.copy()
    with pytest.raises((BoardError, RulesError), match=message):
        board.step(moves)
    assert board == before


@pytest.mark.parametrize("ruleset", ["standard", "royale"])
def test_without_seed_nothing_is_random(ruleset: str) -> None:
    body = request()
    body["board"]["food"] = []
    body["game"]["ruleset"]["name"] = ruleset
    board = Board.from_api(body)
    hazards = list(board.hazards)
    for _ in range(20):
        board.step({s.id: (board.safe_moves(s.id) or ["up"])[0] for s in board.living})
    assert board.food == []
    assert board.hazards == hazards
    seeded = Board.from_api(body, seed=3)
    seeded.step({"me": "up", "other": "up"})
    assert len(seeded.food) == 2  # this game's minimum_food


def test_winner_is_the_last_living_snake() -> None:
    start = Board.from_text("A . . B")
    assert start.winner is None
    board = start.copy()
    board.step({"a": "up", "b": "left"})
    assert board.is_over()
    assert board.winner is board.snake("b")
    assert repr(board) == "<Board turn 1, 4x1, 1 of 2 alive>"


def test_copy_is_equal_and_independent() -> None:
    for boards in games(10, seed=90):
        board = boards[len(boards) // 2]
        before, twin = str(board), board.copy()
        assert twin == board
        assert hash(twin) == hash(board)
        if twin.living:
            twin.step({s.id: "up" for s in twin.living})
            assert twin != board
        assert str(board) == before


def test_equality_ignores_display_fields() -> None:
    board = Board.from_text("* A * B .~.\nA: you")
    twin = board.copy()
    twin.food.reverse()
    twin.snakes[0].shout = twin.snakes[0].name = twin.snakes[0].latency = "else"
    assert twin == board
    assert len({board, twin}) == 1
    for change in ("turn", "width"):
        other = board.copy()
        setattr(other, change, 99)
        assert other != board
    for name, value in [("health", 3), ("body", [(1, 0)]), ("eliminated_cause", "hazard")]:
        other = board.copy()
        setattr(other.snakes[0], name, value)
        assert other != board
    other = board.copy()
    other.you_id = "b"
    assert other != board
    other = board.copy()
    other.memory["x"] = 1
    assert other != board
    assert board != "A"


def test_notebook_shows_svg() -> None:
    assert Board.from_text("A < *")._repr_svg_().startswith("<svg")
