"""Interactive boards for notebooks: replay games, edit positions, explain moves.

`record` plays a game and stores the decision of every move. `GameView` displays the turns of the
game. `Editor` displays the decision of a snake for an edited position.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import ipywidgets as widgets

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.draw import drawing
from battlesnake_gym.replays.replay import Replay
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Strategy

MOVE_TIME_S = 0.2
"""Time budget per move, in seconds."""

TURN_INTERVAL_MS = 300
CELL_STYLE = "padding: 1px 10px; text-align: left; white-space: nowrap"


def record(board: Board, strategies: Mapping[str, Strategy], max_turns: int = 500) -> Replay:
    """Play and record a game of at most ``max_turns`` turns."""
    return Replay.from_play(board, strategies, MOVE_TIME_S, max_turns)


def reasons_table(decision: Decision | None) -> str:
    """Format a decision as an HTML table.

    The table has one row per rule and one column per move.
    """
    if decision is None:
        return "<i>No move: the snake is out, or the game is over.</i>"
    head = "".join(
        f"<th style='{CELL_STYLE}'>{'► ' if move == decision.move else ''}{move}</th>"
        for move in MOVES
    )
    rows = [
        _table_row(
            reason.rule,
            {**_format_scores(reason.scores), **dict.fromkeys(reason.vetoed, "✗")},
            reason.note,
        )
        for reason in decision.reasons
    ]
    total = _table_row("sum", _format_scores(decision.scores), "of the moves that are left")
    return (
        f"<table><tr><th style='{CELL_STYLE}'>rule</th>{head}"
        f"<th style='{CELL_STYLE}'>says</th></tr>"
        f"{''.join(rows)}{total}</table>"
    )


def _table_row(rule: str, cells: Mapping[str, str], note: str) -> str:
    """Format one row of the table of reasons."""
    texts = [rule, *(cells.get(move, "") for move in MOVES), note]
    return (
        "<tr>"
        + "".join(f"<td style='{CELL_STYLE}'>{escape(text)}</td>" for text in texts)
        + "</tr>"
    )


def _format_scores(scores: Mapping[str, float]) -> dict[str, str]:
    """Format the score of each move with a sign and two decimals."""
    return {move: f"{score:+.2f}" for move, score in scores.items()}


class _BoardWidget(widgets.VBox):  # type: ignore[misc]
    """A widget that also provides a static picture, for pages without a kernel."""

    picture: widgets.HTML
    reasons: widgets.HTML

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**kwargs)
        return bundle | {"text/html": self.picture.value + self.reasons.value}


class GameView(_BoardWidget):
    """A recorded game with playback controls, and the decisions of one snake.

    ``turn`` (a slider) and ``snake`` (a drop-down list of ids) select the turn and the snake.
    `board` is the position of the selected turn. `decision` is the recorded decision of the
    selected snake. The arrow keys move the slider.
    """

    def __init__(self, replay: Replay, snake_id: str | None = None) -> None:
        self.replay = replay
        self._boards: list[Board] = list(replay.boards())
        first, last = self._boards[0].turn, self._boards[-1].turn
        ids = [snake.id for snake in replay.first.snakes]
        names = [(snake.name or snake.id, snake.id) for snake in replay.first.snakes]
        self.turn = widgets.IntSlider(first, first, last, description="turn")
        self.play = widgets.Play(
            value=first, min=first, max=last, interval=TURN_INTERVAL_MS, show_repeat=False
        )
        widgets.link((self.play, "value"), (self.turn, "value"))
        self.back = widgets.Button(description="◀ step", layout={"width": "80px"})
        self.forward = widgets.Button(description="step ▶", layout={"width": "80px"})
        self.back.on_click(lambda _: self._move_slider(-1))
        self.forward.on_click(lambda _: self._move_slider(+1))
        deaths = [(f"{who} out on turn {turn}: {why}", turn) for turn, who, why in replay.deaths()]
        self.death = widgets.Dropdown(options=[("jump to …", None), *deaths])
        self.snake = widgets.Dropdown(options=names, value=snake_id or ids[0], description="snake")
        self.picture = widgets.HTML()
        self.reasons = widgets.HTML()
        self.death.observe(self._show_elimination, "value")
        for chooser in (self.turn, self.snake):
            chooser.observe(lambda _: self._update_board(), "value")
        self._update_board()
        super().__init__(
            [
                widgets.HBox([self.play, self.back, self.forward, self.turn]),
                widgets.HBox([self.snake, self.death]),
                self.picture,
                self.reasons,
            ]
        )

    @property
    def board(self) -> Board:
        """Copy of the displayed position from the perspective of the selected snake."""
        board: Board = self._boards[self._index].copy()
        board.you_id = self.snake.value
        return board

    @property
    def decision(self) -> Decision | None:
        """Decision of the selected snake on this turn, or None if the snake made no move."""
        if self._index == len(self.replay.turns):
            return None
        return self.replay.turns[self._index].decisions.get(self.snake.value)

    @property
    def _index(self) -> int:
        """Index of the displayed turn in the list of boards."""
        return int(self.turn.value) - self._boards[0].turn

    def _move_slider(self, turns: int) -> None:
        """Move the turn slider by ``turns`` turns."""
        self.turn.value += turns  # The slider limits the value to its range.

    def _show_elimination(self, change: dict[str, object]) -> None:
        """Show the turn before the selected elimination.

        The moves of this turn caused the elimination.
        """
        if self.death.value is not None:
            self.snake.value = self.replay.deaths()[self.death.index - 1][1]
            self.turn.value = self.death.value - 1
            self.death.value = None

    def _update_board(self) -> None:
        """Draw the selected turn and the reasons of the selected snake."""
        self.picture.value = drawing.svg(self.board)
        self.reasons.value = reasons_table(self.decision)


class Editor(_BoardWidget):
    """A position as text, with its picture and the decision of a built-in snake.

    An edit of the text updates the picture and the decision. ``name`` selects the snake. A button
    plays one turn in which the selected strategy moves all snakes. `board` is the position, or None
    if the text is invalid. `decision` is the decision of the snake.
    """

    def __init__(self, board: Board, name: str = "cautious") -> None:
        self.board: Board | None = None
        self.decision: Decision | None = None
        self.text = widgets.Textarea(
            str(board), layout={"width": "250px", "height": f"{20 * (board.height + 6)}px"}
        )
        self.text.add_class("board-text")
        self.name = widgets.Dropdown(options=snakes.names(), value=name, description="ask")
        self.on = widgets.Button(description="play a turn ▶")
        self.undo = widgets.Button(description="◀ back")
        self.picture = widgets.HTML()
        self.reasons = widgets.HTML()
        self._past: list[str] = []
        self.text.observe(lambda _: self._update(), "value")
        self.name.observe(lambda _: self._update(), "value")
        self.on.on_click(lambda _: self._play_turn())
        self.undo.on_click(lambda _: self._undo_turn())
        self._update()
        super().__init__(
            [
                widgets.HBox([self.name, self.undo, self.on]),
                widgets.HBox([self.text, self.picture]),
                self.reasons,
                widgets.HTML("<style>.board-text textarea {font-family: monospace}</style>"),
            ]
        )

    def _update(self) -> None:
        """Parse the text, draw the board and run the strategy.

        The widget displays an error in place of the reasons.
        """
        self.board = self.decision = None
        try:
            board = Board.from_text(self.text.value)
            if board.you_id is None and board.living:
                board.you_id = board.living[0].id
            self.picture.value = drawing.svg(board)
            self.board = board
            if board.you_id is not None and board.you.alive:
                self.decision = snakes.make(self.name.value)(board.copy().limited(), MOVE_TIME_S)
            self.reasons.value = reasons_table(self.decision)
        except Exception as error:  # A strategy under development can raise any exception.
            message = str(error) if isinstance(error, ValueError) else repr(error)
            self.reasons.value = f"<b style='color: #b00020'>{escape(message)}</b>"

    def _play_turn(self) -> None:
        """Play one turn in which the selected strategy moves all snakes."""
        if self.board is None or not self.board.living or self.board.is_over():
            return
        board = self.board.copy()
        strategies = {snake.id: snakes.make(self.name.value) for snake in board.living}
        next(snakes.play(board, strategies, MOVE_TIME_S, board.turn + 1))
        self._past.append(self.text.value)
        self.text.value = str(board)

    def _undo_turn(self) -> None:
        """Restore the text before the last played turn."""
        if self._past:
            self.text.value = self._past.pop()
