"""Tournaments: schedules of games between the same snakes.

The functions `play_all` and `play_scheduled_games` play the games of a schedule.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import multiprocessing
import re
import signal
import sys
import threading
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.extras import load_module
from battlesnake_gym.replays.replay import Replay, Turn
from battlesnake_gym.rules import Game, Settings
from battlesnake_gym.snakes import Factory
from battlesnake_heuristics.rating import process_pool
from battlesnake_heuristics.rating.match import (
    MatchSettings,
    play_game,
    side_of_seats,
    start_seed,
    with_node_limit,
)
from battlesnake_heuristics.rating.process_pool import (
    WORKER_TERMINATE_TIMEOUT_S,
    InterruptedBySignal,
    ProcessPool,
    masked,
    run_tasks,
)
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.guarded_strategy import GuardedStrategy, describe, make_strategy
from battlesnake_server.arena.players import HttpPlayer, LocalPlayer, Player, open_client
from battlesnake_server.arena.referee import (
    GameRecord,
    OnEvent,
    SeatRecord,
    move_letters,
    play,
    seat_records,
    winner_of,
)
from battlesnake_server.bundle import bundle_customization
from battlesnake_server.strategy_loader import split_policy_and_rules, strategy_factory


@dataclass(frozen=True, slots=True)
class TournamentSettings:
    """The settings of a tournament; equal settings have equal schedules.

    Attributes:
        snakes: The entrants, in the format of `parse_entrants`.
        num_snakes: Snakes per game.
        width: Width of the board.
        height: Height of the board.
        ruleset: Name of the ruleset.
        map: Name of the map.
        settings: Settings of the rules.
        seed: Seed of start positions and food.
        timeout: Response timeout in milliseconds.
        max_turns: Turn limit.
        address_policy: Addresses that the operator allows, in addition to the addresses in
            ``snakes``; does not affect the schedule.
        nodes: Nodes per move instead of a timeout; all snakes must run in this process.
        move_time_ms: CPU time per move in milliseconds instead of a timeout; all snakes must run in
            this process.
        is_match: Whether two sides alternate seats in a match.
    """

    snakes: tuple[str, ...]
    num_snakes: int
    width: int = 11
    height: int = 11
    ruleset: str = "standard"
    map: str = "standard"
    settings: Settings = Settings()  # noqa: RUF009  (frozen)
    seed: int = 1
    timeout: int = 500
    max_turns: int | None = None
    address_policy: AddressPolicy = AddressPolicy()  # noqa: RUF009  (frozen)
    nodes: int | None = None
    move_time_ms: float | None = None
    is_match: bool = False

    @property
    def has_search_limit(self) -> bool:
        """Whether ``nodes`` or ``move_time_ms`` limits the moves instead of the timeout."""
        return self.nodes is not None or self.move_time_ms is not None

    def to_dict(self) -> dict[str, Any]:
        """Convert to JSON, without the address policy and without unset optional fields."""
        values = asdict(self) | {"snakes": list(self.snakes)}
        for name in ("nodes", "move_time_ms", "is_match"):
            if not values[name]:
                del values[name]
        del values["address_policy"]
        return values


@dataclass(frozen=True, slots=True)
class ScheduledGame:
    """One game of the schedule.

    ``number`` is the number of the game, ``seed`` the seed of the game, and ``seats`` the index of
    the snake in each seat.
    """

    number: int
    seed: int
    seats: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GameResult:
    """The result of a scheduled game; see `referee.GameRecord`.

    ``moves`` are the first letters of each seat's moves. Together, ``moves`` and ``scheduled``
    determine the game (`result_verification.verify_result`). ``replay`` is the path of the replay.
    """

    scheduled: ScheduledGame
    uuid: str
    turns: int
    finished: bool
    winner: int | None
    seats: list[SeatRecord]
    moves: list[str]
    replay: str | None

    @classmethod
    def from_record(
        cls, scheduled: ScheduledGame, game_id: str, record: GameRecord, replay: Path | None
    ) -> GameResult:
        """Build the result from a game's record."""
        return cls(
            scheduled=scheduled,
            uuid=game_id,
            turns=len(record.turns),
            finished=record.finished,
            winner=record.winner,
            seats=record.seats,
            moves=[move_letters(snake.id, record.turns) for snake in record.first.snakes],
            replay=None if replay is None else str(replay),
        )


@dataclass(frozen=True, slots=True)
class Entrant:
    """A snake of a tournament: its label in tables and its source (URL, name or path).

    ``address_policy`` limits the requests to the snake if the source is a URL.
    """

    label: str
    source: str
    address_policy: AddressPolicy = AddressPolicy()  # noqa: RUF009  (frozen)

    @property
    def remote(self) -> bool:
        """Whether the snake is played over HTTP."""
        return self.source.startswith(("http://", "https://"))

    @property
    def is_policy(self) -> bool:
        """Whether the source is a policy, possibly with rules.

        An example of a policy with rules is ``policy.onnx+my_rules.py``.
        """
        return self.policy.endswith(".onnx")

    @property
    def is_file(self) -> bool:
        """Whether the source is a user's file: a policy, Python code or a bundle."""
        return self.is_policy or self.source.endswith((".py", ".zip", "snake.json"))

    @property
    def policy(self) -> str:
        """The source without rules: the path of a policy."""
        return split_policy_and_rules(self.source)[0]


def parse_entrants(
    snakes: Sequence[str],
    address_policy: AddressPolicy = AddressPolicy(),  # noqa: B008
) -> list[Entrant]:
    """Parse the snakes given to the arena: ``SOURCE`` or ``LABEL=SOURCE``.

    Duplicate labels are numbered.

    Args:
        snakes: The operator's arguments.
        address_policy: Allowed addresses, in addition to the address in an entrant's own URL.

    >>> [entrant.label for entrant in parse_entrants(["random", "mine=http://host/?a=b", "random"])]
    ['random', 'mine', 'random (2)']
    """
    found: list[Entrant] = []
    counts: Counter[str] = Counter()
    for snake in snakes:
        # A label has neither slash nor colon, so the "=" in the query of a URL does not end a
        # label.
        label, source = re.fullmatch(r"(?:([^=/:]+)=)?(.*)", snake, re.DOTALL).groups()  # type: ignore[union-attr]
        label = label or source
        counts[label] += 1
        number = f" ({counts[label]})" if counts[label] > 1 else ""
        found.append(Entrant(label + number, source, address_policy.allowing_typed_address(source)))
    return found


def schedule(snakes: int, num_snakes: int, games: int, seed: int) -> Iterator[ScheduledGame]:
    """Yield all games in order: ``games`` for every group of ``num_snakes`` snakes.

    A seed is played from every seat before the next seed, so that no seat favors a snake.
    Choose ``games`` as a multiple of ``num_snakes``. The groups alternate, so a longer schedule
    starts with the shorter schedule.

    >>> [game.seats for game in schedule(3, 2, 2, seed=1)]
    [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)]
    """
    number = 0
    for index in range(games):
        rotation = index % num_snakes
        for group in itertools.combinations(range(snakes), num_snakes):
            seats = group[rotation:] + group[:rotation]
            yield ScheduledGame(number, start_seed(seed, index // num_snakes), seats)
            number += 1


def match_schedule(num_snakes: int, seed: int, first: int = 0) -> Iterator[ScheduledGame]:
    """Yield the games of a match between two sides, from game ``first``.

    The schedule is endless. Games 2n and 2n + 1 are a game pair: the same start with the seats
    exchanged.

    >>> [game.seats for game in itertools.islice(match_schedule(4, seed=1), 2)]
    [(0, 1, 0, 1), (1, 0, 1, 0)]
    """
    for number in itertools.count(first):
        yield ScheduledGame(
            number, start_seed(seed, number // 2), side_of_seats(num_snakes, number)
        )


OpenPlayers = Callable[[Sequence[Entrant], float, int], AbstractAsyncContextManager[list[Player]]]
"""Function that opens the players of a game in seat order.

The arguments are the entrants, a timeout in seconds, and a seed.
"""

OnGameEvent = Callable[[str, Board | Turn | None], None]
"""Callback for all games in progress.

The arguments are a game's id and the first position, a turn, or None at the end of the game.
"""


def play_all(
    setup: TournamentSettings,
    games: int,
    jobs: int,
    done: Set[int] = frozenset(),
    replays: Path | None = None,
    announce: OnGameEvent | None = None,
    pool: ProcessPool | None = None,
) -> Generator[GameResult, None, None]:
    """Play the scheduled games that are not in ``done``.

    See `play_scheduled_games` for the other arguments.
    """
    scheduled_games = [
        scheduled
        for scheduled in schedule(len(setup.snakes), setup.num_snakes, games, setup.seed)
        if scheduled.number not in done
    ]
    jobs = min(jobs, max(1, len(scheduled_games)))
    yield from play_scheduled_games(setup, scheduled_games, jobs, replays, announce, pool)


def play_scheduled_games(
    setup: TournamentSettings,
    scheduled_games: Iterable[ScheduledGame],
    jobs: int,
    replays: Path | None = None,
    announce: OnGameEvent | None = None,
    pool: ProcessPool | None = None,
) -> Generator[GameResult, None, None]:
    """Play games, ``jobs`` in parallel, and yield the results as the games end.

    Each job is a process, so that snakes of one game never wait for snakes of another game. A game
    is taken from the schedule when a job is free, so the schedule may be endless. Closing this
    generator waits only for the games in progress.

    Args:
        setup: The tournament's settings.
        scheduled_games: The games to play.
        jobs: Number of games in parallel.
        replays: Directory for replays.
        announce: Called in this process, in a separate thread; even a single job then runs in
            another process.
        pool: A pool from `ray_pool`. Games of the pool neither save replays nor call ``announce``,
            and the results should be verified (`result_verification`).
    """
    if jobs == 1 and announce is None and pool is None:
        yield from (play_scheduled_game(setup, scheduled, replays) for scheduled in scheduled_games)
        return
    work = functools.partial(play_in_pool, setup, replays=replays)
    with (
        open_pool(jobs, announce) if pool is None else contextlib.nullcontext(pool) as processes,
        contextlib.closing(run_tasks(processes, work, scheduled_games)) as played,
    ):
        yield from (replace(result, scheduled=scheduled) for scheduled, result in played)


def open_pool(jobs: int, announce: OnGameEvent | None = None) -> ProcessPool:
    """Open processes for `play_in_pool`.

    Threads in this process call ``announce`` for the games of the pool.
    """
    return (
        ProcessPool(jobs) if announce is None else ProcessPool(jobs, lambda: _open_relay(announce))
    )


def ray_pool(address: str, setup: TournamentSettings) -> ProcessPool:
    """Open the processes of a Ray cluster and copy the snakes' files to the cluster.

    Raises:
        OSError: If there is no cluster at the address.
        MissingExtraError: If Ray is not installed.
    """
    module = load_module("sagemaker_rl.cluster.ray_pool", "rllib")
    pool: ProcessPool = module.RayPool(address, entrant_files(parse_entrants(setup.snakes)))
    return pool


def entrant_files(snakes: Iterable[Entrant]) -> set[Path]:
    """Return the files of the snakes below the current directory."""
    parts = [
        Path(part) for snake in snakes for part in split_policy_and_rules(snake.source) if part
    ]
    parts += [part.with_suffix(".json") for part in parts if part.suffix == ".onnx"]
    directory = Path.cwd()
    return {
        part
        for part in parts
        if part.is_file() and directory in (directory / part).resolve().parents
    }


@contextlib.contextmanager
def _open_relay(announce: OnGameEvent) -> Iterator[Callable[[], None]]:
    """Yield an initializer for a pool process.

    The initializer connects the game events of the pool process to this process.
    """
    reader, writer = multiprocessing.get_context("spawn").Pipe(duplex=False)
    relay = threading.Thread(target=_relay, args=(reader, announce), daemon=True)
    relay.start()
    try:
        yield functools.partial(_set_channel, writer)
    finally:
        # The writer is closed last: the process has ended, even if the process was killed during a
        # message.
        writer.close()
        relay.join(WORKER_TERMINATE_TIMEOUT_S)


def _relay(reader: Connection, announce: OnGameEvent) -> None:
    """Relay game events until the process ends.

    If a game is unfinished, the end of the game is relayed last.
    """
    running: set[str] = set()
    with contextlib.suppress(EOFError, OSError):
        while True:
            game_id, event = reader.recv()
            (running.discard if event is None else running.add)(game_id)
            announce(game_id, event)
    for game_id in running:
        announce(game_id, None)


_channel: Connection | None = None
"""The pipe for game events, in a process of the pool."""


def _set_channel(channel: Connection) -> None:
    global _channel
    _channel = channel


def play_in_pool(
    setup: TournamentSettings, scheduled: ScheduledGame, replays: Path | None = None
) -> GameResult:
    """Play a scheduled game in a pool that may terminate the process.

    The pool may terminate the process between moves. SIGTERM is blocked before and after, so that
    the event loop closes and the replay is complete.
    """
    announce = None if _channel is None else _announce_to_parent
    with masked(signal.SIGTERM):
        process_pool.busy = True
        try:
            return play_scheduled_game(setup, scheduled, replays, announce)
        finally:
            process_pool.busy = False


def _announce_to_parent(game_id: str, event: Board | Turn | None) -> None:
    """Send an event to the parent process; SIGTERM must not interrupt a message."""
    assert _channel is not None
    with masked(signal.SIGTERM):
        _channel.send((game_id, event))


def play_scheduled_game(
    setup: TournamentSettings,
    scheduled: ScheduledGame,
    replays: Path | None = None,
    announce: OnGameEvent | None = None,
    open_seats: OpenPlayers | None = None,
) -> GameResult:
    """Play one game of the schedule and save the replay in the directory ``replays``.

    Args:
        setup: The tournament's settings.
        scheduled: The game.
        replays: Directory for the replay; None disables replays.
        announce: Called during the game.
        open_seats: Opens the players of a game without a search limit (default: `open_players`).
    """
    # The id is not derived from the seed: a server stores its games by id, and two games may use
    # the same seed.
    game_id = str(uuid.uuid4())
    on_event = None if announce is None else functools.partial(announce, game_id)
    if setup.has_search_limit:
        record = _play_without_referee(setup, scheduled, game_id, replays is not None, on_event)
    else:
        record = asyncio.run(_play(setup, scheduled, game_id, on_event, open_seats or open_players))
    path = None if replays is None else replay_path(replays, scheduled.number, game_id)
    if path is not None:
        Replay(record.first, record.turns).save(path)
    if announce is not None:
        announce(game_id, None)
    return GameResult.from_record(scheduled, game_id, record, path)


def replay_path(directory: Path, number: int, game_id: str) -> Path:
    """Return the path of a game's replay."""
    return directory / f"game-{number:05d}-{game_id[:8]}.jsonl.gz"


async def _play(
    setup: TournamentSettings,
    scheduled: ScheduledGame,
    game_id: str,
    on_event: OnEvent | None,
    open_seats: OpenPlayers,
) -> GameRecord:
    game = Game(
        ruleset=setup.ruleset,
        map=setup.map,
        settings=setup.settings,
        seed=scheduled.seed,
        id=game_id,
        timeout=setup.timeout,
    )
    everybody = parse_entrants(setup.snakes, setup.address_policy)
    seated = [everybody[snake] for snake in scheduled.seats]
    labels = [entrant.label for entrant in seated]
    with masked(signal.SIGTERM, block=False):
        async with open_seats(seated, setup.timeout / 1000, scheduled.seed) as players:
            return await play(
                game, setup.width, setup.height, labels, players, setup.max_turns, on_event
            )


def _play_without_referee(
    setup: TournamentSettings,
    scheduled: ScheduledGame,
    game_id: str,
    reasons: bool,
    on_event: OnEvent | None,
) -> GameRecord:
    """Play without a referee, because no snake can be late."""
    match_settings = MatchSettings(
        width=setup.width,
        height=setup.height,
        ruleset=setup.ruleset,
        map=setup.map,
        settings=setup.settings,
        max_turns=setup.max_turns or sys.maxsize,
        nodes=setup.nodes,
        move_time_ms=setup.move_time_ms,
    )
    everybody = parse_entrants(setup.snakes, setup.address_policy)
    seated = [everybody[snake] for snake in scheduled.seats]
    guards: list[GuardedStrategy] = []  # This list is in seat order.

    def guarded(entrant: Entrant, seed: int) -> GuardedStrategy:
        strategy = with_node_limit(make_strategy(local_factory(entrant), seed), match_settings)
        guards.append(GuardedStrategy(strategy))
        return guards[-1]

    with masked(signal.SIGTERM, block=False):
        played = play_game(
            match_settings,
            [functools.partial(guarded, entrant) for entrant in seated],
            scheduled.seed,
            names=[entrant.label for entrant in seated],
            game_id=game_id,
            reasons=reasons or on_event is not None,
            on_update=on_event,
        )
    last, finished = played.last, played.last.is_over()
    seats = seat_records(last, [move_letters(snake.id, played.turns) for snake in last.snakes])
    for seat, milliseconds, guard in zip(seats, played.cpu_ms, guards, strict=True):
        seat.latencies, seat.error = milliseconds, guard.error
        seat.problems = {"exception": guard.failures} if guard.failures else {}
    return GameRecord(played.first, played.turns, seats, winner_of(last, finished), finished)


@contextlib.asynccontextmanager
async def open_players(
    seated: Sequence[Entrant], timeout: float, seed: int
) -> AsyncIterator[list[Player]]:
    """Open the players of the entrants ``seated``, in seat order.

    ``timeout`` is in seconds.
    """
    async with contextlib.AsyncExitStack() as stack:
        players: list[Player] = []
        for seat, entrant in enumerate(seated):
            if entrant.remote:
                address_policy = entrant.address_policy
                client = await stack.enter_async_context(open_client(address_policy))
                player = HttpPlayer(
                    entrant.source, timeout, client, redirects=address_policy.redirects
                )
                players.append(player)
            else:
                strategy = make_strategy(local_factory(entrant), seed + seat)
                customization = bundle_customization(entrant.source)
                customization.pop("author", None)
                players.append(LocalPlayer(strategy, timeout, customization))
        yield players


@functools.lru_cache(maxsize=64)
def local_factory(entrant: Entrant) -> Factory:
    """Return the factory of a strategy in this process; cached per process.

    Raises:
        ValueError: If there is no such snake, or the snake's code fails; the message names the
            line.
        OSError: If a file cannot be read.
    """
    try:
        if entrant.is_policy:
            return strategy_factory(policy=entrant.source)
        return strategy_factory(snake=entrant.source)
    except (ValueError, OSError, InterruptedBySignal):
        raise
    except BaseException as error:  # A user's code may raise anything.
        raise ValueError(f"{entrant.label} cannot play: {describe(error)}") from error
