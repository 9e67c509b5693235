"""Many games between the same snakes: which snakes meet in which seats, and playing all of it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import multiprocessing
import os
import re
import signal
import sys
import threading
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator, Sequence, Set
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext
from multiprocessing.synchronize import Lock
from pathlib import Path
from types import FrameType
from typing import Any

from battlesnake_gym.boards.board import Board
from battlesnake_gym.records.replay import Replay, Turn
from battlesnake_gym.rules import Game, Settings
from battlesnake_gym.snakes import Factory
from battlesnake_heuristics.judge.match import Conditions, play_game, side_of_seats, start_seed
from battlesnake_server.addresses import Reach
from battlesnake_server.arena.players import HttpPlayer, LocalPlayer, Player, open_client
from battlesnake_server.arena.referee import GameRecord, SeatRecord, Tell, opening, play
from battlesnake_server.bundle import looks_of
from battlesnake_server.strategies import split_rules, strategy_factory


@dataclass(frozen=True, slots=True)
class Setup:
    """What a tournament is: equal set-ups have the same schedule.

    ``snakes`` are as `entrants` reads them; ``per_game`` of them meet in a game.
    ``timeout`` is in milliseconds; ``max_turns`` ends endless games. With ``positions`` or
    ``milliseconds`` (of CPU time) a move, which need all snakes to be in this process, there is no
    other clock. ``sides`` makes a match of it: the two snakes take the seats by turns. ``reach`` is
    where the operator lets requests go, besides the addresses in ``snakes``; it makes no other
    schedule.
    """

    snakes: tuple[str, ...]
    per_game: int
    width: int = 11
    height: int = 11
    ruleset: str = "standard"
    map: str = "standard"
    settings: Settings = Settings()  # noqa: RUF009  (frozen)
    seed: int = 1
    timeout: int = 500
    max_turns: int | None = None
    reach: Reach = Reach()  # noqa: RUF009  (frozen)
    positions: int | None = None
    milliseconds: float | None = None
    sides: bool = False

    @property
    def bounded(self) -> bool:
        """Whether the moves are bounded by something else than the timeout."""
        return self.positions is not None or self.milliseconds is not None

    def to_dict(self) -> dict[str, Any]:
        """The set-up as JSON, without its reach and what few tournaments have."""
        values = asdict(self) | {"snakes": list(self.snakes)}
        for name in ("positions", "milliseconds", "sides"):
            if not values[name]:
                del values[name]
        del values["reach"]
        return values


@dataclass(frozen=True, slots=True)
class Fixture:
    """One game of the schedule: its number, its seed, and which snake (index) sits where."""

    number: int
    seed: int
    seats: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """A fixture that was played; see `referee.GameRecord`. ``replay`` is the path of its file."""

    fixture: Fixture
    uuid: str
    turns: int
    finished: bool
    winner: int | None
    seats: list[SeatRecord]
    replay: str | None


@dataclass(frozen=True, slots=True)
class Entrant:
    """A snake of a tournament: what tables call it, and its URL, name or path of a policy.

    ``reach`` is where its requests may go, if it is a URL.
    """

    label: str
    source: str
    reach: Reach = Reach()  # noqa: RUF009  (frozen)

    @property
    def remote(self) -> bool:
        """Whether it is played over HTTP."""
        return self.source.startswith(("http://", "https://"))

    @property
    def trained(self) -> bool:
        """Whether it is a policy's path, maybe with rules over it (``policy.onnx+my_rules.py``)."""
        return self.policy.endswith(".onnx")

    @property
    def policy(self) -> str:
        """Its path without the rules, if it is a policy."""
        return split_rules(self.source)[0]


PATIENCE = 5.0
"""Seconds that an interrupted game's process has to end by itself."""


def entrants(snakes: Sequence[str], reach: Reach = Reach()) -> list[Entrant]:  # noqa: B008
    """Read snakes as the operator gives them to the arena: ``SOURCE`` or ``LABEL=SOURCE``.

    Equal labels are numbered. An address in a URL counts as allowed, besides ``reach``.

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
        found.append(Entrant(label + number, source, reach.naming(source)))
    return found


def schedule(snakes: int, per_game: int, games: int, seed: int) -> Iterator[Fixture]:
    """All games, in order: ``games`` for every group of ``per_game`` snakes.

    A seed is played from every seat before the next one comes, so that no snake owes a result to
    its corner: choose ``games`` as a multiple of ``per_game``. The groups take turns, so a longer
    schedule begins with the shorter one.

    >>> [fixture.seats for fixture in schedule(3, 2, 2, seed=1)]
    [(0, 1), (0, 2), (1, 2), (1, 0), (2, 0), (2, 1)]
    """
    number = 0
    for round_ in range(games):
        turn = round_ % per_game
        for group in itertools.combinations(range(snakes), per_game):
            seats = group[turn:] + group[:turn]
            yield Fixture(number, start_seed(seed, round_ // per_game), seats)
            number += 1


def match_schedule(per_game: int, seed: int, first: int = 0) -> Iterator[Fixture]:
    """The games of a match between two sides from the number ``first`` on, without an end.

    Games 2n and 2n + 1 begin alike, with the seats exchanged.

    >>> [fixture.seats for fixture in itertools.islice(match_schedule(4, seed=1), 2)]
    [(0, 1, 0, 1), (1, 0, 1, 0)]
    """
    for number in itertools.count(first):
        yield Fixture(number, start_seed(seed, number // 2), side_of_seats(per_game, number))


OpenPlayers = Callable[[Sequence[Entrant], float, int], AbstractAsyncContextManager[list[Player]]]
"""Opens the players of a game, in seat order: of these entrants, a timeout in seconds, a seed."""

Announce = Callable[[str, Board | Turn | None], None]
"""Called for all games while they are played: with a game's id, and its first position, a turn, or
None when it is over."""


def play_all(
    setup: Setup,
    games: int,
    jobs: int,
    done: Set[int] = frozenset(),
    replays: Path | None = None,
    announce: Announce | None = None,
) -> Generator[Result, None, None]:
    """Play what the schedule still holds, as `play_fixtures`; ``done`` are not played again."""
    fixtures = [
        fixture
        for fixture in schedule(len(setup.snakes), setup.per_game, games, setup.seed)
        if fixture.number not in done
    ]
    yield from play_fixtures(setup, fixtures, min(jobs, max(1, len(fixtures))), replays, announce)


def play_fixtures(
    setup: Setup,
    fixtures: Iterable[Fixture],
    jobs: int,
    replays: Path | None = None,
    announce: Announce | None = None,
) -> Generator[Result, None, None]:
    """Play ``fixtures``, ``jobs`` games at a time; results come as they end.

    Every job is a process: snakes in one game never wait for those in another. ``announce`` is
    called in this process, from a thread of its own; even one job is then played elsewhere,
    since ``announce`` has work to do here. A game is begun when it is its turn, so the schedule may
    be endless: closing this generator waits only for the games that are being played.
    """
    if jobs == 1 and announce is None:
        yield from (play_fixture(setup, fixture, replays) for fixture in fixtures)
        return
    with open_pool(jobs, announce) as pool:
        waiting = iter(fixtures)
        playing: set[Future[Result]] = set()
        try:
            while True:
                for fixture in itertools.islice(waiting, jobs - len(playing)):
                    playing.add(pool.submit(play_in_pool, setup, fixture, replays))
                if not playing:
                    return
                finished, playing = wait(playing, return_when=FIRST_COMPLETED)
                for future in finished:
                    yield future.result()
        except BaseException:
            pool.abandon()
            raise


@contextlib.contextmanager
def open_pool(jobs: int, announce: Announce | None = None) -> Iterator[Pool]:
    """Processes for `play_in_pool`, whose games are announced from a thread here."""
    context = multiprocessing.get_context("spawn")
    with _relayed(announce, context) as listen, Pool(jobs, context, listen) as pool:
        yield pool


@contextlib.contextmanager
def _relayed(announce: Announce | None, context: SpawnContext) -> Iterator[tuple[Any, ...]]:
    """What the processes of a pool are given (`_begin_process`), so that they announce here."""
    if announce is None:
        yield (None,)
        return
    news, writer = context.Pipe(duplex=False)
    relay = threading.Thread(target=_relay, args=(news, announce), daemon=True)
    relay.start()
    try:
        yield ((writer, context.Lock()),)
    finally:
        writer.close()  # the last: the processes have ended, by force even in the middle of a word
        relay.join(PATIENCE)


def _relay(news: Connection, announce: Announce) -> None:
    while True:
        try:
            one = news.recv()
        except (EOFError, OSError):
            return
        announce(*one)


_channel: tuple[Connection, Lock] | None = None
"""In the processes of a pool: where they announce, one at a time."""


_playing = False
"""In the processes of a pool: whether a game is on."""


def _begin_process(channel: tuple[Connection, Lock] | None) -> None:
    global _channel
    _channel = channel
    signal.signal(signal.SIGTERM, _give_up)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """End this process when the one that started it is gone, even where that was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _give_up(number: int, frame: FrameType | None) -> None:
    if not _playing:
        os._exit(128 + number)
    raise KeyboardInterrupt  # which the pool brings home as the game's result


class Pool(ProcessPoolExecutor):
    """Processes that play games (`play_in_pool`) and that Ctrl-C does not reach.

    The process that started them says when to end.
    """

    def __init__(
        self, jobs: int, context: SpawnContext | None = None, listen: tuple[Any, ...] = (None,)
    ) -> None:
        super().__init__(
            jobs, context or multiprocessing.get_context("spawn"), _begin_process, listen
        )

    def submit(self, *arguments: Any, **options: Any) -> Future[Any]:
        """Start what is missing of the processes with interrupts blocked, as they then stay."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(*arguments, **options)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    def abandon(self) -> None:
        """End the games that are on, and the processes, by force where a snake does not let go."""
        self.shutdown(wait=False, cancel_futures=True)
        processes = multiprocessing.active_children()
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(PATIENCE)
            process.kill()
        self.shutdown(wait=True)


def play_in_pool(setup: Setup, fixture: Fixture, replays: Path | None = None) -> Result:
    """`play_fixture` in a process of a `Pool`, which may have to end it while moves are made.

    What comes before and after is not disturbed: an event loop that is being closed, a replay.
    """
    global _playing
    announce = None if _channel is None else _announce_here
    with _sigterm(signal.SIG_BLOCK):
        _playing = True
        try:
            return play_fixture(setup, fixture, replays, announce)
        finally:
            _playing = False


def _announce_here(game_id: str, news: Board | Turn | None) -> None:
    """Announce in the process that started this one; what is half-written would never be read."""
    assert _channel is not None
    writer, lock = _channel
    with _sigterm(signal.SIG_BLOCK), lock:
        writer.send((game_id, news))


@contextlib.contextmanager
def _sigterm(how: signal.Sigmasks) -> Iterator[None]:
    """Block SIGTERM, or let it through, within the block."""
    before = signal.pthread_sigmask(how, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def play_fixture(
    setup: Setup,
    fixture: Fixture,
    replays: Path | None = None,
    announce: Announce | None = None,
    seat: OpenPlayers | None = None,
) -> Result:
    """Play one game of the schedule, and write its replay into the folder ``replays``.

    ``seat`` opens the players of a game that is not bounded, as `open_players` does.
    """
    # The id is not from the seed: a server keeps its games by id, and may be playing this seed.
    game_id = str(uuid.uuid4())
    tell = None if announce is None else functools.partial(announce, game_id)
    if setup.bounded:
        record = _play_bounded(setup, fixture, game_id, replays is not None, tell)
    else:
        record = asyncio.run(_play(setup, fixture, game_id, tell, seat or open_players))
    path = None if replays is None else replay_path(replays, fixture.number, game_id)
    if path is not None:
        Replay(record.first, record.turns).save(path)
    if announce is not None:
        announce(game_id, None)
    return Result(
        fixture=fixture,
        uuid=game_id,
        turns=len(record.turns),
        finished=record.finished,
        winner=record.winner,
        seats=record.seats,
        replay=None if path is None else str(path),
    )


def replay_path(folder: Path, number: int, game_id: str) -> Path:
    """Where the replay of a game is kept."""
    return folder / f"game-{number:05d}-{game_id[:8]}.jsonl.gz"


async def _play(
    setup: Setup, fixture: Fixture, game_id: str, tell: Tell | None, seat: OpenPlayers
) -> GameRecord:
    game = Game(
        ruleset=setup.ruleset,
        map=setup.map,
        settings=setup.settings,
        seed=fixture.seed,
        id=game_id,
        timeout=setup.timeout,
    )
    everybody = entrants(setup.snakes, setup.reach)
    seated = [everybody[snake] for snake in fixture.seats]
    labels = [entrant.label for entrant in seated]
    with _sigterm(signal.SIG_UNBLOCK):
        async with seat(seated, setup.timeout / 1000, fixture.seed) as players:
            return await play(
                game, setup.width, setup.height, labels, players, setup.max_turns, tell
            )


def _play_bounded(
    setup: Setup, fixture: Fixture, game_id: str, reasons: bool, tell: Tell | None
) -> GameRecord:
    """A game without a referee: no snake can be late, and one that raises ends the tournament."""
    conditions = Conditions(
        width=setup.width,
        height=setup.height,
        ruleset=setup.ruleset,
        map=setup.map,
        settings=setup.settings,
        max_turns=setup.max_turns or sys.maxsize,
        positions=setup.positions,
        milliseconds=setup.milliseconds,
    )
    everybody = entrants(setup.snakes, setup.reach)
    seated = [everybody[snake] for snake in fixture.seats]
    with _sigterm(signal.SIG_UNBLOCK):
        played = play_game(
            conditions,
            [local_factory(entrant) for entrant in seated],
            fixture.seed,
            names=[entrant.label for entrant in seated],
            game_id=game_id,
            reasons=reasons or tell is not None,
            tell=tell,
        )
    last = played.last
    seat_of = {snake.id: seat for seat, snake in enumerate(last.snakes)}
    seats = [
        SeatRecord(
            cause=snake.eliminated_cause,
            killer=seat_of.get(snake.eliminated_by),
            eliminated_on=snake.eliminated_on,
            length=snake.length,
            latencies=milliseconds,
            opening=opening(snake.id, played.turns),
        )
        for snake, milliseconds in zip(last.snakes, played.cpu, strict=True)
    ]
    winner = seat_of[last.winner.id] if last.is_over() and last.winner else None
    return GameRecord(played.first, played.turns, seats, winner, last.is_over())


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
                looks = looks_of(entrant.source)
                looks.pop("author", None)
                players.append(LocalPlayer(strategy, timeout, looks))
        yield players


@functools.lru_cache(maxsize=64)
def local_factory(entrant: Entrant) -> Factory:
    """What builds the strategy of a named snake or a policy; loaded once a process."""
    if entrant.trained:
        return strategy_factory(policy=entrant.source)
    return strategy_factory(snake=entrant.source)
