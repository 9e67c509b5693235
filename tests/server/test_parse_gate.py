"""Large bodies are parsed one at a time, the smallest first."""

import threading
import time

from battlesnake_gym.boards.board import Board
from battlesnake_server.live.app import create_app
from battlesnake_server.live.parse_gate import OVERSIZED_BODY_BYTES, ParseGate


def test_the_smallest_body_is_next() -> None:
    gate, parsed = ParseGate(), list[int]()

    def parse(size: int) -> None:
        with gate.admit(size):
            parsed.append(size)

    sizes = [OVERSIZED_BODY_BYTES + extra for extra in (300, 100, 200)]
    threads = [threading.Thread(target=parse, args=(size,)) for size in sizes]
    with gate.admit(OVERSIZED_BODY_BYTES + 1):
        for number, thread in enumerate(threads, start=1):
            thread.start()
            while len(gate._waiting) < number:
                time.sleep(0.01)
        with gate.admit(OVERSIZED_BODY_BYTES):
            assert not parsed, "other bodies do not wait"
    for thread in threads:
        thread.join()
    assert parsed == sorted(sizes)
    with gate.admit(OVERSIZED_BODY_BYTES + 1):
        pass


def test_the_end_of_the_featured_game_waits() -> None:
    snake, key = create_app({"SNAKE": "hungry"}).extensions["live_snake"], ("game", "a")
    body, size = Board.new(7, 7, ["a", "b"]).to_api("a"), OVERSIZED_BODY_BYTES + 1
    snake.move(key, body, time.perf_counter())
    ending = threading.Thread(target=snake.end, args=(key, body, size))
    with snake.parse_gate.admit(size):
        ending.start()
        ending.join(0.5)
        assert ending.is_alive()
    ending.join()
