from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.snakes import Decision, Strategy
from battlesnake_heuristics.round_robin import format_duel_table, play_duels


def forward(move: str) -> Strategy:
    return lambda board, seconds=None: Decision(move)


def test_a_game_is_played_to_its_end() -> None:
    board = Board.from_text("> > A . . . B <\n. . . . . . . .")
    turns = list(snakes.play(board, {"a": forward("right"), "b": forward("down")}))
    assert board.is_over()
    assert board.winner is not None
    assert board.winner.id == "a"
    assert len(turns) == board.turn
    assert turns[0]["b"].move == "down"


def test_the_table_shares_all_points() -> None:
    shares = play_duels(["random", "safe-random", "territory"], 4, "standard")
    table = format_duel_table(shares).splitlines()
    assert table[0].split() == ["territory", "safe-random", "random", "all"]
    assert table[1].startswith("territory")
    assert [row.split()[-1] for row in table[1:]] == ["100%", "50%", "0%"]
    assert play_duels(["safe-random", "cautious"], 3, "standard") == play_duels(
        ["safe-random", "cautious"], 3, "standard"
    )
