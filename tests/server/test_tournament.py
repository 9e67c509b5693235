"""Schedules of tournaments, and playing them."""

import itertools
import os
import signal
from collections import Counter, defaultdict
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import Settings
from battlesnake_heuristics.rating.match import derive_seed
from battlesnake_server.arena import tournament
from battlesnake_server.arena.tournament import (
    Entrant,
    ScheduledGame,
    TournamentSettings,
    play_scheduled_games,
)
from battlesnake_server.web.live_games import LiveGames
from tests.processes import until


@pytest.mark.parametrize(("snakes", "num_snakes"), [(2, 2), (4, 2), (4, 4), (5, 3), (3, 1)])
def test_every_seed_is_played_from_every_seat(snakes: int, num_snakes: int) -> None:
    names = tuple(map(str, range(snakes)))
    games = TournamentSettings(names, GameSpec(num_snakes), seed=8).missing_games(3 * num_snakes)
    assert [game.number for game in games] == list(range(len(games)))
    seats: defaultdict[tuple[tuple[int, ...], int, int], Counter[int]] = defaultdict(Counter)
    for game in games:
        for seat, snake in enumerate(game.seats):
            group = tuple(sorted(game.seats))
            seats[group, game.seed, snake][seat] += 1
    assert set(itertools.chain(*(counter.values() for counter in seats.values()))) == {1}
    assert {len(counter) for counter in seats.values()} == {num_snakes}
    groups = {group for group, _, _ in seats}
    assert groups == set(itertools.combinations(range(snakes), num_snakes))


def test_a_longer_schedule_begins_with_the_shorter_one() -> None:
    settings = TournamentSettings(("a", "b", "c", "d"), GameSpec(2))
    short = settings.missing_games(3)
    assert settings.missing_games(7)[: len(short)] == short


def test_seeds_are_far_apart_and_derived_from_the_first() -> None:
    seeds = sorted(derive_seed(5, index) for index in range(1000))
    assert all(0 < seed < 2**63 for seed in seeds)
    assert min(b - a for a, b in itertools.pairwise(seeds)) > 10_000
    assert derive_seed(5, 3) == derive_seed(5, 3) != derive_seed(6, 3)


SETUP = TournamentSettings(
    ("hungry", "cautious", "hungry"), GameSpec(2, 7, 7, max_turns=80), seed=4
)


def test_stored_settings_have_the_form_of_earlier_databases() -> None:
    rules = Settings(view_radius=3)
    spec = GameSpec(2, 9, 7, "wrapped", "royale", rules, max_turns=50)
    stored = {
        "snakes": ["hungry", "random"], "num_snakes": 2, "width": 9, "height": 7,
        "ruleset": "wrapped", "map": "royale", "seed": 4, "timeout": 500, "max_turns": 50,
        "settings": {
            "food_spawn_chance": 15, "minimum_food": 1, "hazard_damage_per_turn": 14,
            "shrink_every_n_turns": 25, "view_radius": 3,
        },
    }  # fmt: skip
    settings = TournamentSettings(("hungry", "random"), spec, seed=4)
    assert settings.to_dict() == stored
    match = replace(settings, nodes=5, is_match=True, game_spec=replace(spec, settings=None))
    del stored["settings"]["view_radius"]  # type: ignore[attr-defined]
    assert match.to_dict() == stored | {"nodes": 5, "is_match": True}


def test_a_policy_for_other_rules_may_play_with_a_warning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Entrant.parse("shipped").check_boards([GameSpec(2)])
    assert not capsys.readouterr().err
    limited = GameSpec(2, settings=Settings(view_radius=5))
    Entrant.parse("shipped").check_boards([GameSpec(2), limited])
    assert "shipped may play badly: the policy plays games with view_radius None, not 5" in (
        capsys.readouterr().err
    )


def test_games_are_reproducible_whatever_the_jobs(tmp_path: Path) -> None:
    def outcomes(jobs: int) -> dict[ScheduledGame, tuple[int, int | None]]:
        games = SETUP.missing_games(2)
        results = play_scheduled_games(SETUP, games, jobs, tmp_path if jobs == 1 else None)
        return {result.scheduled: (result.turns, result.winner) for result in results}

    alone, together = outcomes(1), outcomes(2)
    assert alone == together
    assert len(alone) == 6
    files = sorted(tmp_path.iterdir())
    assert len(files) == 6
    replay = Replay.load(files[0])
    assert [snake.name for snake in replay.first.snakes] == ["hungry", "cautious"]
    assert replay.last.turn == alone[min(alone, key=lambda game: game.number)][0]


def _die_while_writing(board: Board) -> None:
    assert tournament._event_channel is not None
    tournament._send_to_parent("lost", board)
    os.write(tournament._event_channel.fileno(), b"\0\0\1\0half of it")
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_game_lost_with_its_process_ends_at_once() -> None:
    broadcast = LiveGames()
    with tournament.open_pool(1, broadcast.publish_event) as pool:
        board = Board.new(7, 7, ["one", "two"])
        with pytest.raises(BrokenProcessPool):
            pool.submit(_die_while_writing, board).result()
        until(lambda: broadcast.find("lost") is not None and not broadcast.live_games(), 10)
