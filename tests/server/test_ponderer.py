"""Pondering, which delays no move request."""

import queue
import threading
import time
from typing import Any

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from battlesnake_gym.snakes import Decision
from battlesnake_heuristics.search import search
from battlesnake_heuristics.search.search import SHOULD_STOP, Search
from battlesnake_server.live.app import create_app
from battlesnake_server.live.live_snake import LiveSnake
from battlesnake_server.live.ponderer import MAX_PONDER_TIMEOUTS, Ponderer
from tests.processes import until

pytestmark = pytest.mark.skipif(not search.COMPILED, reason=search.NOT_COMPILED_MESSAGE)


class Ponders(Search):
    """Moves immediately, and ponders until it is stopped; records start and end of pondering."""

    def __init__(self) -> None:
        super().__init__()
        self.told: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        stop = SHOULD_STOP.get()
        assert stop is None or not stop()
        return Decision("up")

    def ponder(self, board: Board, decision: Decision, seconds: float) -> None:
        self.told.put((board.game.id, decision.move, seconds))
        stop = SHOULD_STOP.get()
        assert stop is not None
        until(stop)
        self.told.put("stopped")


def a_move(game: str) -> dict[str, Any]:
    board = Board.new(11, 11, 2, game=Game(seed=1, id=game, timeout=300))
    return board.to_api("snake_0")


def test_it_ponders_until_the_next_move_or_the_end() -> None:
    strategy = Ponders()
    live = LiveSnake(lambda seed: strategy, ponders=True)
    live.move(("a", "snake_0"), a_move("a"), time.perf_counter())
    assert strategy.told.get(timeout=60) == ("a", "up", MAX_PONDER_TIMEOUTS * 0.3)
    assert strategy.told.empty()
    live.move(("b", "snake_0"), a_move("b"), time.perf_counter())
    assert strategy.told.get(timeout=60) == "stopped"
    assert strategy.told.get(timeout=60) == ("b", "up", MAX_PONDER_TIMEOUTS * 0.3)
    live.end(("a", "snake_0"), a_move("a"))
    with pytest.raises(queue.Empty):
        strategy.told.get(timeout=0.2)
    live.end(("b", "snake_0"), a_move("b"))
    assert strategy.told.get(timeout=60) == "stopped"
    assert strategy.told.empty()


def test_while_somebody_asks_nobody_ponders() -> None:
    strategy = Ponders()
    live = LiveSnake(lambda seed: strategy, ponders=True)
    with live._ponderer.pause():  # A slow move of another game.
        live.move(("a", "snake_0"), a_move("a"), time.perf_counter())
        until(lambda: live._ponderer._threads._idle)
    assert strategy.told.empty()


@pytest.mark.parametrize("decoupled", [False, True])
@pytest.mark.parametrize("num_snakes", [2, 3])
def test_a_move_waits_only_for_a_tree(
    num_snakes: int, decoupled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SlowlyStopping(Ponders):
        def ponder(self, board: Board, decision: Decision, seconds: float) -> None:
            super().ponder(board, decision, seconds)
            stopping.set()
            released.wait(60)
            self.told.put("released")

    stopping, released = threading.Event(), threading.Event()
    monkeypatch.setattr("battlesnake_server.live.ponderer._MAX_STOP_S", 60)
    strategy = SlowlyStopping()
    strategy.decoupled = decoupled
    board = Board.new(11, 11, num_snakes, game=Game(seed=1))
    ponderer = Ponderer()
    ponderer.ponder(strategy, board, Decision("up"))
    assert strategy.told.get(timeout=60)
    if not decoupled:
        with ponderer.pause():
            assert stopping.wait(60)
            assert strategy.told.get(timeout=60) == "stopped"
            assert strategy.told.empty()
        released.set()
    else:
        threading.Timer(0.1, released.set).start()
        with ponderer.pause():
            assert released.is_set()
            assert strategy.told.get(timeout=60) == "stopped"
            assert strategy.told.get(timeout=60) == "released"


def test_a_failure_is_told_once_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    class Fails(Ponders):
        def ponder(self, board: Board, decision: Decision, seconds: float) -> None:
            self.told.put(board.game.id)
            raise ZeroDivisionError

    strategy = Fails()
    live = LiveSnake(lambda seed: strategy, ponders=True)
    for game in ("a", "b"):
        live.move((game, "snake_0"), a_move(game), time.perf_counter())
        assert strategy.told.get(timeout=60) == game
        until(lambda: live._ponderer._threads._idle)
    assert caplog.text.count("pondering failed") == 1


@pytest.mark.parametrize(("side", "ponders"), [(60, True), (11, False)])
def test_nobody_ponders_on_outsized_boards_or_unasked(side: int, ponders: bool) -> None:
    live = LiveSnake(lambda seed: Ponders(), ponders=ponders)
    body = a_move("a")
    body["board"] |= {"width": side, "height": side}
    live.move(("a", "snake_0"), body, time.perf_counter())
    assert not live._ponderer._threads._inboxes


def test_the_search_ponders_and_goes_on() -> None:
    client = create_app({"SNAKE": "minimax", "PONDER": True}).test_client()
    board = Board.new(11, 11, 2, game=Game(seed=1, id="a", timeout=100))
    for _ in range(5):
        answer = client.post("/move", json=board.to_api("snake_0")).get_json()
        assert answer["move"] in board.safe_moves("snake_0")
        board.step({"snake_0": answer["move"], "snake_1": board.safe_moves("snake_1")[0]})


@pytest.mark.parametrize("name", ["hungry", "minimax-2026"])
def test_a_snake_that_does_not_search_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"ponder.*--ponder"):
        create_app({"SNAKE": name, "PONDER": True})
