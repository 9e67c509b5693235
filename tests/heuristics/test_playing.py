from battlesnake_gym.board import Board
from battlesnake_gym.rules import Game
from battlesnake_gym.snakes import Decision, Strategy
from heuristics.playing import duel_shares, duel_table, duels, play, play_named


def forward(move: str) -> Strategy:
    return lambda board, seconds=None: Decision(move)


def test_a_game_is_played_to_its_end() -> None:
    board = Board.from_text("> > A . . . B <\n. . . . . . . .")

    winner = play(board, {"a": forward("right"), "b": forward("down")}).winner
    assert winner is not None
    assert winner.id == "a"
    assert board.is_over()
    assert board.you_id is None


def test_a_game_may_be_cut_short() -> None:
    board = Board.new(11, 11, 2, game=Game(seed=2))
    assert play(board, dict.fromkeys(["snake_0", "snake_1"], forward("up")), 1).turn == 1


def test_the_same_seed_is_the_same_game() -> None:
    players = ("safe-random", "cautious", "safe-random")
    first = play_named(players, Game(seed=9))
    assert first == play_named(players, Game(seed=9))
    assert first.players == players
    assert first.winner in (None, *players)


def test_duels_swap_seats_on_each_seed() -> None:
    results = list(duels(["random", "safe-random", "straight"], 4, Game(seed=1)))
    assert len(results) == 12
    assert [result.players for result in results[:4]] == [
        ("random", "safe-random"),
        ("safe-random", "random"),
    ] * 2


def test_the_table_shares_all_points() -> None:
    shares = duel_shares(["random", "safe-random", "territory"], 4, Game(seed=1))
    table = duel_table(shares).splitlines()
    assert table[1].startswith("territory")
    assert [row.split()[-1] for row in table[1:]] == ["100%", "50%", "0%"]
