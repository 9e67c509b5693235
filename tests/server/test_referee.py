"""Whole games: the order and content of the requests, and the effect of failed moves."""

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Game, Settings
from battlesnake_gym.snakes import Decision
from battlesnake_server.address_policy import LOOPBACK, AddressPolicy
from battlesnake_server.arena.players import HttpPlayer, LocalPlayer, Player
from battlesnake_server.arena.referee import GameRecord, play
from tests.server import misbehaving_snakes

Table = Sequence[str | misbehaving_snakes.Recorder | Callable[..., Decision]]


def game_of(**settings: Any) -> Game:
    defaults = Game(seed=11, id="7b1e4f6c-8f0e-4a7e-9d53-0c6d1c8b5a10", timeout=60_000)
    return replace(defaults, **settings)


def referee(
    table: Table,
    game: Game | None = None,
    width: int = 7,
    height: int = 7,
    hurried: str = "",
    max_turns: int | None = None,
) -> GameRecord:
    """Play a game between URLs, served recorders and strategies.

    The URL ``hurried`` has half a second per move.
    """
    game = game or game_of()

    async def run() -> GameRecord:
        async with contextlib.AsyncExitStack() as stack:
            players: list[Player] = []
            for who in table:
                timeout = 0.5 if who == hurried else game.timeout / 1000
                if isinstance(who, misbehaving_snakes.Recorder):
                    who = stack.enter_context(misbehaving_snakes.snake(who))
                if isinstance(who, str):
                    player = HttpPlayer(who, timeout, AddressPolicy(frozenset({LOOPBACK})))
                    players.append(await stack.enter_async_context(player))
                else:
                    players.append(LocalPlayer(who, timeout))
            spec = GameSpec(len(table), width, height, max_turns=max_turns)
            names = [f"snake {seat}" for seat in range(len(table))]
            return await play(game, spec, names, players)

    return asyncio.run(run())


def always(move: str) -> Callable[[bytes], bytes]:
    return lambda body: json.dumps({"move": move, "shout": "!"}).encode()


def safe(body: bytes) -> bytes:
    moves = Board.from_api(json.loads(body)).safe_moves() or ["up"]
    return json.dumps({"move": moves[0]}).encode()


def circling(board: Board, seconds: float | None = None) -> Decision:
    return Decision((board.safe_moves() or ["up"])[0])


def duel() -> tuple[misbehaving_snakes.Recorder, misbehaving_snakes.Recorder, GameRecord]:
    """Play a snake that hits the wall against one that survives."""
    doomed, survivor = misbehaving_snakes.Recorder(always("up")), misbehaving_snakes.Recorder(safe)
    with misbehaving_snakes.snake(doomed) as first, misbehaving_snakes.snake(survivor) as second:
        return doomed, survivor, referee([f"{first}/one", f"{second}/two?k=v"])


def lines(recorder: misbehaving_snakes.Recorder) -> list[str]:
    return [line for line, _, _ in recorder.requests]


def test_the_order_of_the_requests() -> None:
    doomed, survivor, record = duel()
    end = len(record.turns)
    assert record.winner == 1
    assert record.seats[0].cause == "wall-collision"
    assert lines(doomed) == [
        "GET /one HTTP/1.1",
        "POST /one/start HTTP/1.1",
        *["POST /one/move HTTP/1.1"] * end,
        "POST /one/end HTTP/1.1",
    ]
    # The survivor gets one more request, for the last board; its response is not used.
    assert lines(survivor) == [
        "GET /two?k=v HTTP/1.1",
        "POST /two/start?k=v HTTP/1.1",
        *["POST /two/move?k=v HTTP/1.1"] * (end + 1),
        "POST /two/end?k=v HTTP/1.1",
    ]
    assert [body["turn"] for body in survivor.told("start")] == [0]
    assert [body["turn"] for body in survivor.told("move")] == list(range(end + 1))
    assert [body["turn"] for body in survivor.told("end")] == [end + 1]
    assert [body["turn"] for body in doomed.told("end")] == [end + 1]


def test_the_content_of_the_requests() -> None:
    _, survivor, _ = duel()
    _, headers, raw = survivor.requests[2]
    assert headers["Content-Type"] == "application/json"
    assert headers["Content-Length"] == str(len(raw))
    body = json.loads(raw)
    assert list(body) == ["game", "turn", "board", "you"]
    assert json.dumps(body["game"], separators=(",", ":")) == (
        '{"id":"7b1e4f6c-8f0e-4a7e-9d53-0c6d1c8b5a10","ruleset":{"name":"standard","version":"cli",'
        '"settings":{"foodSpawnChance":15,"minimumFood":1,"hazardDamagePerTurn":14,"hazardMap":"",'
        '"hazardMapAuthor":"","royale":{"shrinkEveryNTurns":25},"squad":{"allowBodyCollisions":'
        'false,"sharedElimination":false,"sharedHealth":false,"sharedLength":false}}},'
        '"map":"standard","timeout":60000,"source":""}'
    )
    assert list(body["board"]) == ["height", "width", "snakes", "food", "hazards"]
    assert body["board"]["food"]
    assert all(list(cell) == ["x", "y"] for cell in body["board"]["food"])
    for snake in [*body["board"]["snakes"], body["you"]]:
        assert list(snake) == [
            "id", "name", "latency", "health", "body", "head", "length", "shout", "squad",
            "customizations",
        ]  # fmt: skip
        assert str(UUID(snake["id"])) == snake["id"]
        assert snake["head"] == snake["body"][0]
        assert (snake["length"], snake["health"], snake["latency"]) == (3, 100, "0")
        assert (snake["shout"], snake["squad"]) == ("", "")
        assert snake["customizations"] == {"color": "#112233", "head": "evil", "tail": "bolt"}
    assert [snake["name"] for snake in body["board"]["snakes"]] == ["snake 0", "snake 1"]
    assert body["you"] == body["board"]["snakes"][1]


def test_eliminated_snakes_leave_the_board_but_stay_you() -> None:
    doomed, survivor, _ = duel()
    (end,) = doomed.told("end")
    assert [snake["name"] for snake in end["board"]["snakes"]] == ["snake 1"]
    assert end["you"]["name"] == "snake 0"
    last = survivor.told("move")[-1]
    assert [snake["name"] for snake in last["board"]["snakes"]] == ["snake 1"]
    assert {s["shout"] for body in survivor.told("move") for s in body["board"]["snakes"]} == {""}


def test_the_map_advances_once_more_before_the_end() -> None:
    doomed, survivor = misbehaving_snakes.Recorder(always("up")), misbehaving_snakes.Recorder(safe)
    referee([doomed, survivor], game_of(settings=Settings(food_spawn_chance=100)))
    before, after = survivor.told("move")[-1], survivor.told("end")[0]
    assert before["board"]["snakes"][0]["body"] == after["board"]["snakes"][0]["body"]
    assert len(after["board"]["food"]) == len(before["board"]["food"]) + 1


def test_a_solo_game_ends_with_its_snake() -> None:
    recorder = misbehaving_snakes.Recorder(always("left"))
    record = referee([recorder])
    assert record.winner is None
    assert record.finished
    assert [body["turn"] for body in recorder.told("move")] == list(range(len(record.turns)))
    assert [body["turn"] for body in recorder.told("end")] == [len(record.turns) + 1]


def test_the_reported_ruleset_is_the_one_that_is_played() -> None:
    recorder = misbehaving_snakes.Recorder(always("up"))
    referee([recorder], game_of(ruleset="squad"))
    assert recorder.told("move")[0]["game"]["ruleset"]["name"] == "standard"


def test_latency_is_of_the_previous_turn_and_moves_are_requested_concurrently() -> None:
    together = threading.Barrier(3, timeout=60)

    def slow(body: bytes) -> bytes:
        together.wait()  # for the other two, which must have received their requests
        time.sleep(0.1)
        return safe(body)

    recorders = [misbehaving_snakes.Recorder(slow) for _ in range(3)]
    referee(recorders, max_turns=5)
    latencies = [int(body["you"]["latency"]) for body in recorders[0].told("move")]
    assert latencies[0] == 0
    assert len(latencies) > 1
    assert all(100 <= latency < 60_000 for latency in latencies[1:])


@pytest.mark.parametrize(
    "bad",
    [
        misbehaving_snakes.hangs,
        misbehaving_snakes.closes,
        misbehaving_snakes.floods,
        misbehaving_snakes.drips_body,
        misbehaving_snakes.circles,
        misbehaving_snakes.answers(b'{"move": "UP"}'),
        misbehaving_snakes.answers(misbehaving_snakes.GOOD, "500 Internal Server Error"),
    ],
)
def test_a_misbehaving_snake_goes_up_and_harms_only_itself(
    bad: misbehaving_snakes.Behavior,
) -> None:
    good = misbehaving_snakes.Recorder(safe)
    with misbehaving_snakes.snake(bad) as first:
        record = referee([first, good, circling], None, 19, 19, hurried=first, max_turns=3)
    ids = [snake.id for snake in record.first.snakes]
    assert [turn.moves.get(ids[0], "up") for turn in record.turns] == ["up"] * 3
    assert sum(record.seats[0].problems.values()) == len(record.seats[0].latencies) > 0
    assert max(record.seats[0].latencies) < 1000 * misbehaving_snakes.NEVER / 2
    assert not record.seats[1].problems
    assert not record.seats[2].problems


def test_the_last_valid_move_is_repeated() -> None:
    answers = iter([b"{}", b'{"move": "%s"}', b"", b'{"move": "%s"}', b"[]", b'{"move": "upp"}'])
    asked: list[str] = []

    def move(body: bytes) -> bytes:
        # Towards the middle, so that the snake survives until its last response.
        head = json.loads(body)["you"]["head"]
        asked.append("left" if head["x"] > 9 else "right")
        return next(answers).replace(b"%s", asked[-1].encode())

    table: Table = [misbehaving_snakes.Recorder(move), circling]
    record = referee(table, game_of(seed=3), 19, 19, max_turns=5)
    you = record.first.snakes[0].id
    moves = [turn.moves[you] for turn in record.turns]
    assert moves == ["up", asked[1], asked[1], asked[3], asked[3]]
    assert record.seats[0].problems == {"answer": 4}


def test_a_game_can_be_cut_short() -> None:
    recorder = misbehaving_snakes.Recorder(safe)
    record = referee([recorder, circling], max_turns=3)
    assert (len(record.turns), record.finished, record.winner) == (3, False, None)
    assert [body["turn"] for body in recorder.told("end")] == [3]


def test_the_replay_reproduces_the_game() -> None:
    table = [snakes.make(name, 4) for name in ("hungry", "cautious")]
    record = referee(table, game_of(), 11, 11)
    replay = Replay(record.first, record.turns)
    last = replay.last
    assert last.turn == len(record.turns)
    assert [snake.eliminated_cause for snake in last.snakes] == [s.cause for s in record.seats]
    assert [snake.name for snake in last.snakes] == ["snake 0", "snake 1"]
    assert record.turns[0].decisions[last.snakes[0].id].reasons, "the reasons of its move"
    assert record.winner is None or last.winner is last.snakes[record.winner]


@pytest.mark.parametrize(
    ("ruleset", "game_map"),
    [
        ("royale", "royale"),
        ("wrapped", "arcade_maze"),
        ("constrictor", "empty"),
        ("solo", "hz_rings"),
    ],
)
def test_other_games_are_played_too(ruleset: str, game_map: str) -> None:
    width, height = (19, 21) if game_map == "arcade_maze" else (11, 11)
    table = [snakes.make("cautious", seat) for seat in range(3)]
    game = game_of(ruleset=ruleset, map=game_map, timeout=10_000)
    record = referee(table, game, width, height, max_turns=60)
    assert len(record.turns) > 3
    assert not any(seat.problems for seat in record.seats)
