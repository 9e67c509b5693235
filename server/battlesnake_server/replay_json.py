"""Replays as JSON for the browser's board component.

A replay is one object for the game and one object per frame. A *frame* is a position::

    {"turn": 12, "food": [[x, y], ...], "hazards": [[x, y, layers], ...],
     "snakes": [{"body": [[x, y], ...], "health": 93, "latency": "12", "shout": "",
                 "death": null or {"cause": ..., "by": id, "turn": ...},
                 "next": null or {"move": "up", "inferred": false, "problem": "",
                                  "scores": {"up": 0.7, ...},
                                  "reasons": [{"rule", "vetoed", "scores", "note"}, ...],
                                  "line": {id: ["up", ...], ...}}}, ...]}

``next`` is the snake's move from this position, with the decision of the snake. ``problem`` is the
reason why the snake did not choose the move (``timeout``, ...), or empty. ``line`` contains the
moves that the snake expected of every snake. The frames list the snakes in the order of the game's
``snakes``. The game's ``snakes`` contain names, colors, and shapes of heads and tails (see
`battlesnake_gym.draw.customization`). A score that is not finite is null.
"""

from __future__ import annotations

import functools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.draw import customization
from battlesnake_gym.replays.replay import Replay, Turn
from battlesnake_gym.rules.state import Snake
from battlesnake_gym.snakes import Decision


def iter_frames(board: Board, turns: Iterable[Turn]) -> Iterator[str]:
    """Play ``turns`` on ``board``, and yield the frame of each position as JSON text."""
    for turn in turns:
        yield _dumps(frame(board, turn))
        turn.play(board)
    yield _dumps(frame(board))


def chunk_to_json(head: Mapping[str, Any], frames: Iterable[str]) -> str:
    """Return the JSON text of the object ``head`` with an additional key ``frames``."""
    return f'{_dumps(head)[:-1]}, "frames": [{", ".join(frames)}]}}'


_dumps = functools.partial(json.dumps, allow_nan=False)


def replay_header(replay: Replay) -> dict[str, Any]:
    """Return the header of a game with its eliminations (``deaths``) and the replay's ``info``."""
    return {
        **header(replay.first),
        "info": {key: str(value) for key, value in replay.info.items()},
        "deaths": [
            {"turn": turn, "id": snake_id, "cause": cause}
            for turn, snake_id, cause in replay.deaths()
        ],
    }


def header(board: Board) -> dict[str, Any]:
    """Return the properties of a game that all frames share.

    The seed is text, because a seed can exceed the largest exact integer of JavaScript.
    """
    return {
        "id": board.game.id,
        "ruleset": board.game.ruleset,
        "map": board.game.map,
        "seed": None if board.game.seed == UNKNOWN_SEED else str(board.game.seed),
        "timeout": board.game.timeout,
        "view_radius": board.game.settings.view_radius,
        "width": board.width,
        "height": board.height,
        "snakes": [
            {"id": snake.id, "name": snake.name or snake.id, **look}
            for snake, look in zip(board.snakes, customizations_to_dicts(board.snakes), strict=True)
        ],
    }


def position(board: Board) -> dict[str, Any]:
    """Return the header and the frame of a position."""
    return {**header(board), "frame": frame(board)}


def customizations_to_dicts(snakes: Sequence[Snake]) -> list[dict[str, Any]]:
    """Return the result of `customization_to_dict` for each snake of one game."""
    return [
        customization_to_dict({**snake.customizations, "color": color})
        for snake, color in zip(snakes, customization.assign_colors(snakes), strict=True)
    ]


def customization_to_dict(names: Mapping[str, str]) -> dict[str, Any]:
    """Return the color of a snake, and the shapes of its ``head`` and ``tail``.

    Args:
        names: Color of the snake, and names of the head and the tail.
    """
    return {
        "color": names["color"],
        "head": customization.parts_to_dicts(customization.head_parts(names.get("head", ""))),
        "tail": customization.parts_to_dicts(customization.tail_parts(names.get("tail", ""))),
    }


def frame(board: Board, following: Turn | None = None) -> dict[str, Any]:
    """Return the frame of a position.

    Args:
        board: Position.
        following: Turn played from the position, whose moves the frame includes; None for no moves.
    """
    depths = Counter(board.hazards)
    return {
        "turn": board.turn,
        "food": board.food,
        "hazards": [[x, y, depth] for (x, y), depth in depths.items() if board.inside((x, y))],
        "snakes": [_snake_to_dict(snake, following) for snake in board.snakes],
    }


def _snake_to_dict(snake: Snake, following: Turn | None) -> dict[str, Any]:
    """Convert a snake of a frame to a dict of JSON values."""
    death = {
        "cause": snake.eliminated_cause,
        "by": snake.eliminated_by,
        "turn": snake.eliminated_on,
    }
    return {
        "body": snake.body,
        "health": snake.health,
        "latency": snake.latency,
        "shout": snake.shout,
        "death": None if snake.alive else death,
        "next": _next_move_to_dict(snake, following),
    }


def _next_move_to_dict(snake: Snake, following: Turn | None) -> dict[str, Any] | None:
    """Convert a snake's next move to a dict, or return None if there is no move."""
    if following is None or snake.id not in following.moves:
        return None
    decision = following.decisions.get(snake.id) or Decision("")
    return {
        "move": following.moves[snake.id],
        "inferred": snake.id in following.inferred,
        "problem": following.problems.get(snake.id, ""),
        **decision_to_dict(decision),
    }


def decision_to_dict(decision: Decision) -> dict[str, Any]:
    """Return a decision as a dict with ``scores``, ``reasons`` and ``line``."""
    return {
        "scores": _finite_scores(decision.scores),
        "reasons": [
            {
                "rule": reason.rule,
                "vetoed": reason.vetoed,
                "scores": _finite_scores(reason.scores),
                "note": reason.note,
            }
            for reason in decision.reasons
        ],
        "line": decision.line,
    }


def _finite_scores(scores: Mapping[str, float]) -> dict[str, float | None]:
    """Replace scores that are not finite with None."""
    return {move: score if math.isfinite(score) else None for move, score in scores.items()}
