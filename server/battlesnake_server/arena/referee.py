"""One game under the reference's conduct: what snakes are asked, when, and what bad answers cost.

The order is that of the official command line: looks and ``/start`` one snake after the other;
every turn ``/move`` to all living snakes at once, the survivors of the last turn included; ``/end``
to every snake one turn later. A snake that does not answer in time repeats its previous move, at
first "up"; for our own the fallback chooses. Either way the turn's record says so.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from battlesnake_gym import rules
from battlesnake_gym.boards import board_json
from battlesnake_gym.boards.board import Board
from battlesnake_gym.replays.replay import Turn
from battlesnake_gym.rules import Game, Snake, State
from battlesnake_server.arena.players import Body, MoveResponse, Player

_FIRST_MOVE = "up"

_OPENING_MOVES = 6
"""Moves that are kept of how each snake begins."""

Write = Callable[[Game, State, Snake], Body]
"""How a request is written for a snake; `board_json.write` does it as the official command line."""

OnEvent = Callable[[Board | Turn], None]
"""Called with the positions and turns of a game while it is played."""


@dataclass(slots=True)
class SeatRecord:
    """How one snake fared: what it answered, and what it answered with nothing.

    ``latencies`` are milliseconds, one for each move asked; ``problems`` counts the answers that
    did not count, by kind (see `Answer`). ``opening`` has the first letters of its first
    `_OPENING_MOVES` moves. The rest is as in `rules.Snake`.
    """

    cause: str = ""
    killer: int | None = None
    eliminated_on: int = 0
    length: int = 0
    latencies: list[float] = field(default_factory=list)
    problems: dict[str, int] = field(default_factory=dict)
    opening: str = ""


@dataclass(slots=True)
class GameRecord:
    """A game that was played: enough to rate it, to describe it and to play it again.

    ``first`` is the first position and ``turns`` what happened since, as a `replay.Replay` is made.
    ``winner`` is a seat or None (a draw, or a solo game); ``finished`` says whether the
    rules ended the game (else the limit on turns did).
    """

    first: Board
    turns: list[Turn]
    seats: list[SeatRecord]
    winner: int | None
    finished: bool


async def play(
    game: Game,
    width: int,
    height: int,
    names: Sequence[str],
    players: Sequence[Player],
    max_turns: int | None = None,
    tell: OnEvent | None = None,
    write: Write = board_json.write,
) -> GameRecord:
    """Play one game to its end, or to the turn ``max_turns``.

    ``names`` are what the snakes are called, in seat order; their ids follow from ``game.id``.
    ``write`` writes the requests: `ArenaRequestWriter` does it in another form than the official one.
    ``tell`` is called with the first position, then with every turn, as it is played.
    Raises `rules.RulesError` where the map refuses the size or the number of snakes. Whatever the
    players do, nothing else is raised.
    """
    game = replace(
        game,
        ruleset=rules.ruleset_name(game.ruleset),
        solo=game.solo or len(names) < 2,
    )
    ids = [str(uuid.uuid5(uuid.NAMESPACE_OID, f"{game.id}/{seat}")) for seat in range(len(names))]
    state = rules.start(game, width, height, ids)
    for snake, name, player in zip(state.snakes, names, players, strict=True):
        snake.name = name
        snake.customizations = await player.fetch_customization()
    table = _SeatedPlayers(game, state, players, write)
    for player, body in zip(players, table.bodies(), strict=True):
        await player.start(body)
    first = Board.from_state(state, game)
    if tell is not None:
        tell(first.copy())
    turns: list[Turn] = []
    while True:
        over = rules.is_over(game, state) or state.turn == max_turns
        turn = await table.request_moves()
        if over:
            break
        turns.append(turn)
        rules.step(game, state, turn.moves)
        if tell is not None:
            tell(turn)
    record = _record(table, first, turns)
    # The reference notices the end one step later: the clock and the map have moved on by then.
    if record.finished:
        rules.step(game, state, turn.moves)
    for player, body in zip(players, table.bodies(), strict=True):
        await player.end(body)
    return record


class ArenaRequestWriter:
    """Writes the requests of one game as arena.battlesnake.com does.

    All snakes of the game are listed to its end, the dead ones as they were when they died and
    without a flag; the map is empty, latencies are "0", and the game's id is a new one.
    """

    def __init__(self) -> None:
        self._id = str(uuid.uuid4())

    def __call__(self, game: Game, state: State, you: Snake) -> Body:
        """The request's body for ``you``."""
        body = board_json.write(replace(game, id=self._id, map=""), state, you)
        body["board"]["snakes"] = [board_json.write_snake(snake) for snake in state.snakes]
        for snake in [*body["board"]["snakes"], body["you"]]:
            snake["latency"] = "0"
        return body


class _SeatedPlayers:
    """The players around one board, and the last valid move of each."""

    def __init__(self, game: Game, state: State, players: Sequence[Player], write: Write) -> None:
        self.game = game
        self.write = write
        self.state = state
        self.players = players
        self.seats = [SeatRecord() for _ in players]
        self._last = [_FIRST_MOVE] * len(players)

    def bodies(self) -> list[Body]:
        """The request body for every seat, the dead included."""
        return [self._body(seat) for seat in range(len(self.players))]

    def _body(self, seat: int) -> Body:
        return self.write(self.game, self.state, self.state.snakes[seat])

    async def request_moves(self) -> Turn:
        """Ask all living snakes for a move: snakes elsewhere at once, then our own in turn.

        In turn, so that thinking here does not count as latency there.
        """
        living = [seat for seat, snake in enumerate(self.state.snakes) if snake.alive]
        bodies = {seat: self._body(seat) for seat in living}
        remote = [seat for seat in living if self.players[seat].remote]
        answers = dict(
            zip(
                remote,
                await asyncio.gather(*(self.players[s].move(bodies[s]) for s in remote)),
                strict=True,
            )
        )
        for seat in living:
            if seat not in answers:
                answers[seat] = await self.players[seat].move(bodies[seat])
        turn = Turn({})
        for seat in living:
            self._note(seat, answers[seat], turn)
        return turn

    def _note(self, seat: int, answer: MoveResponse, turn: Turn) -> None:
        record, snake = self.seats[seat], self.state.snakes[seat]
        milliseconds = round(answer.milliseconds, 2)
        record.latencies.append(milliseconds)
        snake.latency = str(int(milliseconds))
        if answer.problem:
            record.problems[answer.problem] = record.problems.get(answer.problem, 0) + 1
            turn.problems[snake.id] = answer.problem
        if answer.move is not None:
            self._last[seat] = answer.move
        turn.moves[snake.id] = self._last[seat]
        turn.latency[snake.id] = milliseconds
        if answer.shout:
            turn.shouts[snake.id] = answer.shout
        if answer.decision is not None:
            turn.decisions[snake.id] = answer.decision


def move_letters(snake_id: str, turns: Sequence[Turn]) -> str:
    """The first letters of a snake's moves."""
    return "".join(turn.moves.get(snake_id, "")[:1] for turn in turns)


def seat_records(state: State, moves: Sequence[str]) -> list[SeatRecord]:
    """How the snakes of a last position fared, as far as it and their ``move_letters`` say."""
    seat_of = {snake.id: seat for seat, snake in enumerate(state.snakes)}
    return [
        SeatRecord(
            cause=snake.eliminated_cause,
            killer=seat_of.get(snake.eliminated_by),
            eliminated_on=snake.eliminated_on,
            length=snake.length,
            opening=its[:_OPENING_MOVES],
        )
        for snake, its in zip(state.snakes, moves, strict=True)
    ]


def winner_of(state: State, finished: bool) -> int | None:
    """The seat of the last living snake of several, once the rules have ended the game."""
    living = [seat for seat, snake in enumerate(state.snakes) if snake.alive]
    several = len(state.snakes) > 1
    return living[0] if several and finished and len(living) == 1 else None


def _record(table: _SeatedPlayers, first: Board, turns: list[Turn]) -> GameRecord:
    state, finished = table.state, rules.is_over(table.game, table.state)
    seats = [
        replace(seat, latencies=asked.latencies, problems=asked.problems)
        for seat, asked in zip(
            seat_records(state, [move_letters(snake.id, turns) for snake in state.snakes]),
            table.seats,
            strict=True,
        )
    ]
    return GameRecord(first, turns, seats, winner_of(state, finished), finished)
