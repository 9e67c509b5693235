"""Tournaments: schedules of games between the same snakes.

`play_scheduled_games` plays the games of a schedule.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import multiprocessing
import signal
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence, Set
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import UnionType
from typing import Any

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.json_fields import format_value
from battlesnake_gym.common.exceptions import describe_exception
from battlesnake_gym.common.extras import load_module
from battlesnake_gym.common.signals import mask_signal
from battlesnake_gym.common.untrusted_text import replace_unsafe
from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.replays.replay import Replay, Turn
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snake_spec import SnakeSpec
from battlesnake_gym.snakes import Decision, Strategy, StrategyFactory
from battlesnake_heuristics.rating import process_pool
from battlesnake_heuristics.rating.match import (
    MatchSettings,
    assign_sides,
    derive_seed,
    play_game,
)
from battlesnake_heuristics.rating.process_pool import (
    WORKER_TERMINATE_TIMEOUT_S,
    ProcessPool,
    TaskPool,
    run_tasks,
)
from battlesnake_server.address_policy import AddressPolicy
from battlesnake_server.arena.guarded_strategy import fallback_problem, guard, make_strategy
from battlesnake_server.arena.players import (
    HttpPlayer,
    LocalPlayer,
    Player,
    request_single_move,
)
from battlesnake_server.arena.referee import GameRecord, OnEvent, SeatRecord, move_letters, play
from battlesnake_server.arena.snake_versions import snake_files
from battlesnake_server.bundle import bundle_customization
from battlesnake_server.strategy_loader import PolicyFactory


@dataclass(frozen=True, slots=True)
class TournamentSettings:
    """Settings of a tournament.

    Tournaments with equal settings have equal schedules.

    Attributes:
        snakes: The entrants (`SnakeSpec`).
        game_spec: Setup of the games.
        seed: Seed for start positions and food.
        timeout: Response timeout in milliseconds.
        address_policy: Addresses that the operator allows, in addition to the addresses in
            ``snakes``. The address policy does not affect the schedule.
        nodes: Maximum number of nodes per move, instead of a timeout. All snakes must run in this
            process.
        move_time_ms: CPU time per move in milliseconds, instead of a timeout. All snakes must run
            in this process.
        is_match: Whether two sides alternate seats in a match.
    """

    snakes: tuple[str, ...]
    game_spec: GameSpec[int]
    seed: int = 1
    timeout: int = 500
    address_policy: AddressPolicy = AddressPolicy()  # noqa: RUF009  (frozen)
    nodes: int | None = None
    move_time_ms: float | None = None
    is_match: bool = False

    @property
    def entrants(self) -> list[Entrant]:
        """The parsed ``snakes``, in their order."""
        return Entrant.parse_all(self.snakes, self.address_policy)

    @property
    def labels(self) -> list[str]:
        """The labels of the entrants, in their order."""
        return [entrant.label for entrant in self.entrants]

    @property
    def has_search_limit(self) -> bool:
        """Whether ``nodes`` or ``move_time_ms`` limits each move, instead of the timeout."""
        return self.nodes is not None or self.move_time_ms is not None

    def any_searches(self, kind: type | UnionType) -> bool:
        """Return whether the strategy of any entrant in this process is of type ``kind``."""
        local = [entrant for entrant in self.entrants if not entrant.is_remote]
        return any(isinstance(one.make_strategy(1), kind) for one in local)

    def missing_games(self, games: int, done: Set[int] = frozenset()) -> list[ScheduledGame]:
        """Return the games of the tournament that are not in ``done``.

        Each group of snakes plays a seed once per rotation of the seats, so that no seat favors a
        snake. The seats are balanced if ``games`` is a multiple of the number of snakes per game.
        The groups alternate, so a longer schedule starts with the shorter schedule.

        Args:
            games: Number of games per group of snakes.
            done: Numbers of games.

        >>> settings = TournamentSettings(("random", "hungry", "tree"), GameSpec(2))
        >>> [game.seats for game in settings.missing_games(2)]
        [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)]
        """
        seats = self.game_spec.num_snakes
        groups = list(itertools.combinations(range(len(self.snakes)), seats))
        schedule = (
            ScheduledGame(
                index * len(groups) + number,
                derive_seed(self.seed, index // seats),
                group[index % seats :] + group[: index % seats],
            )
            for index in range(games)
            for number, group in enumerate(groups)
        )
        return [scheduled for scheduled in schedule if scheduled.number not in done]

    def match_games(self, first: int = 0) -> Iterator[ScheduledGame]:
        """Yield the games of a match between two sides, from game ``first``.

        The schedule is endless. Games 2n and 2n + 1 form a game pair with equal starts and
        exchanged seats.

        >>> settings = TournamentSettings(("random", "hungry"), GameSpec(4))
        >>> [game.seats for game in itertools.islice(settings.match_games(), 2)]
        [(0, 1, 0, 1), (1, 0, 1, 0)]
        """
        for number in itertools.count(first):
            seed = derive_seed(self.seed, number // 2)
            yield ScheduledGame(number, seed, assign_sides(self.game_spec.num_snakes, number))

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as a dict for JSON.

        The dict omits the address policy and unset optional fields.
        """
        values = asdict(self) | asdict(self.game_spec)
        values["snakes"] = list(self.snakes)
        values["settings"] = self.game_spec.game.settings.to_dict()
        for name in ("nodes", "move_time_ms", "is_match"):
            if not values[name]:
                del values[name]
        del values["address_policy"], values["game_spec"]
        return values


@dataclass(frozen=True, slots=True)
class ScheduledGame:
    """Scheduled game of a tournament.

    ``number`` is the index of the game in the schedule. ``seed`` determines the start position and
    the food. ``seats`` contains the index of the snake in each seat.
    """

    number: int
    seed: int
    seats: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GameResult:
    """The result of a scheduled game; see `referee.GameRecord`.

    ``moves`` contains the moves of each seat as letters. Together, ``moves`` and ``scheduled``
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
        cls, scheduled: ScheduledGame, record: GameRecord, replay: Path | None
    ) -> GameResult:
        """Build the result from a game's record."""
        return cls(
            scheduled=scheduled,
            uuid=record.first.game.id,
            turns=len(record.turns),
            finished=record.finished,
            winner=record.winner,
            seats=record.seats,
            moves=[move_letters(snake.id, record.turns) for snake in record.first.snakes],
            replay=None if replay is None else str(replay),
        )


@dataclass(frozen=True, slots=True)
class Entrant(SnakeSpec):
    """Snake of a tournament; ``address_policy`` limits the requests to a snake behind a URL."""

    address_policy: AddressPolicy = AddressPolicy()  # noqa: RUF009  (frozen)

    @classmethod
    def parse_all(
        cls,
        snakes: Iterable[str],
        address_policy: AddressPolicy = AddressPolicy(),  # noqa: B008
    ) -> list[Entrant]:
        r"""Parse the snakes of a tournament.

        The default label is the text of the snake. A number is appended to a duplicate label.

        Args:
            snakes: The operator's arguments.
            address_policy: Allowed addresses, in addition to the address in an entrant's own URL.

        >>> snakes = ["random", "mine=http://host/?a=b", "random"]
        >>> [entrant.label for entrant in Entrant.parse_all(snakes)]
        ['random', 'mine', 'random (2)']
        >>> snakes = ["a (2)=hungry", "a=random", "a=center"]
        >>> [entrant.label for entrant in Entrant.parse_all(snakes)]
        ['a (2)', 'a', 'a (3)']
        >>> Entrant.parse_all(["caf\udce9.py"])[0].label
        'caf�.py'
        """
        found: dict[str, Entrant] = {}
        for entrant in map(cls.parse, snakes):
            label = replace_unsafe(entrant.label or str(entrant))
            numbered = (f"{label} ({number})" for number in itertools.count(2))
            unused = next(one for one in itertools.chain([label], numbered) if one not in found)
            addresses = address_policy.with_typed_address(entrant.source)
            found[unused] = replace(entrant, label=unused, address_policy=addresses)
        return [*found.values()]

    @functools.lru_cache(maxsize=64)  # noqa: B019  (the cache is small)
    def strategy_factory(self) -> StrategyFactory:
        """Return the strategy factory of the entrant in this process; see `snakes.load`.

        The method caches the factory per process.
        """
        return snakes.load(str(self))[0]

    def make_strategy(self, seed: int) -> Strategy:
        """Build the strategy of the entrant in this process for one game."""
        return make_strategy(self.strategy_factory(), seed)

    def decide(self, board: Board, time_s: float) -> Decision:
        """Return the decision of the entrant on ``board``, without earlier positions.

        Raises:
            ValueError: If the entrant returns no move or cannot play the position.
        """
        if self.is_remote:
            body = board.to_limited_api()
            decision = asyncio.run(request_single_move(body, self.source, self.address_policy))
        else:
            strategy = self.make_strategy(board.game.seed)
            try:
                decision = snakes.to_decision(strategy(board.copy().limited(), time_s))
            # A user's snake may raise any exception, including SystemExit.
            except BaseException as error:
                raise ValueError(
                    f"{self.label} cannot play this position: {describe_exception(error)}"
                ) from error
        if decision.move not in MOVES:
            reason = decision.reasons[0].rule if decision.reasons else format_value(decision.move)
            raise ValueError(f"{self.label} returned no move ({reason})")
        return decision

    def customization(self) -> dict[str, str]:
        """Return the customization of the entrant in this process, without the author."""
        customization = bundle_customization(str(self))
        customization.pop("author", None)
        return customization

    def check_boards(self, boards: Iterable[GameSpec[int]]) -> None:
        """Check that the entrant, a snake in this process, can play on these boards.

        If a policy was trained for other rules, the method prints a warning.

        Raises:
            ValueError: If the snake cannot play.
            OSError: If a file cannot be read.
        """
        factory = self.strategy_factory()
        if isinstance(factory, PolicyFactory):
            policy = factory.onnx_policy
            try:
                for board in boards:
                    policy.check_board_size(board.width, board.height)
            except ValueError as error:
                raise ValueError(f"{self}: {error}") from error
            try:
                for board in boards:
                    policy.check_rules(board.game)
            except ValueError as error:
                sys.stderr.write(f"{self} may play badly: {error}\n")


OpenPlayers = Callable[[Sequence[Entrant], float, int], AbstractAsyncContextManager[list[Player]]]
"""Function that opens the players of a game in seat order.

The arguments are the entrants, a timeout in seconds, and a seed.
"""

OnGameEvent = Callable[[str, Board | Turn | None], None]
"""Callback for all games in progress.

The arguments are the game id and an event. The event is the first position, a turn, or None at the
end of the game.
"""


def play_scheduled_games(
    settings: TournamentSettings,
    scheduled_games: Iterable[ScheduledGame],
    jobs: int,
    replays: Path | None = None,
    on_game_event: OnGameEvent | None = None,
    pool: TaskPool | None = None,
) -> Generator[GameResult, None, None]:
    """Play games, ``jobs`` in parallel, and yield the results as the games end.

    Parallel games run in separate processes, so that the snakes of one game never wait for another
    game. A free job fetches its next game from the schedule, so the schedule may be endless.
    Closing this generator waits only for the games in progress.

    Args:
        settings: The tournament's settings.
        scheduled_games: The games to play.
        jobs: Number of games in parallel.
        replays: Directory for replays.
        on_game_event: Callback, called in a separate thread of this process. With a callback, even
            a single job runs in another process.
        pool: Pool from `open_ray_pool`. Games of this pool neither save replays nor call
            ``on_game_event``. The caller should verify the results (`result_verification`).
    """
    if jobs == 1 and on_game_event is None and pool is None:
        yield from (
            play_scheduled_game(settings, scheduled, replays) for scheduled in scheduled_games
        )
        return
    work = functools.partial(play_in_pool, settings, replays=replays)
    with (
        open_pool(jobs, on_game_event)
        if pool is None
        else contextlib.nullcontext(pool) as processes,
        contextlib.closing(run_tasks(processes, work, scheduled_games)) as played,
    ):
        yield from (replace(result, scheduled=scheduled) for scheduled, result in played)


def open_pool(jobs: int, on_game_event: OnGameEvent | None = None) -> ProcessPool:
    """Open a process pool for `play_in_pool`.

    Threads in this process call ``on_game_event`` for the games of the pool.
    """
    if on_game_event is None:
        return ProcessPool(jobs)
    return ProcessPool(jobs, lambda: _open_relay(on_game_event))


def open_ray_pool(address: str, settings: TournamentSettings) -> TaskPool:
    """Open a pool of processes in a Ray cluster.

    The function copies the snakes' files to the cluster.

    Raises:
        OSError: If there is no cluster at the address.
        MissingExtraError: If Ray is not installed.
    """
    module = load_module("sagemaker_rl.cluster.ray_pool", "rllib")
    pool: TaskPool = module.RayPool(address, _entrant_files(settings.entrants))
    return pool


def _entrant_files(snakes: Iterable[Entrant]) -> set[Path]:
    """Return the snakes' files below the current directory."""
    directory = Path.cwd()
    files = {file for snake in snakes for file in snake_files(str(snake))}
    return {file for file in files if directory in (directory / file).resolve().parents}


@contextlib.contextmanager
def _open_relay(on_game_event: OnGameEvent) -> Iterator[Callable[[], None]]:
    """Yield an initializer that connects a pool process to ``on_game_event``."""
    reader, writer = multiprocessing.get_context("spawn").Pipe(duplex=False)
    relay = threading.Thread(target=_relay_events, args=(reader, on_game_event), daemon=True)
    relay.start()
    try:
        yield functools.partial(_set_event_channel, writer)
    finally:
        # The pool process has ended here, possibly while sending a message. Closing the writer ends
        # the relay thread.
        writer.close()
        relay.join(WORKER_TERMINATE_TIMEOUT_S)


def _relay_events(reader: Connection, on_game_event: OnGameEvent) -> None:
    """Relay game events until the pool process ends.

    The function then sends an end event for each unfinished game.
    """
    running: set[str] = set()
    with contextlib.suppress(EOFError, OSError):
        while True:
            game_id, event = reader.recv()
            (running.discard if event is None else running.add)(game_id)
            on_game_event(game_id, event)
    for game_id in running:
        on_game_event(game_id, None)


_event_channel: Connection | None = None
"""Pipe for game events in a process of the pool; None in other processes."""


def _set_event_channel(channel: Connection) -> None:
    """Set the pipe for game events of this process."""
    global _event_channel
    _event_channel = channel


def play_in_pool(
    settings: TournamentSettings, scheduled: ScheduledGame, replays: Path | None = None
) -> GameResult:
    """Play a scheduled game in a process that the pool may terminate.

    The pool may terminate the process between moves. SIGTERM is blocked before the first move and
    after the last move, so that the event loop closes and the replay is complete.
    """
    announce = None if _event_channel is None else _send_to_parent
    with mask_signal(signal.SIGTERM):
        process_pool.busy = True
        try:
            return play_scheduled_game(settings, scheduled, replays, announce)
        finally:
            process_pool.busy = False


def _send_to_parent(game_id: str, event: Board | Turn | None) -> None:
    """Send a game event to the parent process.

    SIGTERM is blocked while the message is sent.
    """
    assert _event_channel is not None
    with mask_signal(signal.SIGTERM):
        _event_channel.send((game_id, event))


def play_scheduled_game(
    settings: TournamentSettings,
    scheduled: ScheduledGame,
    replays: Path | None = None,
    on_game_event: OnGameEvent | None = None,
    open_seats: OpenPlayers | None = None,
) -> GameResult:
    """Play one game of the schedule and save the replay in the directory ``replays``.

    Args:
        settings: The tournament's settings.
        scheduled: The game.
        replays: Directory for the replay; None disables replays.
        on_game_event: Callback for the events of the game.
        open_seats: Function that opens the players of a game without a search limit (default:
            `open_players`).
    """
    # The id is not derived from the seed: a server stores its games by id, and two games may use
    # the same seed.
    game_id = str(uuid.uuid4())
    on_event = None if on_game_event is None else functools.partial(on_game_event, game_id)
    entrants = settings.entrants
    seated = [entrants[snake] for snake in scheduled.seats]
    if settings.has_search_limit:
        record = _play_without_referee(settings, seated, scheduled.seed, game_id, on_event)
    else:
        opening = (open_seats or open_players)(seated, settings.timeout / 1000, scheduled.seed)
        playing = _play_with_referee(settings, seated, scheduled.seed, game_id, on_event, opening)
        record = asyncio.run(playing)
    path = None if replays is None else replay_path(replays, scheduled.number, game_id)
    if path is not None:
        Replay(record.first, record.turns).save(path)
    if on_game_event is not None:
        on_game_event(game_id, None)
    return GameResult.from_record(scheduled, record, path)


def replay_path(directory: Path, number: int, game_id: str) -> Path:
    """Return the path of a game's replay file."""
    return directory / f"game-{number:05d}-{game_id[:8]}.jsonl.gz"


async def _play_with_referee(
    settings: TournamentSettings,
    seated: Sequence[Entrant],
    seed: int,
    game_id: str,
    on_event: OnEvent | None,
    opening: AbstractAsyncContextManager[list[Player]],
) -> GameRecord:
    """Play a game with response timeouts."""
    spec, labels = settings.game_spec, [entrant.label for entrant in seated]
    game = replace(spec.game, seed=seed, id=game_id, timeout=settings.timeout)
    with mask_signal(signal.SIGTERM, block=False):
        async with opening as players:
            return await play(game, spec, labels, players, on_event)


def _play_without_referee(
    settings: TournamentSettings,
    seated: Sequence[Entrant],
    seed: int,
    game_id: str,
    on_event: OnEvent | None,
) -> GameRecord:
    """Play a game with a search limit.

    No referee is necessary, because no snake can be late.
    """
    match_settings = MatchSettings(settings.game_spec, settings.nodes, settings.move_time_ms)

    def make_guarded(entrant: Entrant, seed: int) -> Strategy:
        return guard(match_settings.limit_nodes(entrant.make_strategy(seed)))

    with mask_signal(signal.SIGTERM, block=False):
        played = play_game(
            match_settings,
            [functools.partial(make_guarded, entrant) for entrant in seated],
            seed,
            names=[entrant.label for entrant in seated],
            customizations=[entrant.customization() for entrant in seated],
            game_id=game_id,
            reasons=True,
            on_update=on_event,
        )
    seats = [SeatRecord(latencies=milliseconds) for milliseconds in played.cpu_ms]
    for turn in played.turns:
        for snake, seat in zip(played.first.snakes, seats, strict=True):
            if snake.id in turn.decisions:
                seat.add_problem(*fallback_problem(turn.decisions[snake.id]))
    return GameRecord.build(played.first, played.turns, seats, played.last)


@contextlib.asynccontextmanager
async def open_players(
    seated: Sequence[Entrant], timeout: float, seed: int
) -> AsyncIterator[list[Player]]:
    """Open the players of the entrants ``seated``, in seat order.

    ``timeout`` is the response timeout in seconds.
    """
    async with contextlib.AsyncExitStack() as stack:
        players: list[Player] = []
        for seat, entrant in enumerate(seated):
            if entrant.is_remote:
                player = HttpPlayer(entrant.source, timeout, entrant.address_policy)
                players.append(await stack.enter_async_context(player))
            else:
                strategy = entrant.make_strategy(seed + seat)
                players.append(LocalPlayer(strategy, timeout, entrant.customization()))
        yield players
