"""Ratings from the games of snakes."""

from battlesnake_server.arena.ratings import GameRanks, Rating, Ratings, rank_snakes


def rate(games: list[GameRanks]) -> dict[str, Rating]:
    ratings = Ratings()
    for ranks in games:
        ratings.add_game(ranks)
    return {name: ratings.get(name) for name, _ in games[0]}


def test_the_better_snake_is_rated_higher_and_with_less_uncertainty_after_more_games() -> None:
    few = rate([[("good", 0), ("bad", 1)]] * 3)
    many = rate([[("good", 0), ("bad", 1)]] * 40)
    assert few["good"].mu > 25 > few["bad"].mu
    assert many["good"].sigma < few["good"].sigma
    assert few["good"].ci_low < few["good"].mu < few["good"].ci_high
    assert many["good"].ci_low > many["bad"].ci_high


def test_ties_keep_ratings_equal() -> None:
    ratings = rate([[("a", 0), ("b", 0)]] * 10)
    assert abs(ratings["a"].mu - ratings["b"].mu) < 1e-6


def test_a_solo_game_changes_nothing() -> None:
    (rating,) = rate([[("a", 0)]] * 5).values()
    assert (rating.mu, rating.sigma) == (25, 25 / 3)


def test_the_best_rank_counts_for_a_name_in_several_seats() -> None:
    assert rate([[("a", 0), ("b", 1), ("a", 3), ("b", 2)]]) == rate([[("a", 0), ("b", 1)]])
    assert rate([[("a", 0), ("a", 1)]]) == rate([[("a", 0)]])


def test_survivors_at_the_turn_limit_tie() -> None:
    assert rank_snakes([("a", True, 0), ("b", True, 0)]) == [("a", 0), ("b", 0)]
