"""Tests of limited view: what a snake sees, and how a request with hidden segments is read."""

import copy
import random
import sys
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import battlesnake_gym
from battlesnake_gym import Board, Game, Settings, VectorBattlesnake, snakes
from battlesnake_gym.boards.elimination_tracker import EliminationTracker
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.boards.limited_view import HIDDEN_CELL, limit_view
from battlesnake_gym.boards.sightings import Sightings
from battlesnake_gym.engine.engine import Games
from battlesnake_gym.mdp import masks, observations
from battlesnake_gym.rules import Snake, State
from battlesnake_gym.snakes import Decision, engine_code

FORMS = [None, HIDDEN_CELL]


def request(board: Board, you: str, turn: int | None = None) -> dict[str, Any]:
    return board.to_api(you) | ({} if turn is None else {"turn": turn})


def example() -> Board:
    """The example of the competition: the viewer's head is at (5, 5)."""
    board = Board.new(11, 11, ["me", "other"])
    board.snakes[0].body = [(5, 5), (5, 6), (5, 7), (5, 8)]
    board.snakes[1].body = [(8, 5), (7, 5), (6, 5), (6, 4), (6, 3), (6, 2)]
    board.food, board.turn = [(4, 4), (0, 0)], 9
    return board


@pytest.mark.parametrize("hidden", FORMS)
def test_a_view_has_the_form_of_the_competition(hidden: dict[str, int] | None) -> None:
    complete = request(example(), "me")
    before = copy.deepcopy(complete)
    seen = battlesnake_gym.limit_view(complete, 2, hidden)
    assert complete == before
    me, other = seen["board"]["snakes"]
    assert me == complete["board"]["snakes"][0]
    visible = [{"x": 7, "y": 5}, {"x": 6, "y": 5}, {"x": 6, "y": 4}]
    assert other["body"] == [hidden, *visible, hidden]
    assert (other["head"], other["length"], other["health"]) == (hidden, 5, 0)
    assert seen["board"]["food"] == [{"x": 4, "y": 4}]
    assert seen["game"]["ruleset"]["settings"]["viewRadius"] == 2
    assert seen["you"] == complete["you"]


def test_new_food_is_visible_everywhere() -> None:
    complete = request(example(), "me")
    complete["board"]["food"] = [
        {"x": 0, "y": 0, "spawn_turn": 9},
        {"x": 0, "y": 1, "spawn_turn": 8},
    ]
    assert limit_view(complete, 2)["board"]["food"] == complete["board"]["food"][:1]
    first = request(example(), "me", turn=0)
    assert limit_view(first, 2)["board"]["food"] == first["board"]["food"]


def test_an_opponent_without_a_body_is_rejected() -> None:
    sent = request(example(), "me")
    del sent["board"]["snakes"][1]["body"]
    with pytest.raises(BoardError, match=r"board\.snakes\[1\]\.body is missing or empty"):
        limit_view(sent, 2)


@pytest.mark.parametrize(
    ("picture", "moves"),
    [("A < . B <", ("left", "left")), ("> A . B <", ("right", "left"))],
)
def test_limited_boards_have_the_result_of_the_game(picture: str, moves: tuple[str, str]) -> None:
    board = Board.from_text(f"view_radius=1\n{picture}")
    board.step(dict(zip("ab", moves, strict=True)))
    for snake in board.snakes:
        board.you_id = snake.id
        seen = board.limited()
        assert seen.is_over()
        assert (seen.winner and seen.winner.id) == (board.winner and board.winner.id)
        assert seen.you.eliminated_cause == snake.eliminated_cause


def test_without_a_radius_nothing_is_hidden() -> None:
    complete = request(example(), "me")
    seen = limit_view(complete, None)
    assert seen["board"] == complete["board"]
    assert seen["game"]["ruleset"]["settings"]["viewRadius"] is None
    assert Board.from_api(seen) == Board.from_api(complete)


@pytest.mark.parametrize("radius", [-1, 2.5, "5", True])
def test_other_radii_are_rejected(radius: Any) -> None:
    with pytest.raises(BoardError, match="view_radius must be"):
        limit_view(request(example(), "me"), radius)


def test_other_placeholders_are_rejected() -> None:
    with pytest.raises(BoardError, match="hidden must be"):
        limit_view(request(example(), "me"), 5, {"x": 0, "y": 0})


def test_opponents_live_on_if_a_later_request_hides_no_segment() -> None:
    tracker = EliminationTracker()
    for radius in (2, 9):
        seen = limit_view(request(example(), "me"), radius)
        del seen["game"]["ruleset"]["settings"]["viewRadius"]
        board = Board.from_api(seen, tracker=tracker, errors=[])
        assert [snake.alive for snake in board.snakes] == [True, True]
        assert board.game.settings.view_radius == 5


@pytest.mark.parametrize("cell", ["far", {"x": "far", "y": 6}, {"x": -1, "y": -1, "z": 0}])
def test_an_unreadable_cell_of_an_opponent_counts_as_hidden(cell: Any) -> None:
    seen = limit_view(request(example(), "me"), 2)
    body = seen["board"]["snakes"][1]["body"]
    assert body[-1] is None
    body[-1] = cell
    errors: list[str] = []
    other = Board.from_api(seen, errors=errors).snakes[1]
    assert other.alive
    assert {(7, 5), (6, 5), (6, 4)} <= {*other.body}
    assert len(errors) == ("z" not in cell)


def test_the_time_for_hidden_runs_is_bounded() -> None:
    board = Board.new(11, 11, ["me", "other"], game=Game(settings=Settings(view_radius=1)))
    for size in (25, 100):
        seen = board.to_api("me")
        seen["board"] |= {"width": size, "height": size}
        seen["board"]["snakes"][1]["body"] = [
            cell for i in range(300) for cell in ({"x": i * 7 % size, "y": i * 13 % size}, None)
        ]
        before = time.process_time()
        assert len(Board.from_api(seen).snakes[1].body) > 300
        assert time.process_time() - before < 5


@given(st.data())
def test_a_completed_position_has_the_same_view(data: st.DataObject) -> None:
    """The added segments are hidden, and the visible segments keep their order."""
    radius = data.draw(st.integers(0, 12), label="radius")
    hidden = data.draw(st.sampled_from(FORMS), label="hidden")
    size = data.draw(st.sampled_from([5, 7, 11]), label="size")
    game = Game(seed=data.draw(st.integers(1, 99)), settings=Settings(view_radius=radius))
    board = Board.new(size, size, 4, game=game)
    for _ in range(data.draw(st.integers(0, 40), label="turns")):
        if board.is_over():
            break
        moves = {
            s.id: data.draw(st.sampled_from(board.safe_moves(s.id) or ["up"])) for s in board.living
        }
        board.step(moves)
    for viewer in board.living:
        seen = limit_view(board.to_api(viewer.id), radius, hidden)
        read = Board.from_api(seen)
        assert read.game.settings.view_radius == radius
        assert read.you.body == viewer.body
        assert {s.id for s in read.living} <= {s.id for s in board.living}
        again = limit_view(read.to_api(viewer.id), radius, hidden)["board"]["snakes"]
        sent = {snake["id"]: snake for snake in seen["board"]["snakes"]}
        for snake in again:
            assert without_stacks(snake["body"]) == without_stacks(sent[snake["id"]]["body"])


def without_stacks(body: list[Any]) -> list[Any]:
    return [cell for i, cell in enumerate(body) if i == 0 or cell != body[i - 1]]


def test_stacked_segments_that_are_sent_once_are_read() -> None:
    seen = limit_view(request(example(), "me"), 2)
    for snake in (seen["you"], seen["board"]["snakes"][0]):
        snake["body"], snake["length"] = [{"x": 5, "y": 5}, {"x": 5, "y": 6}], 5
    assert Board.from_api(seen).you.body == [(5, 5)] + 4 * [(5, 6)]


@pytest.mark.parametrize(
    "snakes",
    [
        [{"body": [None]}] * 10_000,
        [{"id": "me", "body": [{"x": 0, "y": 0}], "length": 10_000}] * 1000,
        [{"id": "b", "body": [{"x": i * sys.hash_info.modulus, "y": 0} for i in range(10_000)]}],
    ],
    ids=["hidden snakes", "unlisted segments", "equal hashes"],
)
def test_the_time_for_a_malicious_request_is_bounded(snakes: list[Any]) -> None:
    seen = limit_view(request(example(), "me"), 2)
    seen["board"] |= {"width": 100, "height": 100, "snakes": snakes}
    before = time.process_time()
    board = Board.from_api(seen, errors=[])
    assert time.process_time() - before < 0.2
    assert len(board.snakes) <= 65


@pytest.mark.parametrize(("radius", "read"), [(5.0, 5), (2.7, 2), (0, 0), (1e300, 2**31 - 1)])
def test_any_number_of_at_least_0_is_a_radius(radius: float, read: int) -> None:
    seen = limit_view(request(example(), "me"), 2)
    seen["game"]["ruleset"]["settings"]["viewRadius"] = radius
    assert Board.from_api(seen).game.settings.view_radius == read


def test_a_radius_that_cannot_be_read_limits_the_view_of_visible_snakes_too() -> None:
    seen = limit_view(request(example(), "me"), 9)
    assert None not in seen["board"]["snakes"][1]["body"]
    seen["game"]["ruleset"]["settings"]["viewRadius"] = "9"
    board = Board.from_api(seen, errors=[])
    assert [snake.alive for snake in board.snakes] == [True, True]


@pytest.mark.parametrize("radius", ["far", [5], None, -1, True, float("nan"), float("inf")])
def test_a_radius_that_cannot_be_read_is_reported_and_assumed(radius: Any) -> None:
    seen = limit_view(request(example(), "me"), 2)
    seen["game"]["ruleset"]["settings"]["viewRadius"] = radius
    with pytest.raises(BoardError, match="viewRadius"):
        Board.from_api(seen)
    errors: list[str] = []
    board = Board.from_api(seen, errors=errors)
    assert board.game.settings.view_radius == 5
    assert any("viewRadius" in error and "5" in error for error in errors)
    assert [snake.alive for snake in board.snakes] == [True, True]


@pytest.mark.parametrize("ruleset", ["standard", "wrapped", "royale", "constrictor"])
@pytest.mark.parametrize("name", observations.ENCODER_NAMES)
def test_engine_rules_and_requests_show_the_same(name: str, ruleset: str) -> None:
    """Observations and masks from C, from Python and from a request are equal."""
    rng = random.Random(f"{name} {ruleset}")
    radius, size, num_snakes = rng.choice([0, 1, 2, 5]), rng.choice([7, 11]), rng.choice([2, 4])
    settings = Settings(view_radius=radius, food_spawn_chance=50, shrink_every_n_turns=3)
    game = Game(ruleset=ruleset, settings=settings)
    games = Games(2, width=size, height=size, num_snakes=num_snakes, game=game)
    encoder = observations.get(name)
    seen = np.zeros((2, num_snakes, *encoder.shape(size, size)), np.uint8)
    games.observe(encoder, seen)
    games.reset(np.array([rng.randrange(1, 99), 7]))
    mask, moves = np.zeros((2, num_snakes, 4), np.bool_), np.zeros((2, num_snakes), np.uint8)
    shown = np.zeros((2, *seen.shape), np.uint8)  # A memory depends on the earlier turns.
    for _ in range(12):
        games.action_mask("fatal+head", mask)
        for index in np.flatnonzero(~games.over):
            state = games.state(int(index))
            for seat in np.flatnonzero(games.alive[index]):
                you = state.snakes[seat].id
                complete = Board.from_state(state, game, you)
                asked = Board.from_api(limit_view(complete.to_api(), radius, rng.choice(FORMS)))
                for out, board in zip(shown[:, index, seat], (complete, asked), strict=True):
                    encoder.encode(board, you, out, view_radius=radius)
                    np.testing.assert_array_equal(out, seen[index, seat])
                    allowed = masks.action_mask(game, board, you, "fatal+head")
                    np.testing.assert_array_equal(allowed, mask[index, seat])
        games.action_mask("fatal", mask)
        moves[:] = [[rng.choice(np.flatnonzero(m).tolist()) for m in row] for row in mask]
        games.step(moves)


def test_memory_planes_show_the_last_sightings() -> None:
    """The planes of the encoder "memory" equal `Sightings`, which strategies read."""
    rng = random.Random(1)
    radius, size = 3, 11
    game = Game(settings=Settings(view_radius=radius, food_spawn_chance=30))
    games = Games(1, width=size, height=size, num_snakes=3, game=game)
    encoder = observations.get("memory")
    seen = np.zeros((1, 3, *encoder.shape(size, size)), np.uint8)
    games.observe(encoder, seen)
    games.reset(np.array([5]))
    sightings = [Sightings() for _ in range(3)]
    mask = np.zeros((1, 3, 4), np.bool_)
    remembered = set()
    for turn in range(60):
        state = games.state(0)
        for seat in np.flatnonzero(games.alive[0]).tolist():
            board = Board.from_state(state, game, state.snakes[seat].id)
            memory = sightings[seat]
            memory.update(Board.from_api(limit_view(board.to_api(), radius)))
            food, bodies, recency = seen[0, seat, -3:]
            assert cells(food) == set(memory.food(turn))
            assert cells(bodies) == set(memory.bodies(turn))
            for (x, y), last in (memory.food(turn) | memory.bodies(turn)).items():
                assert recency[y, x] == max(15, 255 - 4 * (turn - last))
                remembered.add(turn - last)
        if games.over[0]:
            break
        games.action_mask("fatal+head", mask)
        moves = [[rng.choice(np.flatnonzero(m).tolist() or [0]) for m in mask[0]]]
        games.step(np.array(moves, np.uint8))
    assert len(remembered) > 10


def cells(plane: np.ndarray) -> set[tuple[int, int]]:
    return {(x, y) for y, x in np.argwhere(plane).tolist()}


@pytest.mark.parametrize(("radius", "equal"), [(2, True), (None, False)])
def test_built_in_opponents_of_the_engine_see_no_further(radius: int | None, equal: bool) -> None:
    choices = []
    for food in ((10, 5), (2, 0)):
        board = Board.new(11, 11, 2)
        board.snakes[0].body = [(2, 5), (1, 5), (0, 5)]
        board.snakes[1].body = [(8, 9), (9, 9), (10, 9)]
        board.food, board.turn = [food], 1
        game = Game(map="", settings=Settings(view_radius=radius))
        games = Games(1, width=11, height=11, num_snakes=2, game=game)
        games.load(0, board)
        found = np.zeros((1, 2), np.uint8)
        games.builtin_choices(np.array([[engine_code("hungry"), 0]], np.uint8), found)
        choices.append(int(found[0, 0]))
    assert (choices[0] == choices[1]) == equal


@pytest.mark.parametrize("ruleset", ["standard", "wrapped"])
@pytest.mark.parametrize(("head", "chosen"), [((10, 7), 0b1000), ((14, 7), 0b1101)])
def test_the_hunter_of_the_engine_hunts_only_visible_heads(
    ruleset: str, head: tuple[int, int], chosen: int
) -> None:
    bodies = [(7, 7), (7, 6), (7, 5)], [head, (13, 7)], [(1, 12), (0, 12)]
    state = State(9, 15, 15, [Snake(str(seat), body) for seat, body in enumerate(bodies)])
    game = Game(ruleset, "", Settings(view_radius=5))
    games = Games(1, width=15, height=15, num_snakes=3, game=game)
    games.load(0, state)
    found = np.zeros((1, 3), np.uint8)
    games.builtin_choices(np.array([[engine_code("hunter"), 0, 0]], np.uint8), found)
    assert found[0, 0] == chosen


@pytest.mark.parametrize("name", snakes.names())
def test_built_in_snakes_play_with_limited_view(name: str) -> None:
    game = Game(seed=4, settings=Settings(view_radius=3))
    board = Board.new(11, 11, 4, game=game)
    others = {f"snake_{i}": snakes.make("safe-random", i) for i in range(1, 4)}
    for _ in zip(
        range(15), snakes.play(board, others | {"snake_0": snakes.make(name)}, 0.01), strict=False
    ):
        pass
    assert board.turn > 3


def test_strategies_receive_the_limited_board() -> None:
    board = Board.new(11, 11, 2, game=Game(settings=Settings(view_radius=1)))
    seen: list[Board] = []

    def look(board: Board, seconds: float | None = None) -> Decision:
        seen.append(board)
        return Decision("up")

    next(iter(snakes.play(board.copy(), {snake.id: look for snake in board.snakes})))
    assert [position.you.body for position in seen] == [snake.body for snake in board.snakes]
    for position in seen:
        (other,) = [snake for snake in position.snakes if snake.id != position.you_id]
        assert other.body != board.snake(other.id).body


def test_an_unreadable_field_is_reported_once() -> None:
    body = request(example(), "me")
    body["game"]["ruleset"] = {"name": 3, "settings": [1]}
    errors: list[str] = []
    Board.from_api(body, errors=errors)
    assert len(errors) == 2
    assert sum("settings" in error for error in errors) == 1


def test_a_custom_observation_shows_only_what_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    def encode(state: State, snake_id: str) -> NDArray[np.uint8]:
        planes = np.zeros((1, state.height, state.width), np.uint8)
        for snake in state.snakes:
            for x, y in snake.body:
                if x >= 0 and snake.id != snake_id:
                    planes[0, y, x] = 1
        return planes

    monkeypatch.setattr(observations, "_custom_encoders", {})
    observations.register("others", ["others"], encode)
    games = [
        VectorBattlesnake(2, num_snakes=4, observation="others", settings={"view_radius": radius})
        for radius in (1, 30)
    ]
    seen = [one.reset(seed=3)[0] for one in games]
    assert seen[0].sum() == 0
    assert seen[1].sum() == 2 * 4 * 3


def test_no_hidden_end_is_lost_if_all_hidden_cells_beside_it_are_taken() -> None:
    board = Board.new(15, 15, ["me", "other"])
    board.snakes[0].body = [(10, 6), (10, 7), (10, 8)]
    board.snakes[1].body = [(14, 4), (14, 3), (14, 2), (14, 1), (14, 0), (13, 0), (12, 0), (12, 1),
                            (12, 2), (13, 2), (13, 1)]  # fmt: skip
    seen = limit_view(request(board, "me", 5), 7)
    assert seen["board"]["snakes"][1]["body"][-1] is None
    again = limit_view(Board.from_api(seen).to_api("me"), 7)
    assert again["board"]["snakes"][1]["body"] == seen["board"]["snakes"][1]["body"]
