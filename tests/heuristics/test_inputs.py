"""The network inputs match the reference, for any order of the opponents."""

import dataclasses
import hashlib
import json
import random
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game, Snake, State
from battlesnake_gym.rules.state import Settings
from battlesnake_heuristics.analysis.input_attribution import (
    attribute_inputs,
    static_win_probability,
)
from battlesnake_heuristics.search import _search
from battlesnake_heuristics.search import evaluation as evaluation_module
from battlesnake_heuristics.search.evaluation import (
    BOARD_INPUTS,
    FILE_SIGNATURE,
    MAX_ACTIVATION,
    NUM_INPUTS,
    SNAKE_INPUTS,
    STACKS,
    Evaluation,
    load_builtin,
)
from battlesnake_heuristics.search.quantization import _make_layers_dtype
from battlesnake_heuristics.search.search import network_inputs

from .network_reference import named_inputs, value_by_definition

KINDS = (
    *(("standard", side, count) for side, count in ((7, 2), (11, 2), (11, 3), (11, 4), (19, 8))),
    *(("royale", 11, 4), ("wrapped", 11, 2), ("wrapped", 9, 4), ("constrictor", 11, 2)),
    ("constrictor", 11, 4),
)
PLAYERS = "hungry", "cautious", "safe-random"


def positions(ruleset: str, side: int, count: int, wanted: int = 100) -> Iterator[Board]:
    """Yield positions of games between various snakes, from the view of a living snake."""
    luck = random.Random(f"{ruleset} {side} {count}")
    while wanted > 0:
        settings = Settings(shrink_every_n_turns=8, hazard_damage_per_turn=luck.choice((1, 14)))
        game = Game(ruleset, seed=luck.randrange(1, 1 << 30), settings=settings)
        board = Board.new(side, side, count, game=game)
        players = {
            snake.id: snakes.make(luck.choice(PLAYERS), luck.randrange(99))
            for snake in board.snakes
        }
        while not board.is_over() and wanted > 0:
            if luck.random() < 0.5:
                wanted -= 1
                yield dataclasses.replace(board.copy(), you_id=luck.choice(board.living).id)
            board.step(
                {
                    s.id: players[s.id](dataclasses.replace(board, you_id=s.id)).move
                    for s in board.living
                }
            )


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_they_are_what_the_slow_definition_says_in_any_order(kind: tuple[str, int, int]) -> None:
    luck = random.Random(1)
    for board in positions(*kind):
        named = named_inputs(board)
        assert [list(one) for one in named] == [list(BOARD_INPUTS)] + [list(SNAKE_INPUTS)] * (
            len(named) - 1
        )
        expected = list(chain.from_iterable(one.values() for one in named))
        assert network_inputs(board).tolist()[: len(expected)] == expected
        luck.shuffle(board.snakes)
        assert network_inputs(board).tolist()[: len(expected)] == expected


def test_rivals_as_near_that_differ_by_the_least_are_told_apart() -> None:
    you = Snake("you", [(12, 12), (12, 11), (12, 10), (12, 9)])
    rivals = [
        Snake("a", [(10, y) for y in (12, 11, 10)]),
        Snake("b", [(14, y) for y in (12, 13, 14)]),
    ]
    found = [
        network_inputs(
            Board.from_state(State(5, 25, 25, [you, *order], [(10, 15)]), Game(), "you")
        ).tolist()
        for order in (rivals, rivals[::-1])
    ]
    assert found[0] == found[1]


def test_a_file_of_fewer_inputs_and_hidden_values_means_what_it_says(tmp_path: Path) -> None:
    shape = {"board": ["size", "lead"], "snake": ["stacked", "length"], "hidden": [8, 4]}
    places, *sizes = evaluation_module._parse_shape(shape)
    layers = _make_layers_dtype(len(places), *sizes)
    rng = np.random.default_rng(1)
    stacks = np.zeros(STACKS, layers)
    for name in layers.names or ():
        stacks[name] = rng.integers(-3000, 3000, stacks[name].shape)
    facts = dict(load_builtin().metadata) | {"format": 2, "shape": shape}
    facts |= {"sha256": hashlib.sha256(stacks.tobytes()).hexdigest()}
    path = tmp_path / "narrow.evaluation"
    path.write_bytes(b"\n".join((FILE_SIGNATURE, json.dumps(facts).encode(), stacks.tobytes())))
    narrow = Evaluation.load(path)
    narrow.save(tmp_path / "whole.evaluation")
    assert Evaluation.load(tmp_path / "whole.evaluation").network_bytes == narrow.network_bytes
    rows = rng.integers(-MAX_ACTIVATION, MAX_ACTIVATION, (50, NUM_INPUTS), np.int16)
    for living in (3, 4):
        values = np.frombuffer(
            _search.evaluate_batch(0, narrow.network_bytes, rows, living) or b"", np.int32
        )
        stack = stacks[living - 2]
        assert values.tolist() == [value_by_definition(stack, row[places]) for row in rows]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"board": ["size", "colour"]}, "colour"),
        ({"board": ["size", "size"]}, "distinct"),
        ({"board": ["size"]}, "inputs"),
        ({"hidden": [64, 16]}, r"first size.* 2.* 32.* 64"),
        ({"hidden": [8, 3]}, r"second size.* 2.* 16.* 3"),
        ({"hidden": 8}, "damaged"),
    ],
)
def test_a_file_of_another_shape_is_refused(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    path = tmp_path / "odd.evaluation"
    load_builtin().save(path)
    magic, header, numbers = path.read_bytes().split(b"\n", 2)
    facts = json.loads(header)
    facts["shape"] |= change
    path.write_bytes(b"\n".join((magic, json.dumps(facts).encode(), numbers)))
    with pytest.raises(ValueError, match=why):
        Evaluation.load(path)


def test_what_an_input_is_worth_is_what_it_changes() -> None:
    boards = [board for board in positions("standard", 11, 2) if len(board.living) > 1]
    you = boards[0].you_id
    boards = [dataclasses.replace(board, you_id=you) for board in boards]
    board = boards[20]
    found = attribute_inputs(load_builtin(), board, boards[:60])
    assert len(found) == len(BOARD_INPUTS) + 4 * len(SNAKE_INPUTS)
    assert [abs(one.attribution) for one in found] == sorted(
        (abs(o.attribution) for o in found), reverse=True
    )
    by_name = {(one.group, one.input.name): one for one in found}
    assert by_name["own", "length"].value == 8 * len(board.you.body)
    assert by_name["board", "size"].attribution == 0  # constant in this game
    assert by_name["mean", "length"].attribution == 0  # not used in duels
    far = boards[-1]
    assert attribute_inputs(load_builtin(), board, [board, far]) == attribute_inputs(
        load_builtin(), board, [far]
    ), "each position counts once"
    assert 0 < static_win_probability(load_builtin(), board) < 1
    with pytest.raises(ValueError, match="trained for"):
        attribute_inputs(load_builtin(), next(positions("standard", 21, 2)), [])
