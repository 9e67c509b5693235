"""Many games between the same snakes: who meets whom from which seat, and playing it all out."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import itertools
import multiprocessing
import os
import re
import signal
import threading
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence, Set
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing.context import SpawnContext
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from types import FrameType
from typing import Any

from battlesnake_gym.board import Board
from battlesnake_gym.replay import Replay, Turn
from battlesnake_gym.rules import Game, Settings
from battlesnake_gym.snakes import Factory
from server.addresses import Reach
from server.players import HttpPlayer, LocalPlayer, Player, open_client
from server.referee import GameRecord, SeatRecord, Tell, play
from server.strategies import strategy_factory


@dataclass(frozen=True, slots=True)
class Setup:
    """What a tournament is: equal set-ups have the same schedule.

    ``snakes`` are as `entrants` reads them; ``per_game`` of them meet in a game.
    ``timeout`` is in milliseconds; ``max_turns`` ends endless games. ``reach`` is where the
    operator lets requests go, besides the addresses in ``snakes``; it makes no other schedule.
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

    def to_dict(self) -> dict[str, Any]:
        """The set-up as JSON, without its reach."""
        written = asdict(self) | {"snakes": list(self.snakes)}
        del written["reach"]
        return written


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
        """Whether it is a policy's path."""
        return self.source.endswith(".onnx")


PATIENCE = 5.0
"""Seconds that an interrupted game's process has to end by itself."""


def entrants(snakes: Sequence[str], reach: Reach = Reach()) -> list[Entrant]:  # noqa: B008
    """Read snakes as the operator gives them to the arena: ``SOURCE`` or ``LABEL=SOURCE``.

    Equal labels are numbered. An address that stands in a URL counts as allowed, besides ``reach``.

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
            yield Fixture(number, game_seed(seed, round_ // per_game), seats)
            number += 1


def game_seed(seed: int, index: int) -> int:
    """A seed of its own for each index: the rules' streams of neighbouring seeds overlap."""
    digest = hashlib.sha256(f"{seed}/{index}".encode()).digest()
    return int.from_bytes(digest[:8]) >> 1 or 1


Announce = Callable[[str, Board | Turn | None], None]
"""Who is told of all games while they are played: a game's id, and its first position, a turn, or
None when it is over."""


def play_all(
    setup: Setup,
    games: int,
    jobs: int,
    done: Set[int] = frozenset(),
    replays: Path | None = None,
    announce: Announce | None = None,
) -> Generator[Result, None, None]:
    """Play what the schedule still holds, ``jobs`` games at a time; results come as they end.

    ``done`` are the numbers of games that are not played again. Every job is a process: snakes in
    one game never wait for those in another. ``announce`` is called in this process, from a thread
    of its own; even one job is then played elsewhere, for whoever is told has work to do here.
    """
    fixtures = [
        fixture
        for fixture in schedule(len(setup.snakes), setup.per_game, games, setup.seed)
        if fixture.number not in done
    ]
    if jobs == 1 and announce is None:
        yield from (play_fixture(setup, fixture, replays) for fixture in fixtures)
        return
    context = multiprocessing.get_context("spawn")
    with (
        _relayed(announce, context) as listen,
        _Pool(min(jobs, max(1, len(fixtures))), context, _begin_process, listen) as pool,
    ):
        futures: list[Future[Result]] = [
            pool.submit(_play_in_pool, setup, fixture, replays) for fixture in fixtures
        ]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            pool.abandon()
            raise


@contextlib.contextmanager
def _relayed(announce: Announce | None, context: SpawnContext) -> Iterator[tuple[Any, ...]]:
    """What the processes of a pool are told (`_begin_process`), so that they announce here."""
    if announce is None:
        yield (None,)
        return
    queue = context.SimpleQueue()
    relay = threading.Thread(target=lambda: [announce(*news) for news in iter(queue.get, None)])
    relay.start()
    try:
        yield (queue,)
    finally:
        queue.put(None)
        relay.join()


_queue: SimpleQueue[tuple[str, Board | Turn | None]] | None = None
"""In the processes of a pool: where they announce."""


_playing = False
"""In the processes of a pool: whether a game is on."""


def _begin_process(queue: SimpleQueue[tuple[str, Board | Turn | None]] | None) -> None:
    global _queue
    _queue = queue
    signal.signal(signal.SIGTERM, _give_up)


def _give_up(number: int, frame: FrameType | None) -> None:
    if not _playing:
        os._exit(128 + number)
    raise KeyboardInterrupt  # which the pool brings home as the game's result


class _Pool(ProcessPoolExecutor):
    """Processes that Ctrl-C does not reach: whoever started them says when to end."""

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


def _play_in_pool(setup: Setup, fixture: Fixture, replays: Path | None) -> Result:
    global _playing
    queue = _queue
    announce = None if queue is None else lambda *news: queue.put(news)
    _playing = True
    try:
        return play_fixture(setup, fixture, replays, announce)
    finally:
        _playing = False


def play_fixture(
    setup: Setup,
    fixture: Fixture,
    replays: Path | None = None,
    announce: Announce | None = None,
) -> Result:
    """Play one game of the schedule, and write its replay into the folder ``replays``."""
    # The id is not from the seed: a server keeps its games by id, and may be playing this seed.
    game_id = str(uuid.uuid4())
    tell = None if announce is None else functools.partial(announce, game_id)
    record = asyncio.run(_play(setup, fixture, game_id, tell))
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


async def _play(setup: Setup, fixture: Fixture, game_id: str, tell: Tell | None) -> GameRecord:
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
    async with open_players(seated, setup.timeout / 1000, fixture.seed) as players:
        return await play(
            game,
            setup.width,
            setup.height,
            [entrant.label for entrant in seated],
            players,
            setup.max_turns,
            tell,
        )


@contextlib.asynccontextmanager
async def open_players(
    seated: Sequence[Entrant], timeout: float, seed: int
) -> AsyncIterator[list[Player]]:
    """Who plays for these entrants, in seat order; ``timeout`` is in seconds."""
    async with contextlib.AsyncExitStack() as stack:
        players: list[Player] = []
        for seat, entrant in enumerate(seated):
            if entrant.remote:
                reach = entrant.reach
                client = await stack.enter_async_context(open_client(reach))
                player = HttpPlayer(entrant.source, timeout, client, redirects=reach.redirects)
                players.append(player)
            else:
                players.append(LocalPlayer(local_factory(entrant)(seed + seat), timeout))
        yield players


@functools.lru_cache(maxsize=64)
def local_factory(entrant: Entrant) -> Factory:
    """What builds the strategy of a named snake or a policy; loaded once a process."""
    if entrant.trained:
        return strategy_factory(policy=entrant.source)
    return strategy_factory(snake=entrant.source)
