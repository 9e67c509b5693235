"""Who is out where an engine lists all snakes of the game."""

from __future__ import annotations

import asyncio
import copy
import gzip
import json
from typing import Any

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards import board_json
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.corpses import Corpses
from battlesnake_gym.rules import Game, Snake, State
from battlesnake_server.arena.players import LocalPlayer
from battlesnake_server.arena.referee import ArenaForm, play


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
RIVAL = snake("rival", (3, 3), (3, 2), (3, 1), (3, 0))

SHOWN = {
    "head in another's body": snake("dead", (3, 2), (2, 2), (1, 2)),
    "head in its own body": snake("dead", (5, 5), (6, 5), (6, 4), (5, 4), (5, 5), (5, 6)),
    "on a longer one's head": snake("dead", (3, 3), (4, 3), (5, 3)),
    "off the board": snake("dead", (7, 3), (6, 3), (5, 3)),
    "no health": snake("dead", (6, 3), (6, 2), (6, 1), health=0),
    "head in our body": snake("dead", (1, 6), (1, 5), (1, 4)),
    "we went through it": snake("dead", (6, 6), (5, 6), (4, 6), (3, 6), (2, 6)),
}


@pytest.mark.parametrize("name", SHOWN)
def test_the_position_shows_who_is_out(name: str) -> None:
    board = Board.from_api(request(9, YOU, RIVAL, SHOWN[name]))
    assert [s.id for s in board.living] == ["you", "rival"]


def test_heads_of_one_length_are_both_out() -> None:
    other = snake("other", (3, 3), (4, 3), (5, 3), (6, 3))
    board = Board.from_api(request(9, YOU, RIVAL, other))
    assert [s.id for s in board.living] == ["you"]


def test_who_hits_one_that_leaves_at_the_same_time_lives() -> None:
    """Walls come first: the body that is hit is gone."""
    gone = snake("gone", (3, 7), (3, 6), (3, 5))
    lives = snake("lives", (3, 5), (4, 5), (5, 5))
    board = Board.from_api(request(9, YOU, gone, lives))
    assert [s.id for s in board.living] == ["you", "lives"]


def test_a_start_is_no_collision() -> None:
    start = [snake(name, (x, 1), (x, 1), (x, 1)) for x, name in enumerate("abc")]
    assert len(Board.from_api(request(0, *start)).living) == 3


def test_a_body_that_does_not_move_is_a_corpse() -> None:
    corpses, dead = Corpses(), snake("dead", (6, 3), (6, 2), (6, 1))
    moved = snake("rival", (3, 4), (3, 3), (3, 2), (3, 1))
    through = snake("rival", (6, 2), (5, 2), (4, 2), (3, 2))

    def living(turn: int, *others: dict[str, Any]) -> list[str]:
        return [s.id for s in Board.from_api(request(turn, YOU, *others), corpses=corpses).living]

    assert living(8, RIVAL, dead) == ["you", "rival", "dead"], "nobody can tell yet"
    assert living(8, RIVAL, dead) == ["you", "rival", "dead"], "asked twice about one turn"
    assert living(9, moved, dead) == ["you", "rival"]
    assert living(9, moved, dead) == ["you", "rival"]
    assert living(12, through, dead) == ["you", "rival"], "it goes through a corpse and lives"
    assert living(2, RIVAL, dead) == ["you", "rival", "dead"], "another game"


def test_going_round_in_circles_is_living() -> None:
    corpses = Corpses()
    for turn, health in ((8, 90), (12, 86)):
        circling = snake("circling", (3, 3), (3, 4), (4, 4), (4, 3), health=health)
        board = Board.from_api(request(turn, YOU, circling), corpses=corpses)
        assert len(board.living) == 2


class BothForms:
    """Writes the official form, and keeps what each living snake was told in both."""

    def __init__(self) -> None:
        self._arena = ArenaForm()
        self.told: dict[str, list[tuple[Any, Any]]] = {}

    def __call__(self, game: Game, state: State, you: Snake) -> Any:
        official = board_json.write(game, state, you)
        if you.alive:
            pair = official, self._arena(game, state, you)
            self.told.setdefault(you.id, []).append(copy.deepcopy(pair))
        return official


@pytest.mark.parametrize("ruleset", ["standard", "wrapped", "constrictor", "royale"])
@pytest.mark.parametrize("seed", [3, 4, 5])
def test_whole_games_look_the_same_in_both_forms(ruleset: str, seed: int) -> None:
    game, write = Game(ruleset=ruleset, seed=seed, id="g"), BothForms()
    players = [LocalPlayer(snakes.make("hungry", seed + seat), 5.0) for seat in range(6)]
    asyncio.run(play(game, 11, 11, list("abcdef"), players, 80, write=write))
    listed_dead = 0
    for told in write.told.values():
        corpses = Corpses()
        for official, listing in told:
            expected, seen = Board.from_api(official), Board.from_api(listing, corpses=corpses)
            assert [(s.id, s.body, s.health) for s in seen.living] == [
                (s.id, s.body, s.health) for s in expected.living
            ]
            assert len(seen.snakes) == 6
            listed_dead += len(seen.snakes) - len(seen.living)
    assert listed_dead > 5


def test_the_corpus_is_read_alike_in_both_forms_also_after_a_restart() -> None:
    """Every request as one of a game, and as the first one after a restart and the second one."""
    known: dict[tuple[str, int], Corpses] = {}
    restarted: dict[tuple[str, int], Corpses] = {}
    dead = unseen = 0
    with gzip.open("tests/data/requests.jsonl.gz", "rt") as file:
        for line in map(json.loads, file):
            key = line["game"], line["seat"]
            alive = [snake.id for snake in Board.from_api(line["official"]).living]

            def living(corpses: Corpses, body: Any = line["listing"]) -> list[str]:
                return [snake.id for snake in Board.from_api(body, corpses=corpses).living]

            assert living(known.setdefault(key, Corpses())) == alive
            if key in restarted and line["official"]["turn"] > 0:
                assert living(restarted[key]) == alive, "the second turn after a restart"
            restarted[key] = Corpses()
            first = living(restarted[key])
            assert line["official"]["you"]["id"] in first
            dead += len(line["listing"]["board"]["snakes"]) - len(alive)
            unseen += len(set(first) - set(alive))
    assert dead > 100
    assert unseen < 0.5 * dead, "most of the dead are told by the first position alone"
