"""Results of games as rows, as a table and as JSON."""

import json

from battlesnake_gym import snakes
from battlesnake_server.arena.database import Seat, StoredGame
from battlesnake_server.arena.results import Standings, compute_standings, format_table
from battlesnake_server.arena.sprt_match import MatchScore
from battlesnake_server.commands.arena_command import print_failed_moves


def seat(number: int, snake: str, won: bool, cause: str, turn: int, *latencies: float) -> Seat:
    return Seat(
        seat=number, snake=snake, won=won, cause=cause, killer=None, eliminated_on=turn,
        length=3, latencies=list(latencies), problems={} if latencies else {"timeout": 4},
    )  # fmt: skip


GAMES = [
    StoredGame(number=0, turns=10, finished=True, seats=[
        seat(0, "a", True, "", 0, *range(1, 101)),
        seat(1, "b", False, "wall-collision", 10),
    ]),
    StoredGame(number=1, turns=20, finished=True, seats=[
        seat(0, "b", False, "head-collision", 20, 5),
        seat(1, "a", False, "head-collision", 20, 5),
    ]),
    StoredGame(number=2, turns=30, finished=False, seats=[
        seat(0, "a", False, "", 0, 5),
        seat(1, "b", False, "wall-collision", 12, 5),
    ]),
]  # fmt: skip


def test_a_row_holds_the_results_of_a_snake() -> None:
    a, b = compute_standings(GAMES)
    assert (a.snake, a.games, a.wins, a.draws, a.turns) == ("a", 3, 1, 2, 20.0)
    assert a.endings == {"alive": 2, "head-collision": 1}
    assert (a.p50, a.p99) == (49.5, 98.99)
    assert a.problems == {}
    assert (b.snake, b.wins, b.endings) == ("b", 0, {"wall-collision": 2, "head-collision": 1})
    assert b.problems == {"timeout": 4}
    assert a.rating.mu > b.rating.mu


def test_the_table_has_a_row_for_each_snake() -> None:
    heading, first, second = format_table(compute_standings(GAMES)).splitlines()
    assert heading.split()[:3] == ["snake", "rating", "games"]
    assert first.startswith("a ")
    assert "49.5" in first
    assert "alive 2, head-collision 1" in first
    assert second.endswith(" timeout 4")


def test_only_built_in_snakes_may_be_late() -> None:
    lines = compute_standings(GAMES)
    assert print_failed_moves(lines, ["b=minimax"], as_json=False) == 0
    with snakes.capture_registrations():
        snakes.register("b", lambda seed: lambda board, seconds=None: snakes.Decision("up"))
        assert print_failed_moves(lines, ["b"], as_json=False) == 1


def test_the_json_holds_the_confidence_interval() -> None:
    a, _ = json.loads(json.dumps([row.to_dict() for row in compute_standings(GAMES)]))
    assert a["rating"]["ci_low"] < a["rating"]["mu"] < a["rating"]["ci_high"]
    assert a["endings"]["alive"] == 2


def test_ratings_follow_the_order_in_which_games_end_as_on_the_pages() -> None:
    games = [
        StoredGame(id=one, number=2 - one, turns=10, finished=True, seats=[
            seat(0, "a", one == 1, "" if one == 1 else "wall-collision", 10),
            seat(1, "b", one == 2, "" if one == 2 else "wall-collision", 10),
        ])
        for one in (2, 1)
    ]  # fmt: skip
    assert compute_standings(games) == Standings(games[::-1]).sorted_rows()
    assert compute_standings(games) != Standings(games).sorted_rows()


def test_a_snake_without_moves_has_no_latency() -> None:
    (line,) = compute_standings(
        [StoredGame(number=0, turns=0, finished=True, seats=[seat(0, "a", False, "", 0)])]
    )
    assert line.p50 is None
    assert " - " in format_table([line])


def test_a_side_wins_if_only_its_snakes_reach_the_turn_limit() -> None:
    four = StoredGame(number=0, turns=40, finished=False, seats=[
        seat(0, "a", False, "", 0),
        seat(1, "b", False, "wall-collision", 31),
        seat(2, "a", False, "", 0),
        seat(3, "b", False, "wall-collision", 12),
    ])  # fmt: skip
    assert MatchScore.from_games([four]).points == {0: 1.0}


def test_a_side_wins_in_all_its_seats() -> None:
    four = StoredGame(number=0, turns=40, finished=True, seats=[
        seat(0, "a", True, "", 0),
        seat(1, "b", False, "wall-collision", 31),
        seat(2, "a", False, "wall-collision", 12),
        seat(3, "b", False, "wall-collision", 31),
    ])  # fmt: skip
    assert [(row.snake, row.wins / row.games) for row in compute_standings([four])] == [
        ("a", 1),
        ("b", 0),
    ]


def test_points_count_the_places_of_each_game() -> None:
    four = StoredGame(number=3, turns=40, finished=True, seats=[
        seat(0, "c", True, "", 0, 5),
        seat(1, "b", False, "wall-collision", 31, 5),
        seat(2, "a", False, "wall-collision", 30, 5),
        seat(3, "d", False, "wall-collision", 12, 5),
    ])  # fmt: skip
    lines = compute_standings([*GAMES, four])
    assert {line.snake: line.points for line in lines} == {"a": 5.5, "b": 4.5, "c": 2, "d": 0}
    heading, *rows = format_table(lines, points=True).splitlines()
    assert heading.split()[4:7] == ["draws", "points", "turns"]
    assert [row.split()[0] for row in rows] == ["a", "b", "c", "d"]
    assert [row.split()[7] for row in rows][:2] == ["5.5", "4.5"], "the rating is three words"
    assert "points" not in format_table(lines)
