"""Tournaments that ``arena`` and ``ladder`` play and store in a database, game by game."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from tqdm import tqdm

from battlesnake_gym.common.command_line import plural
from battlesnake_gym.rules.placement import MAX_SNAKES
from battlesnake_gym.snakes import FixedNodesSearch, NodeLimitedStrategy
from battlesnake_heuristics.rating.process_pool import TaskPool
from battlesnake_heuristics.rating.sprt import Sprt
from battlesnake_server.arena import result_verification
from battlesnake_server.arena.database import SNAKE_VERSIONS_KEY, Database, StoredGame, Tournament
from battlesnake_server.arena.players import check_responds
from battlesnake_server.arena.snake_versions import snake_version
from battlesnake_server.arena.sprt_match import MatchScore
from battlesnake_server.arena.tournament import (
    GameResult,
    OnGameEvent,
    ScheduledGame,
    TournamentSettings,
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


class StoredTournament:
    """Tournament whose games are stored in a database, game by game.

    Args:
        database: The results database.
        tournament: Id of the tournament.
        settings: Settings of the tournament.

    Attributes:
        errors: First exception of each snake in this process, by label.
    """

    def __init__(self, database: Database, tournament: int, settings: TournamentSettings) -> None:
        self._database = database
        self._id = tournament
        self._settings = settings
        self.errors: dict[str, str] = {}

    @classmethod
    def find(
        cls, database: Database, settings: TournamentSettings, **more: object
    ) -> StoredTournament | None:
        """Return the latest tournament with these settings, or None.

        The snake versions must also be equal. If only the snake versions differ, a message on
        standard error names the snakes that changed.

        Args:
            database: The results database.
            settings: Settings of the tournament.
            **more: Additional stored settings to compare.
        """
        stored = _settings_with_versions(settings) | more
        versions = stored[SNAKE_VERSIONS_KEY]

        def find_and_update(session: Session) -> tuple[int | None, list[Any]]:
            tournament = Tournament.find(session, stored)
            if tournament is None:
                other = Tournament.find(session, stored, any_version=True)
                return None, versions if other is None else other.settings[SNAKE_VERSIONS_KEY]
            tournament.settings = stored  # Replace settings that an earlier release stored.
            return tournament.id, versions

        found, other_versions = database.transact(find_and_update)
        changed = [
            label
            for label, version, other in zip(settings.labels, versions, other_versions, strict=True)
            if version != other
        ]
        if changed:
            sys.stderr.write(
                f"{', '.join(changed)} changed since the latest tournament with these settings, so "
                "a new tournament starts\n"
            )
        return None if found is None else cls(database, found, settings)

    @classmethod
    def start_or_resume(
        cls, database: Database, settings: TournamentSettings, resume: bool, **more: object
    ) -> StoredTournament:
        """Start a tournament, or resume the latest tournament with equal settings.

        Args:
            database: The results database.
            settings: Settings of the tournament.
            resume: Whether to resume a tournament.
            **more: Additional settings to store and to compare.
        """
        found = cls.find(database, settings, **more) if resume else None
        if found is not None:
            return found
        stored = _settings_with_versions(settings) | more
        (row,) = database.insert(lambda: [Tournament(settings=stored)])
        return cls(database, row.id, settings)

    def load_games(self) -> list[StoredGame]:
        """Load all games with their seats, in schedule order."""
        return self._database.load_games(self._id)

    def store(self, results: Sequence[GameResult], *, verify: bool = False) -> list[StoredGame]:
        """Store games in one transaction.

        If another arena has already stored one of the games, no stored row changes.

        Args:
            results: The games.
            verify: Whether to verify the results, because another machine played the games.
        """
        for result in results if verify else ():
            result_verification.verify_result(self._settings, result)
        labels = self._settings.labels
        for result in results:
            for snake, seat in zip(result.scheduled.seats, result.seats, strict=True):
                if seat.error:
                    self.errors.setdefault(labels[snake], seat.error)

        def build() -> list[StoredGame]:
            return [StoredGame.from_result(result, self._id, labels) for result in results]

        try:
            return self._database.insert(build)
        except IntegrityError:
            numbers = " or ".join(str(result.scheduled.number) for result in results)
            sys.stderr.write(f"game {numbers} is already stored: another arena played it\n")
            return build()

    def delete_games_without_replay(self, replays: Path | None) -> None:
        """Delete games whose replay file is empty or missing.

        The arena then plays the deleted games again. A power failure can leave an empty or missing
        replay file if the file system had not written the replay. The method keeps games that were
        played without a replay. If ``replays`` is None, the method does nothing.
        """
        if replays is None:
            return
        lost = [game for game in self.load_games() if _has_lost_replay(game, replays)]

        def delete_lost_games(session: Session) -> None:
            for game in lost:
                session.delete(game)

        if lost:
            self._database.transact(delete_lost_games)
            sys.stderr.write(
                f"{plural(len(lost), 'game')} to repeat: replays are empty or missing in "
                f"{replays}\n"
            )

    def play_missing_games(
        self,
        games: int | None,
        jobs: int,
        replays: Path | None = None,
        announce: OnGameEvent | None = None,
        sprt: Sprt | None = None,
        pool: TaskPool | None = None,
    ) -> None:
        """Play and store the scheduled games that are missing in the database.

        Each game is stored when the game ends.

        Args:
            games: Games per group of snakes; with ``sprt``, the maximum number of games.
            jobs: Number of games to play in parallel.
            replays: Directory for replays, or None to save no replays.
            announce: Callback for the events of live games.
            sprt: Sequential test that ends a match, or None for a tournament.
            pool: Process pool on other machines, or None for local processes.
        """
        if replays is not None:
            replays.mkdir(parents=True, exist_ok=True)
        settings, stored = self._settings, self.load_games()
        total, score = games, MatchScore()
        if sprt is None:
            assert games is not None
            done = {game.number for game in stored}
            total = games * math.comb(len(settings.snakes), settings.game_spec.num_snakes)
            missing = settings.missing_games(games, done)
            jobs = min(jobs, max(1, len(missing)))
            scheduled_games: Iterable[ScheduledGame] = missing
        else:
            score = MatchScore.from_games(stored)
            if score.is_over(sprt, games):
                return
            scheduled_games = (
                scheduled
                for scheduled in itertools.islice(settings.match_games(), games)
                if scheduled.number not in score.points
            )
        playing = play_scheduled_games(settings, scheduled_games, jobs, replays, announce, pool)
        with (
            contextlib.closing(playing) as results,
            tqdm(total=total, initial=len(stored), unit="game", desc="arena", disable=None) as bar,
        ):
            count = "games" if total is None else plural(total, "game")
            bar.write(f"{count} between {', '.join(settings.labels)}, {jobs} at a time", sys.stderr)
            for result in results:
                (game,) = self.store([result], verify=pool is not None)
                bar.update()
                if sprt is not None:
                    score.add_game(game)
                    score.show_progress(sprt, bar, settings)
                    if score.is_over(sprt, games):
                        return


def _has_lost_replay(game: StoredGame, replays: Path) -> bool:
    """Delete the replay of a game if it is empty; return whether it is empty or missing."""
    if game.replay is None:
        return False
    # The directory of the replays may have been moved.
    paths = (Path(game.replay), replays / Path(game.replay).name)
    found = [path for path in paths if path.is_file()]
    if any(path.stat().st_size for path in found):
        return False
    for path in found:
        path.unlink(missing_ok=True)
    return True


def _settings_with_versions(setup: TournamentSettings) -> dict[str, Any]:
    """Return the settings to store in the database, with the snake versions."""
    versions = [snake_version(str(entrant)) for entrant in setup.entrants]
    return setup.to_dict() | {SNAKE_VERSIONS_KEY: versions}
