from pathlib import Path
from unittest.mock import Mock, call

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.json_lines import ReplayError
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Game
from battlesnake_heuristics.analysis import game_analysis, mistakes, win_probability
from battlesnake_heuristics.analysis.game_analysis import (
    GameAnalysis,
    analysis_path,
    analyze_game,
)
from battlesnake_heuristics.analysis.position_analysis import PositionAnalyzer
from battlesnake_heuristics.search.evaluation import load_builtin
from battlesnake_heuristics.search.search import Search
from tests.heuristics.test_mistakes import with_limited_view


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use few rollouts to find mistakes."""
    monkeypatch.setattr(mistakes, "ROLLOUT_ROUNDS", (2,))


def played(seed: int = 5, turns: int = 12) -> Replay:
    """Play some turns of a self-play duel of the search."""
    board = Board.new(11, 11, 2, game=Game(seed=seed))
    search = Search(evaluation=load_builtin(), nodes=40)
    return Replay.from_play(board, {snake.id: search for snake in board.snakes}, max_turns=turns)


def test_win_probabilities_sum_to_one_and_the_best_comes_first() -> None:
    board = Board.new(11, 11, 4, game=Game(seed=3))
    judged = PositionAnalyzer(nodes=400).analyze(board)
    assert sum(judgement.win_probability for judgement in judged.values()) == pytest.approx(1)
    for snake_id, judgement in judged.items():
        chances = [choice.win_probability for choice in judgement.candidates]
        assert chances == sorted(chances, reverse=True)
        assert judgement.win_probability == pytest.approx(chances[0])
        assert len({choice.move for choice in judgement.candidates}) == len(chances) <= 3
        for choice in judgement.candidates:
            assert choice.move in board.safe_moves(snake_id)
            assert choice.line[snake_id][0] == choice.move


def test_one_node_gives_even_chances() -> None:
    judged = PositionAnalyzer(nodes=1).analyze(Board.new(11, 11, 4, game=Game(seed=3)))
    assert [judgement.win_probability for judgement in judged.values()] == [0.25] * 4


def test_it_does_not_know_the_food_to_come() -> None:
    one, other = (Board.new(11, 11, 2, game=Game(seed=seed)) for seed in (3, 4))
    same = Board.from_state(one, other.game)
    assert PositionAnalyzer(nodes=300).analyze(one) == PositionAnalyzer(nodes=300).analyze(same)


def test_a_move_into_a_dead_end_has_a_low_win_probability() -> None:
    board = Board.from_text("""
    . . . . . . .
    . . . . . > B
    . . . . . ^ .
    . . . . . . .
    v < < < . . .
    > > v . . . .
    . . A . . . .
    """)
    choices = {c.move: c for c in PositionAnalyzer(nodes=20_000).analyze(board)["a"].candidates}
    assert choices["left"].win_probability < 0.02 < choices["right"].win_probability
    assert choices["left"].value == pytest.approx(-999.997), "three turns before the end"


def test_a_game_of_one_snake_is_refused() -> None:
    with pytest.raises(ValueError, match="no opponents"):
        PositionAnalyzer(nodes=100).analyze(Board.new(7, 7, 1))


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize("living", [2, 3, 4, 8])
def test_more_is_better_at_any_turn(learned: bool, living: int) -> None:
    for turn in (0, 50, 400):
        told = []
        for value in (-999.0, -20.0, 0.0, 20.0, 999.0 if living == 2 else 40.0):
            values = {"me": value, **{str(i): 0.0 for i in range(living - 1)}}
            told.append(win_probability.win_probabilities(values, turn, learned)["me"])
        assert told == sorted(told)


@pytest.mark.parametrize("living", [2, 4])
def test_nothing_is_certain_while_a_snake_lives(living: int) -> None:
    """An opponent may miss the winning move, and food may appear, so about 1% is left."""
    for value, most in ((-1000.0, 0.011), (-999.995, 0.011), (-999.0, 0.2), (-60.0, 0.2)):
        values = {"me": value, **{str(i): 60.0 for i in range(living - 1)}}
        chances = win_probability.win_probabilities(values, 50, True)
        assert 0.009 < chances["me"] < most
        assert sum(chances.values()) == pytest.approx(1)
    assert (
        win_probability.win_probabilities({"me": -999.998, "you": -999.998}, 50, True)["me"] == 0.5
    )


@pytest.mark.usefixtures("quick")
def test_the_analysis_lies_beside_the_game_and_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "game.jsonl.gz"
    replay = played()
    replay.save(path)
    told: list[int] = []
    analysis = analyze_game(path, 100, on_update=lambda so_far: told.append(len(so_far.positions)))
    assert told == [*range(len(replay.turns) + 1)]
    assert list(analysis.positions) == list(range(len(replay.turns) - 1, -1, -1)), (
        "the end comes first"
    )
    assert analysis.is_complete
    again = GameAnalysis.load_current(path)
    assert again is not None
    assert again.header_to_dict() == analysis.header_to_dict()
    assert again.mistakes == analysis.mistakes
    assert [again.positions[t].moves for t in sorted(again.positions)] == [
        t.moves for t in replay.turns
    ]


@pytest.mark.usefixtures("quick")
def test_with_limited_view_the_assessment_depends_only_on_the_view(tmp_path: Path) -> None:
    """Snakes in opposite corners see the same, whatever the other does."""
    text = "A . . . . . . . .\n^ . . . . . . . .\n{}\n{}\nA: health=50\nB: health=50"
    rows = (". . . . . . . . .", ". . . . . . . B <"), (". . . . . . . . v", ". . . . . . . . B")
    for radius, is_equal in ((3, True), (30, False)):
        found = []
        for number, lines in enumerate(rows):
            replay = Replay(Board.from_text(text.format(*lines)))
            replay.append({"a": "right", "b": "left"})
            path = tmp_path / f"{radius}-{number}.jsonl"
            with_limited_view(replay, radius).save(path)
            found.append(analyze_game(path, 800).positions[0].assessments["a"].candidates)
        values = [[(one.move, one.value) for one in candidates] for candidates in found]
        assert (values[0] == values[1]) is is_equal
        lines_of = {name for candidates in found for one in candidates for name in one.line}
        assert lines_of == ({"a"} if is_equal else {"a", "b"})
    replay.save(path)
    full = analyze_game(path, 800)
    assumed = analyze_game(path, 800, view_radius=3)
    assert [one.view_radius for one in (full, assumed)] == [None, 3]
    assert GameAnalysis.load(analysis_path(path)).view_radius == 3
    assert {name for one in full.positions[0].assessments["a"].candidates for name in one.line} == {
        "a", "b"
    }  # fmt: skip
    of_assumed = assumed.positions[0].assessments["a"].candidates
    assert {name for one in of_assumed for name in one.line} == {"a"}


class _StoppedError(Exception):
    pass


@pytest.mark.usefixtures("quick")
def test_what_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "game.jsonl"
    played().save(path)

    def stop(so_far: GameAnalysis) -> None:
        if len(so_far.positions) == 5:
            raise _StoppedError

    with pytest.raises(_StoppedError):
        analyze_game(path, 100, on_update=stop)
    before = GameAnalysis.load(analysis_path(path))
    assert len(before.positions) == 5
    analyzer = Mock(side_effect=PositionAnalyzer)
    monkeypatch.setattr(game_analysis, "PositionAnalyzer", analyzer)
    after = analyze_game(path, 50)
    assert analyzer.call_args_list == [call(100)] * 7, "the stored node limit holds for all turns"
    assert after.is_complete
    for turn in before.positions.keys() - {mistake.turn for mistake in after.mistakes}:
        assert after.positions[turn] == before.positions[turn], "what was known is kept"
    for mistake in after.mistakes:
        found = after.positions[mistake.turn].assessments[mistake.snake_id]
        assert found.candidates[0].move != mistake.move, "the rollouts order the candidates"
    assert analyze_game(path, 50).nodes == 100, "fewer nodes add nothing"
    begun: list[int] = []
    longer = analyze_game(path, 200, on_update=lambda so_far: begun.append(len(so_far.positions)))
    assert begun[0] == 0, "more nodes start again"
    assert longer.is_complete


@pytest.mark.usefixtures("quick")
def test_the_analysis_of_another_game_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "game.jsonl"
    played(turns=3).save(path)
    analyze_game(path, 100)
    played(seed=6, turns=3).save(path)
    assert GameAnalysis.load_current(path) is None
    analysis_path(path).write_bytes(b"no analysis")
    assert GameAnalysis.load_current(path) is None
    assert analyze_game(path, 100).is_complete


@pytest.mark.usefixtures("quick")
def test_several_processes_find_as_much(tmp_path: Path) -> None:
    path = tmp_path / "game.jsonl"
    played(turns=6).save(path)
    assert analyze_game(path, 100, jobs=2).is_complete
    assert GameAnalysis.load_current(path) is not None


def test_a_solo_game_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "solo.jsonl"
    replay = Replay(Board.new(7, 7, 1))
    replay.append({"snake_0": "up"})
    replay.save(path)
    with pytest.raises(ReplayError, match=r"solo\.jsonl"):
        analyze_game(path, 100)
