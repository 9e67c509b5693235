"""Tournaments that ``arena`` and ``ladder`` play and store in a database, game by game."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session
from tqdm import tqdm

from battlesnake_gym.common.command_line import plural
from battlesnake_gym.rules.placement import MAX_SNAKES
from battlesnake_gym.snakes import FixedNodesSearch, NodeLimitedStrategy
from battlesnake_heuristics.rating.process_pool import TaskPool
from battlesnake_heuristics.rating.sprt import Sprt
from battlesnake_server.arena import result_verification
from battlesnake_server.arena.database import (
    SNAKE_VERSIONS_KEY,
    Tournament,
    find_tournament,
    insert_rows,
    load_games,
    with_retries,
)
from battlesnake_server.arena.players import check_responds
from battlesnake_server.arena.results import store_games
from battlesnake_server.arena.snake_versions import snake_version
from battlesnake_server.arena.sprt_match import MatchScore
from battlesnake_server.arena.tournament import (
    OnGameEvent,
    ScheduledGame,
    TournamentSettings,
    generate_match_schedule,
    play_scheduled_games,
)


def check_playable(setup: TournamentSettings) -> None:
    """Check that a tournament with these settings can be played.

    Raises:
        ValueError: If the tournament cannot be played; the message names the option and the remedy.
    """
    num_snakes = setup.game_spec.num_snakes
    if not setup.is_match and not 1 <= num_snakes <= len(setup.snakes):
        raise ValueError(
            f"--num-snakes must be between 1 and the number of snakes ({len(setup.snakes)}), "
            f"got {num_snakes}"
        )
    if num_snakes > MAX_SNAKES:
        raise ValueError(
            f"--num-snakes must be at most {MAX_SNAKES}, got {num_snakes}; "
            "--num-snakes 2 plays a round robin of duels"
        )
    if setup.is_match and len(setup.snakes) != 2:
        raise ValueError(f"--sprt compares two snakes, got {len(setup.snakes)}")
    if setup.is_match and (num_snakes < 2 or num_snakes % 2):
        raise ValueError(
            f"with --sprt two sides share the seats, so --num-snakes must be even, got "
            f"{num_snakes}; try 2 or 4"
        )
    if setup.nodes is not None and setup.move_time_ms is not None:
        raise ValueError("give --nodes or --move-time, not both")
    entrants = setup.entrants
    if setup.has_search_limit and (remote := [one for one in entrants if one.is_remote]):
        raise ValueError(
            f"{remote[0].label} runs outside this process; --nodes and --move-time limit only "
            "snakes in this process; give --timeout instead"
        )
    if setup.nodes is not None and not setup.any_searches(NodeLimitedStrategy | FixedNodesSearch):
        raise ValueError(
            f"none of {', '.join(setup.labels)} searches, so --nodes has no effect; omit it, or "
            "give --move-time"
        )
    setup.game_spec.start(setup.seed or 1)
    for entrant in entrants:
        if entrant.is_remote:
            asyncio.run(check_responds(entrant.source, entrant.address_policy))
        else:
            entrant.check_boards([setup.game_spec])


def play_missing_games(
    engine: Engine,
    tournament: int,
    setup: TournamentSettings,
    games: int | None,
    jobs: int,
    replays: Path | None = None,
    announce: OnGameEvent | None = None,
    sprt: Sprt | None = None,
    pool: TaskPool | None = None,
    errors: dict[str, str] | None = None,
) -> None:
    """Play and store the scheduled games that are missing in the database.

    Each game is stored when the game ends.

    Args:
        engine: SQLAlchemy engine of the results database.
        tournament: Id of the tournament.
        setup: Settings of the tournament.
        games: Games per group of snakes; with ``sprt``, the maximum number of games.
        jobs: Number of games to play in parallel.
        replays: Directory for replays, or None to save no replays.
        announce: Callback for the events of live games.
        sprt: Sequential test that ends a match, or None for a tournament.
        pool: Process pool on other machines, or None for local processes.
        errors: Dict to fill with the first exception of each snake in this process, by label.
    """
    if replays is not None:
        replays.mkdir(parents=True, exist_ok=True)
    stored = load_games(engine, tournament)
    total, score = games, MatchScore()
    if sprt is None:
        assert games is not None
        done = {game.number for game in stored}
        total = games * math.comb(len(setup.snakes), setup.game_spec.num_snakes)
        missing = setup.missing_games(games, done)
        jobs = min(jobs, max(1, len(missing)))
        scheduled_games: Iterable[ScheduledGame] = missing
    else:
        score = MatchScore.from_games(stored)
        if score.is_over(sprt, games):
            return
        schedule = generate_match_schedule(setup.game_spec.num_snakes, setup.seed)
        scheduled_games = (
            scheduled
            for scheduled in itertools.islice(schedule, games)
            if scheduled.number not in score.points
        )
    playing = play_scheduled_games(setup, scheduled_games, jobs, replays, announce, pool)
    with (
        contextlib.closing(playing) as results,
        tqdm(total=total, initial=len(stored), unit="game", desc="arena", disable=None) as bar,
    ):
        count = "games" if total is None else plural(total, "game")
        bar.write(f"{count} between {', '.join(setup.labels)}, {jobs} at a time", sys.stderr)
        for result in results:
            if pool is not None:
                result_verification.verify_result(setup, result)
            (game,) = store_games(engine, [result], tournament, setup, errors)
            bar.update()
            if sprt is not None:
                score.add_game(game)
                score.show_progress(sprt, bar, setup)
                if score.is_over(sprt, games):
                    return


def start_or_resume_tournament(
    engine: Engine, setup: TournamentSettings, resume: bool, **more: object
) -> int:
    """Return the id of a new tournament, or of the tournament to resume.

    Args:
        engine: SQLAlchemy engine of the results database.
        setup: Settings of the tournament.
        resume: Whether to resume the latest tournament with equal settings.
        **more: Additional settings to store and to compare.
    """
    found = find_resumable_tournament(engine, setup, **more) if resume else None
    if found is not None:
        return found
    stored = _settings_with_versions(setup) | more
    (row,) = insert_rows(engine, lambda: [Tournament(settings=stored)])
    return row.id


def find_resumable_tournament(
    engine: Engine, setup: TournamentSettings, **more: object
) -> int | None:
    """Return the id of the latest tournament with these settings, or None.

    The snake versions must also be equal. If only the snake versions differ, a message on standard
    error names the snakes that changed.
    """
    stored = _settings_with_versions(setup) | more
    versions = stored[SNAKE_VERSIONS_KEY]

    def find_and_update(session: Session) -> tuple[int | None, list[Any]]:
        tournament = find_tournament(session, stored)
        if tournament is None:
            other = find_tournament(session, stored, any_version=True)
            return None, versions if other is None else other.settings[SNAKE_VERSIONS_KEY]
        tournament.settings = stored  # Replace settings that an earlier release stored.
        return tournament.id, versions

    found, other_versions = with_retries(engine, find_and_update)
    changed = [
        label
        for label, version, other in zip(setup.labels, versions, other_versions, strict=True)
        if version != other
    ]
    if changed:
        sys.stderr.write(
            f"{', '.join(changed)} changed since the latest tournament with these settings, so a "
            "new tournament starts\n"
        )
    return found


def _settings_with_versions(setup: TournamentSettings) -> dict[str, Any]:
    """Return the settings to store in the database, with the snake versions."""
    versions = [snake_version(str(entrant)) for entrant in setup.entrants]
    return setup.to_dict() | {SNAKE_VERSIONS_KEY: versions}
