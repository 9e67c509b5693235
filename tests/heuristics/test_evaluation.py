import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game, Settings
from battlesnake_heuristics.search.evaluation import (
    HIDDEN1,
    HIDDEN2,
    INPUT_UNIT,
    MAX_ACTIVATION,
    MAX_WEIGHT,
    NUM_DUEL_INPUTS,
    NUM_INPUTS,
    STACKS,
    WEIGHT_UNIT,
    Evaluation,
    load_builtin,
)
from battlesnake_heuristics.search.quantization import LAYERS_DTYPE, quantize

_search = pytest.importorskip("battlesnake_heuristics.search._search")

from battlesnake_heuristics.search.search import Search  # noqa: E402
from battlesnake_heuristics.search.self_play import SearchPlayer, SelfPlaySettings, play_game  # noqa: E402
from tests.heuristics.conftest import start_of  # noqa: E402

from .network_reference import value_by_definition  # noqa: E402

TRAINED = {
    "trained_for": {
        "rulesets": ["standard"],
        "maps": ["standard"],
        "sizes": [[11, 11]],
        "snakes": [2, 3],
    }
}


def random_evaluation(seed: int, size: int = MAX_WEIGHT) -> Evaluation:
    rng = np.random.default_rng(seed)
    layers = np.zeros(STACKS, LAYERS_DTYPE)
    for name in ("first", "second", "last"):
        layers[name] = rng.integers(-size, size, layers[name].shape, endpoint=True)
    for name in ("first_bias", "second_bias", "last_bias"):
        layers[name] = rng.integers(-(1 << 20), 1 << 20, layers[name].shape)
    return Evaluation(layers.tobytes(), TRAINED)


@given(
    st.integers(0, 2**32), st.integers(2, 16), st.sampled_from([3, 200, MAX_WEIGHT]), st.booleans()
)
def test_every_processor_computes_what_the_definition_says(
    seed: int, living: int, size: int, extreme: bool
) -> None:
    rng = np.random.default_rng(seed)
    evaluation = random_evaluation(seed, size)
    rows = rng.integers(-MAX_ACTIVATION, MAX_ACTIVATION, (2, NUM_INPUTS), np.int16, endpoint=True)
    if extreme:
        rows = np.where(rows > 0, MAX_ACTIVATION, -MAX_ACTIVATION).astype(np.int16)
    stack = np.frombuffer(evaluation.network_bytes, LAYERS_DTYPE)[min(living - 2, STACKS - 1)]
    used = NUM_DUEL_INPUTS if living == 2 else NUM_INPUTS
    expected = [value_by_definition(stack, row[:used]) for row in rows]
    answers = [
        _search.evaluate_batch(code, evaluation.network_bytes, rows, living) for code in range(2)
    ]
    assert answers[0] is not None
    for answer in answers:
        if answer is not None:  # not every processor supports all kernels
            assert np.frombuffer(answer, np.int32).tolist() == expected


def test_the_network_has_vectors_where_the_search_has_them() -> None:
    try:
        _search.set_isa("avx2")
        vectors = True
    except ValueError:
        vectors = False
    finally:
        _search.set_isa("best")
    row = np.zeros(NUM_INPUTS, np.int16)
    assert (
        _search.evaluate_batch(1, random_evaluation(1).network_bytes, row, 2) is not None
    ) == vectors


def test_weights_are_rounded_to_their_places() -> None:
    rng = np.random.default_rng(1)
    floats: dict[str, Any] = {
        "first": rng.normal(size=(HIDDEN1, NUM_INPUTS)),
        "first_bias": rng.normal(size=HIDDEN1),
        "second": rng.normal(size=(HIDDEN2, HIDDEN1)),
        "second_bias": rng.normal(size=HIDDEN2),
        "last": rng.normal(size=HIDDEN2),
        "last_bias": np.float64(0.25),
    }
    evaluation = Evaluation(quantize([floats] * STACKS), TRAINED)
    rows = rng.integers(-512, 512, (20, NUM_INPUTS)).astype(np.int16)
    values = np.frombuffer(_search.evaluate_batch(0, evaluation.network_bytes, rows, 4), np.int32)
    top = MAX_ACTIVATION / INPUT_UNIT
    hidden = np.clip(rows / INPUT_UNIT @ floats["first"].T + floats["first_bias"], 0, top)
    second = np.clip(hidden @ floats["second"].T + floats["second_bias"], 0, top)
    logits = second @ floats["last"] + floats["last_bias"]
    assert np.abs(values / 10_000 - logits).max() < 20 / WEIGHT_UNIT * np.abs(logits).max()


def test_a_file_comes_back_whole(tmp_path: Path) -> None:
    evaluation = random_evaluation(3)
    evaluation.save(tmp_path / "one.evaluation")
    again = Evaluation.load(tmp_path / "one.evaluation")
    assert again.network_bytes == evaluation.network_bytes
    assert again.metadata["trained_for"] == TRAINED["trained_for"]


@pytest.mark.parametrize("place", ["magic", "facts", "format", "games", "numbers", "end", "empty"])
def test_a_damaged_file_is_refused_by_its_name(tmp_path: Path, place: str) -> None:
    path = tmp_path / "one.evaluation"
    random_evaluation(3).save(path)
    magic, header, numbers = path.read_bytes().split(b"\n", 2)
    if place == "magic":
        magic = b"something else"
    elif place == "facts":
        header = header[:-1]
    elif place == "format":
        header = json.dumps(json.loads(header) | {"format": 99}).encode()
    elif place == "games":
        games = TRAINED["trained_for"] | {"snakes": ["2"]}
        header = json.dumps(json.loads(header) | {"trained_for": games}).encode()
    elif place == "numbers":
        numbers = bytes([numbers[0] ^ 1]) + numbers[1:]
    elif place == "end":
        numbers = numbers[:-1]
    path.write_bytes(b"" if place == "empty" else b"\n".join((magic, header, numbers)))
    with pytest.raises(ValueError, match=r"one\.evaluation"):
        Evaluation.load(path)


def test_a_missing_file_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none\.evaluation"):
        Evaluation.load(tmp_path / "none.evaluation")


def board_of(
    ruleset: str = "standard", size: int = 11, snakes: int = 2, board_map: str = "standard"
) -> Board:
    return start_of(size, size, snakes, game=Game(ruleset, board_map, seed=5))


@pytest.mark.parametrize(
    ("board", "why"),
    [
        (board_of("wrapped"), r"standard.* wrapped"),
        (board_of(board_map="hz_inner_wall"), r"standard.* hz_inner_wall"),
        (board_of(size=7), r"11x11.* 7x7"),
        (board_of(snakes=4), r"3 snakes.* 4"),
    ],
)
def test_where_it_was_not_trained_the_hand_made_weights_play_and_say_so(
    board: Board, why: str
) -> None:
    by_hand = Search(nodes=500)(board)
    decision = Search(nodes=500, evaluation=random_evaluation(3))(board)
    assert decision.scores == by_hand.scores
    assert re.search(why, decision.reasons[0].note)


def test_where_it_was_trained_its_values_are_the_scores() -> None:
    board = board_of()
    evaluation = random_evaluation(3, 200)
    decision = Search(max_depth=1, evaluation=evaluation)(board)
    assert decision.scores != Search(max_depth=1)(board).scores
    note = decision.reasons[0].note
    assert "handcrafted" not in note
    share = 1 / (1 + np.exp(-decision.scores[decision.move] / 10))
    assert f"{share:.0%}" in note


def test_what_is_no_network_is_refused() -> None:
    numbers = random_evaluation(1).network_bytes
    row = np.zeros(NUM_INPUTS, np.int16)
    assert len(numbers) == STACKS * LAYERS_DTYPE.itemsize
    for name in LAYERS_DTYPE.names or ():
        most = 1 << 29 if "bias" in name else MAX_WEIGHT
        for value in (most, -most, most + 1, -most - 1):
            layers = np.frombuffer(numbers, LAYERS_DTYPE).copy()
            layers[name].flat[-1] = value
            if abs(value) == most:
                assert _search.evaluate_batch(0, layers.tobytes(), row, 2) is not None
                continue
            with pytest.raises(ValueError, match="network"):
                _search.evaluate_batch(0, layers.tobytes(), row, 2)
    for arguments, what in (
        ((0, numbers[1:], row, 2), "network"),
        ((0, b"", row, 2), "network"),
        ((0, numbers, row[1:], 2), "inputs"),
        ((0, numbers, row, 1), "living"),
        ((2, numbers, row, 2), "kernel"),
    ):
        with pytest.raises(ValueError, match=what):
            _search.evaluate_batch(*arguments)


@pytest.mark.parametrize("snakes", [2, 4, 8])
def test_the_shipped_evaluation_beats_the_hand_made_weights(snakes: int) -> None:
    """With equal node limits, every start with seats exchanged; the games are deterministic."""
    setup = SelfPlaySettings(num_snakes=snakes, random_opening_turns=4, random_move_fraction=0.0)
    learned, by_hand = SearchPlayer(load_builtin(), nodes=150), SearchPlayer(nodes=150)
    points, games = 0.0, 0
    for seed in range(1, 13 if snakes == 2 else 7):
        for first in (0, 1):
            sides = [(seat + first) % 2 for seat in range(snakes)]
            game = play_game(seed, setup, [(learned, by_hand)[side] for side in sides])
            points += sum(p for p, side in zip(game.points, sides, strict=True) if side == 0)
            games += 1
    assert points / games > 0.55


LIMITED = Game(settings=Settings(view_radius=5))


@pytest.mark.parametrize(
    ("board", "reason"),
    [
        *((board_of(snakes=snakes), "^$") for snakes in range(2, 9)),
        *((board_of(size=size), "^$") for size in (7, 9, 15, 19)),
        *((board_of(size=size), rf"7x7, 11x11, 19x19.* {size}x{size}") for size in (6, 21)),
        (start_of(11, 11, 4, game=LIMITED), "^$"),
        (start_of(15, 15, 4, game=LIMITED), "15x15"),
        (board_of("royale", snakes=4), "^$"),
        (board_of("royale", snakes=4, board_map="royale"), "^$"),
        (board_of(snakes=4, board_map="royale"), "^$"),
    ],
)
def test_the_shipped_evaluation_plays_the_games_that_it_supports(board: Board, reason: str) -> None:
    assert re.search(reason, load_builtin().unsupported_reason(board))
