"""Many games between the same snakes: which snakes meet in which seats, and playing all of it."""

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
from battlesnake_heuristics.rating.match import MatchSettings, play_game, side_of_seats, start_seed
from battlesnake_heuristics.rating.process_pool import (
    WORKER_TERMINATE_TIMEOUT_S,
    ProcessPool,
    masked,
    run_tasks,
)
from battlesnake_server.address_policy import AddressPolicy
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
    """What a tournament is: equal set-ups have the same schedule.

    ``snakes`` are as `parse_entrants` reads them; ``num_snakes`` of them meet in a game.
    ``timeout`` is in milliseconds; ``max_turns`` ends endless games. With ``nodes`` or
    ``move_time_ms`` (of CPU time) a move, which need all snakes to be in this process, there is no
    other clock. ``is_match`` makes a match of it: the two snakes take the seats by turns. ``address_policy`` is
    where the operator lets requests go, besides the addresses in ``snakes``; it makes no other
    schedule.
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
    reach: AddressPolicy = AddressPolicy()  # noqa: RUF009  (frozen)
    nodes: int | None = None
    move_time_ms: float | None = None
    is_match: bool = False

    @property
    def has_search_limit(self) -> bool:
        """Whether the moves are bounded by something else than the timeout."""
        return self.nodes is not None or self.move_time_ms is not None

    def to_dict(self) -> dict[str, Any]:
        """The set-up as JSON, without its reach and what few tournaments have."""
        values = asdict(self) | {"snakes": list(self.snakes)}
        for name in ("positions", "milliseconds", "sides"):
            if not values[name]:
                del values[name]
        del values["reach"]
        return values


@dataclass(frozen=True, slots=True)
class ScheduledGame:
    """One game of the schedule: its number, its seed, and which snake (index) sits where."""

    number: int
    seed: int
    seats: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GameResult:
    """A fixture that was played; see `referee.GameRecord`.

    ``moves`` are the first letters of each seat's moves, from which and the fixture the game
    follows (`played_again.check`); ``replay`` is the path of its file.
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
    def of(
        cls, fixture: ScheduledGame, game_id: str, record: GameRecord, replay: Path | None
    ) -> GameResult:
        """What a record comes to."""
        return cls(
            scheduled=fixture,
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
    """A snake of a tournament: what tables call it, and its URL, name or path of a policy.

    ``address_policy`` is where its requests may go, if it is a URL.
    """

    label: str
    source: str
    reach: AddressPolicy = AddressPolicy()  # noqa: RUF009  (frozen)

    @property
    def remote(self) -> bool:
        """Whether it is played over HTTP."""
        return self.source.startswith(("http://", "https://"))

    @property
    def is_policy(self) -> bool:
        """Whether it is a policy's path, maybe with rules over it (``policy.onnx+my_rules.py``)."""
        return self.policy.endswith(".onnx")

    @property
    def policy(self) -> str:
        """Its path without the rules, if it is a policy."""
        return split_policy_and_rules(self.source)[0]


def parse_entrants(
    snakes: Sequence[str], address_policy: AddressPolicy = AddressPolicy()
) -> list[Entrant]:  # noqa: B008
    """Read snakes as the operator gives them to the arena: ``SOURCE`` or ``LABEL=SOURCE``.

    Equal labels are numbered. An address in a URL counts as allowed, besides ``address_policy``.

    >>> [entrant.label for entrant in entrants(["random", "mine=http://host/?a=b", "random"])]
    ['random', 'mine', 'random (2)']
    """
    found: list[Entrant] = []
    counts: Counter[str] = Counter()
    for snake in snakes:
        # A label has neither slash nor colon, so the "=" of a URL's query is not taken for one.
        label, source = re.fullmatch(r"(?:([^=/:]+)=)?(.*)", snake, re.DOTALL).groups()  # type: ignore[union-attr]
        label = label or source
        counts[label] += 1
        number = f" ({counts[label]})" if counts[label] > 1 else ""
        found.append(Entrant(label + number, source, address_policy.allowing_typed_address(source)))
    return found


def schedule(snakes: int, per_game: int, games: int, seed: int) -> Iterator[ScheduledGame]:
    """All games, in order: ``games`` for every group of ``num_snakes`` snakes.

    A seed is played from every seat before the next one comes, so that no snake owes a result to
    its corner: choose ``games`` as a multiple of ``num_snakes``. The groups take turns, so a longer
    schedule begins with the shorter one.

    >>> [fixture.seats for fixture in schedule(3, 2, 2, seed=1)]
    [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)]
    """
    number = 0
    for round_ in range(games):
        turn = round_ % per_game
        for group in itertools.combinations(range(snakes), per_game):
            seats = group[turn:] + group[:turn]
            yield ScheduledGame(number, start_seed(seed, round_ // per_game), seats)
            number += 1


def match_schedule(per_game: int, seed: int, first: int = 0) -> Iterator[ScheduledGame]:
    """The games of a match between two sides from the number ``first`` on, without an end.

    Games 2n and 2n + 1 begin alike, with the seats exchanged.

    >>> [fixture.seats for fixture in itertools.islice(match_schedule(4, seed=1), 2)]
    [(0, 1, 0, 1), (1, 0, 1, 0)]
    """
    for number in itertools.count(first):
        yield ScheduledGame(number, start_seed(seed, number // 2), side_of_seats(per_game, number))


OpenPlayers = Callable[[Sequence[Entrant], float, int], AbstractAsyncContextManager[list[Player]]]
"""Opens the players of a game, in seat order: of these entrants, a timeout in seconds, a seed."""

OnGameEvent = Callable[[str, Board | Turn | None], None]
"""Called for all games while they are played: with a game's id, and its first position, a turn, or
None when it is over."""


def play_all(
    setup: TournamentSettings,
    games: int,
    jobs: int,
    done: Set[int] = frozenset(),
    replays: Path | None = None,
    announce: OnGameEvent | None = None,
    pool: ProcessPool | None = None,
) -> Generator[GameResult, None, None]:
    """Play what the schedule still holds, as `play_scheduled_games`; ``done`` are not played again."""
    fixtures = [
        fixture
        for fixture in schedule(len(setup.snakes), setup.num_snakes, games, setup.seed)
        if fixture.number not in done
    ]
    jobs = min(jobs, max(1, len(fixtures)))
    yield from play_scheduled_games(setup, fixtures, jobs, replays, announce, pool)


def play_scheduled_games(
    setup: TournamentSettings,
    fixtures: Iterable[ScheduledGame],
    jobs: int,
    replays: Path | None = None,
    announce: OnGameEvent | None = None,
    pool: ProcessPool | None = None,
) -> Generator[GameResult, None, None]:
    """Play ``fixtures``, ``jobs`` games at a time; results come as they end.

    Every job is a process: snakes in one game never wait for those in another. ``announce`` is
    called in this process, from a thread of its own; even one job is then played elsewhere,
    since ``announce`` has work to do here. A game is begun when it is its turn, so the schedule may
    be endless: closing this generator waits only for the games that are being played. With a
    ``pool``, `ray_pool`'s, they are played there, and neither kept nor announced: `played_again`.
    """
    if jobs == 1 and announce is None and pool is None:
        yield from (play_scheduled_game(setup, fixture, replays) for fixture in fixtures)
        return
    work = functools.partial(play_in_pool, setup, replays=replays)
    with (
        open_pool(jobs, announce) if pool is None else contextlib.nullcontext(pool) as processes,
        contextlib.closing(run_tasks(processes, work, fixtures)) as played,
    ):
        yield from (replace(result, scheduled=fixture) for fixture, result in played)


def open_pool(jobs: int, announce: OnGameEvent | None = None) -> ProcessPool:
    """Processes for `play_in_pool`, whose games are announced from threads here."""
    return ProcessPool(jobs) if announce is None else ProcessPool(jobs, lambda: _relayed(announce))


def ray_pool(address: str, setup: TournamentSettings) -> ProcessPool:
    """The processes of a Ray cluster, where the files of the snakes are too.

    Raises ``OSError`` where there is no cluster, `MissingExtraError` where Ray is not installed.
    """
    module = load_module("sagemaker_rl.cluster.ray_pool", "rllib")
    pool: ProcessPool = module.RayPool(address, entrant_files(parse_entrants(setup.snakes)))
    return pool


def entrant_files(snakes: Iterable[Entrant]) -> set[Path]:
    """The files below this folder that snakes are made of."""
    parts = [
        Path(part) for snake in snakes for part in split_policy_and_rules(snake.source) if part
    ]
    parts += [part.with_suffix(".json") for part in parts if part.suffix == ".onnx"]
    here = Path.cwd()
    return {part for part in parts if part.is_file() and here in (here / part).resolve().parents}


@contextlib.contextmanager
def _relayed(announce: OnGameEvent) -> Iterator[Callable[[], None]]:
    """What lets a process announce here."""
    news, writer = multiprocessing.get_context("spawn").Pipe(duplex=False)
    relay = threading.Thread(target=_relay, args=(news, announce), daemon=True)
    relay.start()
    try:
        yield functools.partial(_set_channel, writer)
    finally:
        writer.close()  # the last: the process has ended, by force even in the middle of a word
        relay.join(WORKER_TERMINATE_TIMEOUT_S)


def _relay(news: Connection, announce: OnGameEvent) -> None:
    """Announce until the process has ended, and then the end of a game that was lost with it."""
    on: set[str] = set()
    with contextlib.suppress(EOFError, OSError):
        while True:
            game_id, one = news.recv()
            (on.discard if one is None else on.add)(game_id)
            announce(game_id, one)
    for game_id in on:
        announce(game_id, None)


_channel: Connection | None = None
"""In the process of a pool: where it announces."""


def _set_channel(channel: Connection) -> None:
    global _channel
    _channel = channel


def play_in_pool(
    setup: TournamentSettings, fixture: ScheduledGame, replays: Path | None = None
) -> GameResult:
    """`play_scheduled_game` in a process of a `Pool`, which may have to end it while moves are made.

    What comes before and after is not disturbed: an event loop that is being closed, a replay.
    """
    announce = None if _channel is None else _announce_here
    with masked(signal.SIGTERM):
        process_pool.busy = True
        try:
            return play_scheduled_game(setup, fixture, replays, announce)
        finally:
            process_pool.busy = False


def _announce_here(game_id: str, news: Board | Turn | None) -> None:
    """Announce in the process that started this one; what is half-written would never be read."""
    assert _channel is not None
    with masked(signal.SIGTERM):
        _channel.send((game_id, news))


def play_scheduled_game(
    setup: TournamentSettings,
    fixture: ScheduledGame,
    replays: Path | None = None,
    announce: OnGameEvent | None = None,
    seat: OpenPlayers | None = None,
) -> GameResult:
    """Play one game of the schedule, and write its replay into the folder ``replays``.

    ``seat`` opens the players of a game that is not bounded, as `open_players` does.
    """
    # The id is not from the seed: a server keeps its games by id, and may be playing this seed.
    game_id = str(uuid.uuid4())
    tell = None if announce is None else functools.partial(announce, game_id)
    if setup.has_search_limit:
        record = _play_without_referee(setup, fixture, game_id, replays is not None, tell)
    else:
        record = asyncio.run(_play(setup, fixture, game_id, tell, seat or open_players))
    path = None if replays is None else replay_path(replays, fixture.number, game_id)
    if path is not None:
        Replay(record.first, record.turns).save(path)
    if announce is not None:
        announce(game_id, None)
    return GameResult.of(fixture, game_id, record, path)


def replay_path(folder: Path, number: int, game_id: str) -> Path:
    """Where the replay of a game is kept."""
    return folder / f"game-{number:05d}-{game_id[:8]}.jsonl.gz"


async def _play(
    setup: TournamentSettings,
    fixture: ScheduledGame,
    game_id: str,
    tell: OnEvent | None,
    seat: OpenPlayers,
) -> GameRecord:
    game = Game(
        ruleset=setup.ruleset,
        map=setup.map,
        settings=setup.settings,
        seed=fixture.seed,
        id=game_id,
        timeout=setup.timeout,
    )
    everybody = parse_entrants(setup.snakes, setup.reach)
    seated = [everybody[snake] for snake in fixture.seats]
    labels = [entrant.label for entrant in seated]
    with masked(signal.SIGTERM, block=False):
        async with seat(seated, setup.timeout / 1000, fixture.seed) as players:
            return await play(
                game, setup.width, setup.height, labels, players, setup.max_turns, tell
            )


def _play_without_referee(
    setup: TournamentSettings,
    fixture: ScheduledGame,
    game_id: str,
    reasons: bool,
    tell: OnEvent | None,
) -> GameRecord:
    """A game without a referee: no snake can be late, and one that raises ends the tournament."""
    conditions = MatchSettings(
        width=setup.width,
        height=setup.height,
        ruleset=setup.ruleset,
        map=setup.map,
        settings=setup.settings,
        max_turns=setup.max_turns or sys.maxsize,
        nodes=setup.nodes,
        move_time_ms=setup.move_time_ms,
    )
    everybody = parse_entrants(setup.snakes, setup.reach)
    seated = [everybody[snake] for snake in fixture.seats]
    with masked(signal.SIGTERM, block=False):
        played = play_game(
            conditions,
            [local_factory(entrant) for entrant in seated],
            fixture.seed,
            names=[entrant.label for entrant in seated],
            game_id=game_id,
            reasons=reasons or tell is not None,
            tell=tell,
        )
    last, finished = played.last, played.last.is_over()
    seats = seat_records(last, [move_letters(snake.id, played.turns) for snake in last.snakes])
    for seat, milliseconds in zip(seats, played.cpu_ms, strict=True):
        seat.latencies = milliseconds
    return GameRecord(played.first, played.turns, seats, winner_of(last, finished), finished)


@contextlib.asynccontextmanager
async def open_players(
    seated: Sequence[Entrant], timeout: float, seed: int
) -> AsyncIterator[list[Player]]:
    """The players for these entrants, in seat order; ``timeout`` is in seconds."""
    async with contextlib.AsyncExitStack() as stack:
        players: list[Player] = []
        for seat, entrant in enumerate(seated):
            if entrant.remote:
                reach = entrant.reach
                client = await stack.enter_async_context(open_client(reach))
                player = HttpPlayer(entrant.source, timeout, client, redirects=reach.redirects)
                players.append(player)
            else:
                strategy = local_factory(entrant)(seed + seat)
                looks = bundle_customization(entrant.source)
                looks.pop("author", None)
                players.append(LocalPlayer(strategy, timeout, looks))
        yield players


@functools.lru_cache(maxsize=64)
def local_factory(entrant: Entrant) -> Factory:
    """What builds the strategy of a named snake or a policy; loaded once a process."""
    if entrant.is_policy:
        return strategy_factory(policy=entrant.source)
    return strategy_factory(snake=entrant.source)
