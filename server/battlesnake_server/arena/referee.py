"""Referee that conducts one game in the same way as the official engine.

The order of requests matches the official CLI. The referee first sends ``GET /`` and ``/start``,
one snake after the other. On every turn, the referee sends ``/move`` to all living snakes at once.
After the last turn, the referee also sends ``/move`` to the survivors. One turn later, the referee
sends ``/end`` to every snake.

A snake behind a URL that does not respond in time repeats its previous move, initially "up". A
strategy in this process plays the fallback move instead. The record of the turn names the problem
of every failed move.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from battlesnake_gym import rules
from battlesnake_gym.boards import board_json
from battlesnake_gym.boards.board import Board
from battlesnake_gym.boards.limited_view import limit_view
from battlesnake_gym.game_spec import GameSpec
from battlesnake_gym.replays.replay import Turn
from battlesnake_gym.rules import Game, State
from battlesnake_server.arena.players import Body, MoveResponse, Player

_INITIAL_MOVE = "up"

_NUM_OPENING_MOVES = 6
"""Number of moves that form a snake's opening."""

OnEvent = Callable[[Board | Turn], None]
"""Callback for the first position and every turn, called during the game."""


@dataclass(slots=True)
class SeatRecord:
    """The record of one snake in one game.

    Attributes:
        cause: Cause of elimination, as in `rules.Snake`; "" if the snake survived.
        killer: Seat of the snake that eliminated this snake, or None.
        eliminated_on: Turn of elimination.
        length: Final length.
        latencies: Response time of every requested move, in milliseconds.
        problems: Number of failed moves, keyed by `players.MoveResponse.problem`.
        opening: First letters of the snake's first `_NUM_OPENING_MOVES` moves.
        error: Text of the first exception of a strategy in this process, or ""; see
            `describe_exception`.
    """

    cause: str = ""
    killer: int | None = None
    eliminated_on: int = 0
    length: int = 0
    latencies: list[float] = field(default_factory=list)
    problems: dict[str, int] = field(default_factory=dict)
    opening: str = ""
    error: str = ""

    def add_problem(self, problem: str, error: str) -> None:
        """Count a failed move; ``problem`` is "" for a valid move."""
        if problem:
            self.problems[problem] = self.problems.get(problem, 0) + 1
            self.error = self.error or error


@dataclass(slots=True)
class GameRecord:
    """Record of a completed game, for ratings, descriptions and replays.

    Attributes:
        first: The first position.
        turns: The turns played, as in a `replay.Replay`.
        seats: The record of every seat.
        winner: The winner's seat; None for a draw, a solo game or an unfinished game.
        finished: True if the rules ended the game, False if the turn limit ended the game.
    """

    first: Board
    turns: list[Turn]
    seats: list[SeatRecord]
    winner: int | None
    finished: bool

    @classmethod
    def build(
        cls, first: Board, turns: list[Turn], seats: Sequence[SeatRecord], last: State
    ) -> GameRecord:
        """Build the record of a game, and add the outcome in the position ``last`` to ``seats``."""
        finished = rules.is_over(first.game, last)
        letters = [move_letters(snake.id, turns) for snake in last.snakes]
        outcomes, winner = add_outcomes(seats, last, letters, finished)
        return cls(first, turns, outcomes, winner, finished)


async def play(
    game: Game,
    spec: GameSpec[int],
    names: Sequence[str],
    players: Sequence[Player],
    on_event: OnEvent | None = None,
) -> GameRecord:
    """Play one game to its end, or up to the turn limit of ``spec``.

    Args:
        game: Ruleset, map, settings and seed; the snakes' ids are derived from the game id.
        spec: Board size and turn limit.
        names: Names of the snakes, in seat order.
        players: The players, in seat order. Players never raise an exception.
        on_event: Callback for the first position and for every turn played.

    Raises:
        rules.RulesError: If the map does not support the board size or the number of snakes.
    """
    game = replace(game, ruleset=rules.ruleset_name(game.ruleset), solo=game.solo or len(names) < 2)
    ids = [str(uuid.uuid5(uuid.NAMESPACE_OID, f"{game.id}/{seat}")) for seat in range(len(names))]
    state = rules.start(game, spec.width, spec.height, ids)
    for snake, name, player in zip(state.snakes, names, players, strict=True):
        snake.name = name
        snake.customizations = await player.fetch_customization()
    seated = _SeatedPlayers(game, state, players)
    for player, body in zip(players, seated.request_bodies(), strict=True):
        await player.start(body)
    first = Board.from_state(state, game)
    if on_event is not None:
        on_event(first.copy())
    turns: list[Turn] = []
    while True:
        over = rules.is_over(game, state) or state.turn == spec.max_turns
        turn = await seated.request_moves()
        if over:
            break
        turns.append(turn)
        rules.step(game, state, turn.moves)
        if on_event is not None:
            on_event(turn)
    record = GameRecord.build(first, turns, seated.seats, state)
    # The official engine detects the end one step later, after the turn counter and the map have
    # advanced.
    if record.finished:
        rules.step(game, state, turn.moves)
    for player, body in zip(players, seated.request_bodies(), strict=True):
        await player.end(body)
    return record


class _SeatedPlayers:
    """The players of one game, and the last valid move of each player."""

    def __init__(self, game: Game, state: State, players: Sequence[Player]) -> None:
        self.game = game
        self.state = state
        self.players = players
        self.seats = [SeatRecord() for _ in players]
        self._last = [_INITIAL_MOVE] * len(players)

    def request_bodies(self) -> list[Body]:
        """Return the request bodies of all seats, including eliminated snakes."""
        return [self._request_body(seat) for seat in range(len(self.players))]

    def _request_body(self, seat: int) -> Body:
        """Return the request body of one seat."""
        body = board_json.request_to_dict(self.game, self.state, self.state.snakes[seat])
        view_radius = self.game.settings.view_radius
        return body if view_radius is None else limit_view(body, view_radius)

    async def request_moves(self) -> Turn:
        """Request moves from all living snakes.

        Requests to remote snakes are sent concurrently. Local strategies then run one after
        another, so that their computation does not add to the latency of remote snakes.
        """
        living = [seat for seat, snake in enumerate(self.state.snakes) if snake.alive]
        bodies = {seat: self._request_body(seat) for seat in living}
        remote = [seat for seat in living if self.players[seat].is_remote]
        responses = dict(
            zip(
                remote,
                await asyncio.gather(*(self.players[s].move(bodies[s]) for s in remote)),
                strict=True,
            )
        )
        for seat in living:
            if seat not in responses:
                responses[seat] = await self.players[seat].move(bodies[seat])
        turn = Turn({})
        for seat in living:
            self._record_move(seat, responses[seat], turn)
        return turn

    def _record_move(self, seat: int, response: MoveResponse, turn: Turn) -> None:
        """Store the response of one seat in its record and in ``turn``."""
        record, snake = self.seats[seat], self.state.snakes[seat]
        milliseconds = round(response.milliseconds, 2)
        record.latencies.append(milliseconds)
        snake.latency = str(int(milliseconds))
        record.add_problem(response.problem, response.error)
        if response.problem:
            turn.problems[snake.id] = response.problem
        if response.move is not None:
            self._last[seat] = response.move
        turn.moves[snake.id] = self._last[seat]
        turn.latency[snake.id] = milliseconds
        if response.shout:
            turn.shouts[snake.id] = response.shout
        if response.decision is not None:
            turn.decisions[snake.id] = response.decision


def move_letters(snake_id: str, turns: Sequence[Turn]) -> str:
    """Return the first letters of a snake's moves as one string."""
    return "".join(turn.moves.get(snake_id, "")[:1] for turn in turns)


def add_outcomes(
    seats: Sequence[SeatRecord], state: State, moves: Sequence[str], finished: bool
) -> tuple[list[SeatRecord], int | None]:
    """Add the outcome of a game to the latencies, problems and errors in ``seats``.

    Args:
        seats: The record of every seat.
        state: The final position.
        moves: The `move_letters` of every seat.
        finished: Whether the rules ended the game.

    Returns:
        The records, and the winner's seat; None for a draw, a solo game or an unfinished game.
    """
    seat_of = {snake.id: seat for seat, snake in enumerate(state.snakes)}
    records = [
        replace(
            record,
            cause=snake.eliminated_cause,
            killer=seat_of.get(snake.eliminated_by),
            eliminated_on=snake.eliminated_on,
            length=snake.length,
            opening=letters[:_NUM_OPENING_MOVES],
        )
        for record, snake, letters in zip(seats, state.snakes, moves, strict=True)
    ]
    living = [seat for seat, snake in enumerate(state.snakes) if snake.alive]
    several = len(state.snakes) > 1
    winner = living[0] if several and finished and len(living) == 1 else None
    return records, winner
