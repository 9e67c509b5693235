"""Labels, the fit, and rounds that go on where they were."""

# ruff: noqa: E402
import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

torch = pytest.importorskip("torch", reason="needs the extra rllib")
pytest.importorskip("battlesnake_heuristics.search._search")
pytestmark = [pytest.mark.rllib, pytest.mark.usefixtures("one_thread")]

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from battlesnake_heuristics.search.evaluation import INPUTS, Evaluation
from battlesnake_heuristics.search.selfplay import (
    AT_RANDOM,
    IN_VAIN,
    ROW,
    SEARCHED,
    GamesRows,
    SearchPlayer,
    SelfPlaySetup,
    play_game,
)
from battlesnake_rl.mabs.exit import expert_iteration
from battlesnake_rl.mabs.exit.evaluation_fit import (
    Model,
    Samples,
    chances,
    labelled,
    loss_in_whole_numbers,
    stack_of,
)
from battlesnake_rl.mabs.exit.expert_iteration import Progress, Run, facts, main, strength


def test_a_network_that_no_file_holds_yet_plays_what_it_was_trained_for(tmp_path: Path) -> None:
    made = Model().evaluation(facts(Progress(), "here"))
    made.save(tmp_path / "made.evaluation")
    read = Evaluation.load(tmp_path / "made.evaluation")
    for setup in (
        SelfPlaySetup(),
        SelfPlaySetup(7, 7),
        SelfPlaySetup(19, 19, 4),
        SelfPlaySetup(ruleset="wrapped", snakes=4),
    ):
        game = Game(ruleset=setup.ruleset)
        board = Board.new(setup.width, setup.height, setup.snakes, game=game)
        assert made.objection(board) == read.objection(board) == ""
    assert "11x12" in made.objection(Board.new(11, 12))


def games_of(rows: list[tuple[int, int, int, int, int]], points: list[list[float]]) -> GamesRows:
    """Of (game, seat, turn, value, kind) each."""
    made = np.zeros(len(rows), ROW)
    for row, (_, seat, turn, value, kind) in zip(made, rows, strict=True):
        row["seat"], row["turn"], row["value"], row["kind"], row["living"] = (
            seat, turn, value, kind, 2,
        )  # fmt: skip
        row["inputs"][0] = turn
    return GamesRows(
        made,
        np.array([row[0] for row in rows], np.int32),
        np.zeros(len(rows), np.uint8),
        np.array(points),
        np.ones(len(points), bool),
        0,
    )


def many_games(value_of_winner: int, games: int = 400) -> GamesRows:
    """The winner, seat 0, is told three times that it will win; the other that it will lose."""
    rows = [
        (game, seat, turn, -value_of_winner if seat else value_of_winner, SEARCHED)
        for game in range(games)
        for turn in range(3)
        for seat in (0, 1)
    ]
    return games_of(rows, [[1.0, 0.0]] * games)


def test_values_become_the_points_that_came_of_them() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(0, 15_000, 50_000).astype(np.int32)
    truth = 1 / (1 + np.exp(-(0.5 * values / 10_000 - 1)))
    points = (rng.random(len(values)) < truth).astype(float)
    living = np.full(len(values), 4, np.uint8)
    assert np.abs(chances(values, living, points) - truth).max() < 0.03


def test_proofs_that_do_not_hold_are_taken_for_what_they_are() -> None:
    kinds = (-999_990, -499_995, 999_990, -10_000, 10_000)
    values = np.repeat(np.array(kinds, np.int32), 1000)
    shares = (0.25, 0.4, 1.0, 0.1, 0.3)
    points = np.concatenate([np.arange(1000) < 1000 * share for share in shares]).astype(float)
    told = chances(values, np.full(5000, 4, np.uint8), points)
    np.testing.assert_allclose(told[::1000], shares, atol=0.01)


def test_labels_go_back_from_the_end() -> None:
    games = many_games(20_000)
    samples = labelled(games, trace=0.5)
    chance = chances(games.rows["value"], games.rows["living"], np.tile([1.0, 0.0], 1200))
    won, lost = chance[0], chance[1]
    expected = np.empty(6)
    following = 1.0
    for turn in (2, 1, 0):
        following = 0.5 * won + 0.5 * following
        expected[turn] = following
    following = 0.0
    for turn in (2, 1, 0):
        following = 0.5 * lost + 0.5 * following
        expected[3 + turn] = following
    np.testing.assert_allclose(samples.target[:6], expected, rtol=1e-5)
    assert samples.inputs[:6, 0].tolist() == [0, 1, 2, 0, 1, 2]


def test_a_random_move_breaks_the_chain_and_openings_are_left_out() -> None:
    games = many_games(20_000)
    games.rows["kind"][games.rows["turn"] == 0] = AT_RANDOM
    games.rows["kind"][(games.rows["turn"] == 1) & (games.rows["seat"] == 0)] = IN_VAIN
    samples = labelled(games, trace=1.0)
    turns = samples.inputs[:, 0]
    assert set(turns.tolist()) == {1, 2}
    chance = chances(
        games.rows["value"][2:6], games.rows["living"][2:6], np.array([1.0, 0, 1.0, 0])
    )
    assert samples.target[0] < 1.0  # its own value: what followed was not meant
    assert samples.target[1] == 1.0  # and then the end
    assert 0 < chance[0] < 1


def made_up_samples(count: int, seed: int) -> Samples:
    """Points follow from the inputs by a rule that no linear sum finds."""
    rng = np.random.default_rng(seed)
    inputs = rng.integers(-512, 512, (count, INPUTS)).astype(np.int16)
    logits = 3 * np.abs(inputs[:, 0] / 256) - 2 * inputs[:, 20] / 256
    target = (1 / (1 + np.exp(-logits))).astype(np.float32)
    return Samples(inputs, rng.choice([2, 3, 4, 7], count).astype(np.uint8), target)


def test_a_fit_learns_and_whole_numbers_lose_little_of_it() -> None:
    torch.manual_seed(0)
    model, samples = Model(), made_up_samples(15_000, 1)
    before = model.fit(samples, epochs=0.1, batch=256)
    after = model.fit(samples, epochs=15, batch=256)
    fresh = made_up_samples(4000, 2)
    base = np.full(len(fresh.target), np.log(fresh.target.mean() / (1 - fresh.target.mean())))
    truth = np.log(fresh.target / (1 - fresh.target))
    in_floats = np.empty(len(truth))
    for number, stack in enumerate(model.stacks):
        those = stack_of(fresh.living) == number
        inputs = torch.from_numpy(fresh.inputs[those][:, : stack.first.in_features])
        in_floats[those] = stack(inputs.float() / 256).detach().numpy()
    rounded = loss_in_whole_numbers(model.evaluation({}), fresh)
    assert max(after) < min(before)
    assert loss(in_floats, fresh) < 0.4 * loss(base, fresh) + 0.6 * loss(truth, fresh)
    assert rounded == pytest.approx(loss(in_floats, fresh), abs=0.003)


def loss(logits: NDArray[Any], samples: Samples) -> float:
    return float((np.logaddexp(0, logits) - samples.target * logits).mean())


def test_every_number_of_snakes_has_its_stack() -> None:
    assert stack_of(np.array([2, 3, 4, 5, 16], np.uint8)).tolist() == [0, 1, 2, 2, 2]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kinds of quick games and small chunks."""
    quick = ((0.5, SelfPlaySetup(7, 7)), (0.5, SelfPlaySetup(7, 7, 3)))
    monkeypatch.setattr(expert_iteration, "MIX", quick)
    monkeypatch.setattr(expert_iteration, "NODES", (30,))
    monkeypatch.setattr(expert_iteration, "CHUNK", 1000)
    monkeypatch.setattr(expert_iteration, "CHECK_GAMES", 8)


def test_a_run_teaches_and_goes_on_where_it_was(tmp_path: Path, small: None) -> None:
    run = Run(tmp_path, "a command")
    told = run.round(moves=6000, epochs=1.0)
    assert told["round"] == 0
    assert run.latest is not None
    again = Run(tmp_path, "a command")
    assert again.progress == run.progress
    assert again.latest is not None
    assert again.latest.numbers == run.latest.numbers
    again.round(moves=3000, epochs=1.0)
    assert again.progress.rounds == 2
    assert again.latest.numbers != run.latest.numbers
    known = Evaluation.load(tmp_path / "latest.evaluation").facts
    assert known["trained_for"]["sizes"] == [[7, 7]]
    assert known["trained_for"]["snakes"] == [2, 3]
    assert known["trained_for"]["maps"] == ["standard"]
    assert known["moves"] >= 9000
    assert known["command"] == "a command"


@pytest.mark.parametrize(
    ("game", "snakes"),
    [(Game(), 8), (Game(map="royale"), 4), (Game("royale"), 2), (Game("constrictor"), 2)],
    ids=["eight snakes", "map royale", "royale", "constrictor"],
)
def test_what_is_learned_plays_the_family_it_learned_from(game: Game, snakes: int) -> None:
    evaluation = Model().evaluation(facts(Progress(), ""))
    assert evaluation.objection(Board.new(11, 11, snakes, game=game)) == ""
    assert "not 9x9" in evaluation.objection(Board.new(9, 9, snakes, game=game))


def test_old_samples_leave_the_folder(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(expert_iteration, "IN_MEMORY", 2)
    run = Run(tmp_path, "")
    for _ in range(3):
        run.round(moves=1000, epochs=0.2)
    kept = sorted(path.name for path in tmp_path.glob("samples-*"))
    assert kept == ["samples-0001.npz", "samples-0002.npz"]
    assert len(list(tmp_path.glob("network-*"))) == 3


def test_the_command_ends_when_its_time_is_up(tmp_path: Path, small: None) -> None:
    options = ["--folder", str(tmp_path), "--minutes", "0.0001", "--moves", "1000"]
    main(options)
    main(options)
    lines = (tmp_path / "rounds.jsonl").read_text().splitlines()
    assert len(lines) == 1
    assert "duels" in json.loads(lines[0])
    assert Progress.of(tmp_path).rounds == 1


def test_the_stronger_of_two_wins_the_match() -> None:
    strong, weak = SearchPlayer(nodes=400), SearchPlayer(nodes=8)
    points, error = strength(strong, weak, SelfPlaySetup(7, 7), games=12)
    assert points > 0.8
    assert 0 <= error < 0.5
    alike, _ = strength(strong, dataclasses.replace(strong), SelfPlaySetup(7, 7, 4), games=4)
    assert alike == 0.5  # the same games with seats exchanged


def test_the_search_takes_the_weights_of_every_style(tmp_path: Path) -> None:
    class Widest(np.random.Generator):
        def normal(self, *arguments: Any, **options: Any) -> float:  # type: ignore[override]
            return 9.0

    style = expert_iteration.Opponents(tmp_path, Widest(np.random.PCG64(1))).style()
    game = play_game(1, SelfPlaySetup(max_turns=3), [SearchPlayer(weights=style, nodes=10)] * 2)
    assert game.turns <= 3
