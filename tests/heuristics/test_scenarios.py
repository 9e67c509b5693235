import json
from pathlib import Path

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.analysis.scenarios import (
    BUILTIN_SCENARIOS,
    Scenario,
    from_json,
    from_text,
    load,
    save,
)
from tests.heuristics.conftest import board_of

ALL = [scenario for file in BUILTIN_SCENARIOS for scenario in load(file)]

TEXT = """\
scenario: corner
note: One way.
allowed: up left
. . .
. . .
A < <
"""


def test_a_good_set_is_shipped() -> None:
    assert len(ALL) >= 12
    assert len({scenario.name for scenario in ALL}) == len(ALL)
    assert all(scenario.note for scenario in ALL)


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_careful_snakes_pass_with_any_seed(careful: str, scenario: Scenario) -> None:
    for seed in range(5):
        outcome = scenario.run(snakes.make(careful, seed))
        assert outcome.passed, f"{outcome.decision}\n{scenario.board}"


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_no_scenario_lets_everything_pass(scenario: Scenario) -> None:
    assert any(not scenario.run(snakes.make("random", seed)).passed for seed in range(20))


def test_snakes_see_only_the_cells_in_their_view() -> None:
    board = board_of("turn=1 view_radius=2\nA < . . * . B <")
    seen: list[Board] = []

    def strategy(board: Board, seconds: float | None = None) -> Decision:
        seen.append(board)
        return Decision("up")

    Scenario("hidden", board, ("up",)).run(strategy)
    assert (seen[0].food, seen[0].snake("b").head) == ([], (7, 0))


def test_text_is_read() -> None:
    (scenario,) = from_text(TEXT)
    assert (scenario.name, scenario.note, scenario.allowed) == (
        "corner",
        "One way.",
        ("up", "left"),
    )
    assert scenario.board.you.body == [(0, 0), (1, 0), (2, 0)]
    two = from_text(TEXT + "\n" + TEXT.replace("corner", "another") + "B: you at=1,2/2,2\n")
    assert [s.board.you_id for s in two] == ["a", "b"]


@pytest.mark.parametrize("ending", ["txt", "json"])
def test_files_keep_everything(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"all.{ending}"
    save(path, ALL)
    for before, after in zip(ALL, load(path), strict=True):
        assert (before.name, before.note, before.allowed) == (after.name, after.note, after.allowed)
        if ending == "txt":
            assert before.board == after.board
        else:  # only the contents of a request
            assert before.board.to_api() == after.board.to_api()


@pytest.mark.parametrize("ending", ["txt", "json"])
def test_a_file_with_limited_view_shows_only_visible_food(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"limited.{ending}"
    board = Board.from_text("turn=9 view_radius=2\n. . . . *\nA . * . B\n^ . . . ^\nA: you")
    save(path, [Scenario("limited", board, ("up",))])
    (scenario,) = load(path)
    assert scenario.board.limited().food == [(2, 1)]


def test_one_object_is_a_json_file_too(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(ALL[0].to_dict()))
    assert load(path)[0].name == ALL[0].name


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no scenario"),
        (". . .\n", "'scenario: NAME'"),
        (TEXT.replace("allowed: up left\n", ""), r"corner.* allowed.* none"),
        (TEXT.replace("up left", "north"), r"corner.* allowed.* north"),
        (TEXT.replace("A < <", "A < x"), "corner: .*unknown"),
        (TEXT.replace("A < <", ". . ."), r"corner.* board\.you"),
        (TEXT + "A: cause=hazard\n", r"corner.* board\.you"),
    ],
)
def test_broken_text_is_refused_by_name(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "broken.txt"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"broken\.txt: .*{says}"):
        load(path)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (3, r"JSON.* int"),
        ({"name": "n", "board": {}}, r"\bn\b.* allowed.* None"),
        ({"name": "n", "allowed": "up", "board": {}}, r"\bn\b.* allowed"),
        ({"name": "n", "allowed": ["up"]}, r"\bn\b.* board"),
    ],
)
def test_broken_json_is_refused_by_name(value: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_json(value)


@pytest.mark.parametrize(
    ("text", "says"), [("\n\n{", ".* line 3 column 2"), ("\n", "no scenario in the file; add an")]
)
def test_json_that_is_none_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"broken.json: {says}"):
        load(path)


def test_asking_leaves_the_scenario_as_it_is() -> None:
    (scenario,) = from_text(TEXT)
    before = scenario.board.copy()

    def vandal(board: Board, seconds: float | None = None) -> snakes.Decision:
        assert seconds == 0.5
        board.snakes.clear()
        return snakes.Decision("up")

    assert scenario.run(vandal).passed
    assert scenario.board == before


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_files_of_windows_editors_are_read(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.txt").write_bytes(TEXT.replace("\n", "\r\n").encode(encoding))
    save(tmp_path / "plain.json", from_text(TEXT))
    text = (tmp_path / "plain.json").read_text()
    (tmp_path / "a.json").write_bytes(text.replace("\n", "\r\n").encode(encoding))
    (scenario,) = load(tmp_path / "a.txt")
    assert scenario == from_text(TEXT)[0]
    assert load(tmp_path / "a.json") == load(tmp_path / "plain.json")
