"""Detection of eliminated snakes in requests that list all snakes."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards import board_json
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.elimination_tracker import EliminationTracker
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Game, Snake

RULESETS = ("standard", "wrapped", "constrictor", "royale")


def snake(name: str, *body: tuple[int, int], health: int = 90) -> dict[str, Any]:
    return {"id": name, "health": health, "body": [{"x": x, "y": y} for x, y in body]}


def request(turn: int, you: dict[str, Any], *others: dict[str, Any]) -> dict[str, Any]:
    return {
        "game": {"id": "g"},
        "turn": turn,
        "board": {"width": 7, "height": 7, "snakes": [you, *others]},
        "you": you,
    }


YOU = snake("you", (0, 6), (1, 6), (2, 6))
OPPONENT = snake("opponent", (3, 3), (3, 2), (3, 1), (3, 0))

SHOWN = {
    "head in another's body": snake("dead", (3, 2), (2, 2), (1, 2)),
    "head in its own body": snake("dead", (5, 5), (6, 5), (6, 4), (5, 4), (5, 5), (5, 6)),
    "on the head of a longer snake": snake("dead", (3, 3), (4, 3), (5, 3)),
    "off the board": snake("dead", (7, 3), (6, 3), (5, 3)),
    "no health": snake("dead", (6, 3), (6, 2), (6, 1), health=0),
    "head in our body": snake("dead", (1, 6), (1, 5), (1, 4)),
    "our head went through it": snake("dead", (6, 6), (5, 6), (4, 6), (3, 6), (2, 6)),
}


@pytest.mark.parametrize("name", SHOWN)
def test_position_shows_eliminations(name: str) -> None:
    board = Board.from_api(request(9, YOU, OPPONENT, SHOWN[name]))
    assert [s.id for s in board.living] == ["you", "opponent"]


def test_heads_of_equal_length_are_both_eliminated() -> None:
    other = snake("other", (3, 3), (4, 3), (5, 3), (6, 3))
    board = Board.from_api(request(9, YOU, OPPONENT, other))
    assert [s.id for s in board.living] == ["you"]


def test_collision_with_a_snake_that_leaves_the_board_is_survived() -> None:
    """Wall collisions are processed first, so the other body is already removed."""
    gone = snake("gone", (3, 7), (3, 6), (3, 5))
    lives = snake("lives", (3, 5), (4, 5), (5, 5))
    board = Board.from_api(request(9, YOU, gone, lives))
    assert [s.id for s in board.living] == ["you", "lives"]


def test_stacked_start_is_no_collision() -> None:
    start = [snake(name, (x, 1), (x, 1), (x, 1)) for x, name in enumerate("abc")]
    assert len(Board.from_api(request(0, *start)).living) == 3


def test_unmoved_body_is_eliminated() -> None:
    tracker, dead = EliminationTracker(), snake("dead", (6, 3), (6, 2), (6, 1))
    moved = snake("opponent", (3, 4), (3, 3), (3, 2), (3, 1))
    through = snake("opponent", (6, 2), (5, 2), (4, 2), (3, 2))

    def living(turn: int, *others: dict[str, Any]) -> list[str]:
        return [s.id for s in Board.from_api(request(turn, YOU, *others), tracker=tracker).living]

    assert living(8, OPPONENT, dead) == ["you", "opponent", "dead"], "not detectable yet"
    assert living(8, OPPONENT, dead) == ["you", "opponent", "dead"], "the same turn again"
    assert living(9, moved, dead) == ["you", "opponent"]
    assert living(9, moved, dead) == ["you", "opponent"]
    assert living(12, through, dead) == ["you", "opponent"], "an eliminated body is no obstacle"
    assert living(2, OPPONENT, dead) == ["you", "opponent", "dead"], "another game"


def test_snake_moving_in_a_loop_is_living() -> None:
    tracker = EliminationTracker()
    for turn, health in ((8, 90), (12, 86)):
        circling = snake("circling", (3, 3), (3, 4), (4, 4), (4, 3), health=health)
        board = Board.from_api(request(turn, YOU, circling), tracker=tracker)
        assert len(board.living) == 2


def request_of_the_arena(board: Board, you: Snake) -> dict[str, Any]:
    """A request of arena.battlesnake.com: eliminated snakes are listed without a mark."""
    game = replace(board.game, id=f"{board.game.id} at the arena", map="")
    body = board_json.request_to_dict(game, board, you)
    body["board"]["snakes"] = [
        board_json.request_to_dict(game, board, one)["you"] for one in board.snakes
    ]
    for one in [*body["board"]["snakes"], body["you"]]:
        one["latency"] = "0"
    return body


def requests_in_both_formats(ruleset: str, seed: int) -> list[list[tuple[Any, Any]]]:
    """Return the requests of a game of six snakes, by snake."""
    start = Board.new(11, 11, list("abcdef"), game=Game(ruleset=ruleset, seed=seed, id="g"))
    players = {name: snakes.make("hungry", seed + seat) for seat, name in enumerate("abcdef")}
    requests: dict[str, list[tuple[Any, Any]]] = {name: [] for name in players}
    for board in Replay.from_play(start, players, max_turns=80).boards():
        for you in board.living:
            official = board_json.request_to_dict(board.game, board, you)
            requests[you.id].append((official, request_of_the_arena(board, you)))
    return list(requests.values())


def test_games_are_equal_in_both_formats() -> None:
    """Compare all requests, and the first two requests after a restart."""
    dead = unseen = 0
    for ruleset, seed in itertools.product(RULESETS, (3, 4, 5)):
        dead_before = dead
        for requests in requests_in_both_formats(ruleset, seed):
            tracker, restarted, turn = EliminationTracker(), EliminationTracker(), -1
            for official, listing in requests:
                expected, seen = Board.from_api(official), Board.from_api(listing, tracker=tracker)
                living = [(s.id, s.body, s.health) for s in expected.living]
                assert [(s.id, s.body, s.health) for s in seen.living] == living
                assert len(seen.snakes) == 6
                dead += len(seen.snakes) - len(seen.living)
                if 0 <= turn < expected.turn:
                    second = Board.from_api(listing, tracker=restarted)
                    assert [(s.id, s.body, s.health) for s in second.living] == living
                restarted, turn = EliminationTracker(), expected.turn
                first = {s.id for s in Board.from_api(listing, tracker=restarted).living}
                assert official["you"]["id"] in first
                unseen += len(first - {s.id for s in expected.living})
        assert dead > dead_before + 5
    assert dead > 100
    assert unseen < 0.5 * dead, "the first position alone shows most eliminations"
