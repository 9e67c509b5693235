"""Scenarios: positions with their good moves, for testing a snake.

A text file contains one or more scenarios. Each scenario starts with its name::

    scenario: longer head
    note: B is longer and can enter the cell between the heads.
    allowed: up down
    . . . . . . .
    > > A . B < <
    . . . . . . ^

``allowed`` lists the moves that pass. The board below these lines has the format of
`boards.board_text`. The snake marked ``you`` is the snake to move. Without this mark, the first
snake is the snake to move. A JSON file contains an object, or a list of objects. The keys of an
object are ``name``, ``note``, ``allowed`` (a list of moves) and ``board`` (the body of a ``/move``
request).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.untrusted_text import parse_json, read_text, replace_unsafe
from battlesnake_gym.rules.state import MOVES
from battlesnake_gym.snakes import Decision, Strategy, to_decision

BUILTIN_SCENARIOS = sorted((Path(__file__).parent / "scenario_files").glob("*.txt"))
"""Paths of the built-in scenario files.

Every careful snake should pass these scenarios.
"""

_HEADER_KEYS = ("scenario", "note", "allowed")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A position with a snake to move, and the good moves of this snake.

    ``note`` explains the good moves.
    """

    name: str
    board: Board
    allowed: tuple[str, ...]
    note: str = ""

    def __post_init__(self) -> None:
        unknown = set(self.allowed) - set(MOVES)
        if unknown or not self.allowed:
            got = ", ".join(self.allowed) or "none"
            raise ValueError(
                f"{self.name}: allowed must list some of {', '.join(MOVES)}, got {got}"
            )
        if self.board.you_id is None or not self.board.you.alive:
            raise ValueError(f"{self.name}: board.you must be a living snake; mark one with you")

    def run(self, strategy: Strategy) -> ScenarioResult:
        """Return the decision of a strategy. The time budget is the timeout of the game."""
        decision = strategy(self.board.copy().limited(), self.board.game.timeout / 1000)
        return ScenarioResult(self, to_decision(decision))

    def to_text(self) -> str:
        """Format the scenario as text, from which `from_text` restores an equal scenario."""
        name, text = (" ".join(text.splitlines()) for text in (self.name, self.note))
        note = [f"note: {text}"] if text else []
        head = [f"scenario: {name}", *note, f"allowed: {' '.join(self.allowed)}"]
        return "\n".join([*head, str(self.board)]) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Convert the scenario to a JSON object.

        The board has the format of a ``/move`` request.
        """
        board = self.board.to_api()
        return {"name": self.name, "note": self.note, "allowed": list(self.allowed), "board": board}


@dataclass(frozen=True, slots=True)
class ScenarioResult:
    """The decision of a strategy in a scenario."""

    scenario: Scenario
    decision: Decision

    @property
    def passed(self) -> bool:
        """Whether the chosen move is one of the allowed moves."""
        return self.decision.move in self.scenario.allowed


def load(path: str | os.PathLike[str]) -> list[Scenario]:
    """Load the scenarios of a file.

    Files with the suffix ``.json`` contain JSON. All other files contain text.

    Raises:
        ValueError: If a scenario is invalid.
        OSError: If the file cannot be read.
    """
    file = Path(path)
    is_json = file.suffix == ".json"
    text = read_text(file)
    if is_json and not text.strip():
        text = "[]"
    try:
        found = from_json(parse_json(text)) if is_json else from_text(replace_unsafe(text))
    except (ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{file}: {error}") from error
    if not found:
        remedy = "add an object" if is_json else "start one with 'scenario: NAME'"
        raise ValueError(f"{file}: no scenario in the file; {remedy}")
    return found


def save(path: str | os.PathLike[str], scenarios: Iterable[Scenario]) -> None:
    """Write scenarios to a file.

    Files with the suffix ``.json`` contain JSON. All other files contain text.
    """
    if Path(path).suffix == ".json":
        text = json.dumps([scenario.to_dict() for scenario in scenarios], indent=2) + "\n"
    else:
        text = replace_unsafe("\n".join(scenario.to_text() for scenario in scenarios))
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def from_text(text: str) -> list[Scenario]:
    """Parse the scenarios in the text of a scenario file.

    Raises:
        ValueError: If a scenario is invalid.
    """
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("scenario:"):
            blocks.append([])
        if blocks:
            blocks[-1].append(line)
        elif line.strip():
            raise ValueError(f"a file must start with 'scenario: NAME', got {line.strip()!r:.60}")
    return [_parse_text_block(block) for block in blocks]


def from_json(value: object) -> list[Scenario]:
    """Convert a decoded JSON object, or a list of objects, to scenarios.

    Raises:
        ValueError: If a scenario is invalid.
    """
    return [_parse_json_object(item) for item in (value if isinstance(value, list) else [value])]


def _parse_text_block(lines: list[str]) -> Scenario:
    """Parse the lines of one scenario in a text file."""
    facts: dict[str, str] = {}
    picture = []
    for line in lines:
        key, colon, rest = line.partition(":")
        if colon and key in _HEADER_KEYS:
            facts[key] = rest.strip()
        else:
            picture.append(line)
    name = facts["scenario"]
    try:
        board = Board.from_text("\n".join(picture))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    if board.you_id is None and board.snakes:
        board.you_id = board.snakes[0].id
    allowed = tuple(facts.get("allowed", "").split())
    return Scenario(name, board, allowed, facts.get("note", ""))


def _parse_json_object(value: object) -> Scenario:
    """Convert a decoded JSON object to a scenario."""
    if not isinstance(value, Mapping):
        raise ValueError(f"a scenario must be a JSON object, got {type(value).__name__}")
    name = str(value.get("name", "unnamed"))
    allowed = value.get("allowed")
    if not isinstance(allowed, list) or not all(isinstance(move, str) for move in allowed):
        raise ValueError(f"{name}: allowed must be a list of moves, got {allowed!r}")
    try:
        board = Board.from_api(value.get("board", {}))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    return Scenario(name, board, tuple(allowed), str(value.get("note", "")))
