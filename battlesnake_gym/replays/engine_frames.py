"""Parser of games in the frame format that engines send to board viewers.

The format has one frame per turn. A frame lists the snakes, the food and the hazards, but no moves.
Eliminated snakes are missing, or have the field ``Death`` and their last body. Moves are inferred
as for files of the official CLI (`replays.official_format`). Keys are converted to lower case,
because some engines write ``Frames`` and some write ``frames``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from battlesnake_gym.boards import board_json, json_fields
from battlesnake_gym.boards.board import UNKNOWN_SEED, Board
from battlesnake_gym.boards.json_fields import BoardError
from battlesnake_gym.boards.limited_view import VIEW_RADIUS_KEY
from battlesnake_gym.replays import limits, official_format, rule_inference
from battlesnake_gym.replays.json_lines import at_line
from battlesnake_gym.rules.state import MAX_HEALTH, START_LENGTH, Point, Snake, State


@dataclass(slots=True)
class EngineFrames:
    """Parsed frames of one game, which comply with `replays.limits`.

    The method `add` parses the next frame.

    The list ``positions`` contains only the living snakes of each frame. ``name`` is the game's
    name in error messages.
    """

    name: str
    width: int
    height: int
    positions: list[State] = field(default_factory=list)
    last_heads: dict[str, Point] = field(default_factory=dict)
    """Heads of eliminated snakes."""
    _responses: list[dict[str, tuple[str, str]]] = field(default_factory=list)
    _meter: limits.SizeMeter = field(default_factory=limits.SizeMeter)

    @classmethod
    def from_blackout(cls, content: Mapping[str, Any], name: str) -> EngineFrames:
        """Parse a replay ``{"moves": [frame, ...]}`` of the site of Battlesnake Blackout.

        Args:
            content: Response to ``GET /api/replay/ID``; each frame contains the size of the board.
            name: Name of the file, for error messages.

        Raises:
            ReplayError: If a frame cannot be read; the message contains the index of the frame.
        """
        with at_line(name, 1):
            moves = json_fields.items(content, "moves", "")
            first = json_fields.mapping(moves[0] if moves else {}, "moves[0]")
            frames = cls(name, *limits.read_size(first, "moves[0]"))
        for number, move in enumerate(moves, 1):
            with at_line(name, number):
                frame = json_fields.mapping(move, "moves[]")
                snakes = json_fields.objects(frame, "snakes", "moves[]")
                stacked = [_stack_segments(*found) for found in snakes]
            frames.add({**frame, "snakes": stacked})
        return frames

    def add(self, value: object) -> None:
        """Parse the next frame.

        Raises:
            ReplayError: If the frame cannot be read; the message contains the index of the frame.
        """
        with at_line(self.name, len(self.positions) + 1):
            frame = json_fields.mapping(value, "frame")
            snakes = json_fields.objects(frame, "snakes", "")
            position = self._parse_position(frame, snakes)
            self._meter.count(position)
            self.positions.append(position)
            responses = {}
            for snake, path in snakes:
                name = str(snake.get("id"))
                responses[name] = _get_text(snake, "latency"), _get_text(snake, "shout")
                if _is_eliminated(snake) and (body := json_fields.points(snake, "body", path)):
                    self.last_heads.setdefault(name, body[0])
            self._responses.append(responses)

    def _parse_position(
        self, frame: Mapping[str, Any], snakes: list[tuple[Mapping[str, Any], str]]
    ) -> State:
        state = State(
            turn=json_fields.bounded_integer(frame, "turn", "", 0, limits.MAX_NUMBER),
            width=self.width,
            height=self.height,
            snakes=[_parse_snake(*found) for found in snakes if not _is_eliminated(found[0])],
            food=json_fields.points(frame, "food", ""),
            hazards=json_fields.points(frame, "hazards", ""),
        )
        if self.positions and state.turn != self.positions[-1].turn + 1:
            raise BoardError(f"turn must be {self.positions[-1].turn + 1}, got {state.turn}")
        bodies = (snake.body for snake in state.snakes)
        for cell in itertools.chain(state.food, state.hazards, *bodies):
            if max(map(abs, cell)) > limits.MAX_COORDINATE:
                raise BoardError(
                    f"the cell {cell} is more than {limits.MAX_COORDINATE} cells off the board"
                )
        return state

    def first_board(self, sent: Mapping[str, Any] | None) -> Board:
        """Return the first position with the rules of the game.

        Args:
            sent: The ``game`` object that the engine sent; if None, the rules are inferred from the
                frames (`replays.rule_inference`).

        Raises:
            ReplayError: If the frames do not determine the rules, or contradict ``sent``.
        """
        with at_line(self.name, 1):
            if not self.positions:
                raise BoardError("the game has no frames")
            found = rule_inference.RuleEvidence.collect(self.positions)
            head = sent if sent is not None else found.infer_game(self.positions)
            solo = len(self.positions[0].snakes) < 2
            named = {**head, "id": head.get("id") or self.name}
            game = board_json.parse_game(named, UNKNOWN_SEED, solo)
            found.check_game(game)
            settings = game.settings.to_dict()
            for key in settings:
                limits.read_number(settings, key, "game.ruleset.settings")
        if game.map == "snail_mode":
            self.positions = list(rule_inference.add_pending_trails(self.positions))
        return Board.from_state(self.positions[0], game)

    def turns(self, timeout: int) -> Iterator[tuple[State, dict[str, dict[str, Any]]]]:
        """Yield the later positions, each with keyword arguments of `Replay.append_frame`.

        Args:
            timeout: Response timeout in milliseconds. A move is late if its latency is the text
                ``timeout``, or at least this number.
        """
        steps = zip(itertools.pairwise(self.positions), self._responses[1:], strict=True)
        for (before, frame), responses in steps:
            played = {s.id: responses[s.id] for s in before.snakes if s.id in responses}
            texts = {snake_id: latency for snake_id, (latency, _) in played.items()}
            known = official_format.parse_latencies_ms(texts)
            late = [snake_id for snake_id, latency in texts.items()
                    if latency == "timeout" or known.get(snake_id, 0) >= timeout]  # fmt: skip
            yield (
                frame,
                {
                    "latency": known,
                    "shouts": {snake_id: shout for snake_id, (_, shout) in played.items() if shout},
                    "problems": dict.fromkeys(late, "timeout"),
                },
            )


def parse_description(
    response: Mapping[str, Any], name: str
) -> tuple[str, EngineFrames, dict[str, Any] | None]:
    """Parse the response to ``GET /games/ID``.

    Returns:
        The status, an `EngineFrames` without frames, and the ``game`` object of the API. The object
        is None if the engine does not send the rules.
    """
    with at_line(name, 0):
        sent = json_fields.child(response, "game", "")
        status = json_fields.string(sent, "status", "game", "")
        return status, EngineFrames(name, *limits.read_size(sent, "game")), _parse_rules(sent)


BLACKOUT_GAME = rule_inference.build_game_object("standard", "", view_radius=5)
"""The ``game`` object of the competition Battlesnake Blackout, whose replays lack the rules."""


def _stack_segments(snake: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return a snake with the stacked segments at its tail, which the site may list once."""
    body = list(json_fields.items(snake, "body", path))
    has_eaten = snake.get("health") == MAX_HEALTH and len(body) >= START_LENGTH
    missing = max(START_LENGTH - len(body), int(has_eaten and body[-1] != body[-2]))
    return {**snake, "body": body + body[-1:] * missing}


def _parse_rules(sent: Mapping[str, Any]) -> dict[str, Any] | None:
    """Convert the game description of an engine to the ``game`` object of the API.

    Engines send the settings as text.
    """
    ruleset = json_fields.child(sent, "ruleset", "game")
    played = ruleset.get("name") or sent.get("rulesetname")
    if not played:
        return None
    keys = ("foodSpawnChance", "minimumFood", "hazardDamagePerTurn", "shrinkEveryNTurns")
    numbers = {
        key: int(ruleset[key.lower()])
        for key in (*keys, VIEW_RADIUS_KEY)
        if str(ruleset.get(key.lower(), "")).lstrip("-").isdecimal()
    }
    settings: dict[str, Any] = {k: v for k, v in numbers.items() if k != "shrinkEveryNTurns"}
    if "shrinkEveryNTurns" in numbers:
        settings["royale"] = {"shrinkEveryNTurns": numbers["shrinkEveryNTurns"]}
    return {
        "id": json_fields.string(sent, "id", "game", ""),
        "ruleset": {"name": played, "settings": settings},
        "map": ruleset.get("map") or sent.get("map") or "standard",
        "timeout": json_fields.integer(sent, "snaketimeout", "game", 500),
        "source": json_fields.string(sent, "source", "game", ""),
    }


def _parse_snake(value: Mapping[str, Any], path: str) -> Snake:
    customizations = {"color": "color", "head": "headtype", "tail": "tailtype"}
    snake = Snake(
        id=json_fields.string(value, "id", path),
        body=json_fields.points(value, "body", path),
        health=limits.read_number(value, "health", path),
        name=json_fields.string(value, "name", path, ""),
        latency=_get_text(value, "latency"),
        shout=_get_text(value, "shout"),
        customizations={
            k: str(value[theirs]) for k, theirs in customizations.items() if value.get(theirs)
        },
    )
    if not snake.body:
        raise BoardError(f"{path}.body of {snake.id!r} is empty")
    return snake


def _is_eliminated(snake: Mapping[str, Any]) -> bool:
    return bool(snake.get("death") or snake.get("eliminatedcause"))


def _get_text(value: Mapping[str, Any], key: str) -> str:
    return str(value.get(key) or "")
