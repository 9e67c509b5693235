"""Replays recorded games of the reference engine and compares every position.

Run ``battlesnake-gym game conformance DIR``. Each game under DIR is played again from its seed and
moves, by the plain-Python rules, by the compiled engine, or by both. Compared are snakes (bodies,
health, causes, culprits, turns of elimination), food and hazards with their order, and whether the
game is over exactly at its end.

What the reference itself does not reproduce is not compared: the order of hazards and the first
food of games that say so, and which of several equally long snakes is the culprit where more than
12 play.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tqdm import tqdm

from battlesnake_gym import rules
from battlesnake_gym.boards import board_text
from battlesnake_gym.common.command_line import Parser, add_json, positive, write_json
from battlesnake_gym.engine import engine
from battlesnake_gym.records import recordings
from battlesnake_gym.records.recordings import Recording, RecordingError
from battlesnake_gym.rules import MOVES, Game, RulesError, State

SORTED_UNSTABLY = 12
"""With more snakes than this the reference may name any of several equally long culprits."""


class Rules(Protocol):
    """One game in play by one of the two implementations."""

    def start(self, recording: Recording) -> None:
        """Set the game up from its seed."""

    def load(self, recording: Recording, state: State) -> None:
        """Go on from this position."""

    def step(self, moves: dict[str, str]) -> None:
        """Play one turn; raises `RulesError` where the rules refuse it."""

    def state(self) -> State:
        """The present position."""

    def is_over(self) -> bool:
        """Whether the game has ended."""


class CannotHoldError(Exception):
    """A position that the engine refuses to hold; the message is its reason."""


class PythonRules:
    """The rules in plain Python."""

    game: Game
    _state: State

    def start(self, recording: Recording) -> None:
        """Set the game up from its seed."""
        self.game = recording.game
        self._state = rules.start(
            recording.game, recording.width, recording.height, recording.snake_ids
        )

    def load(self, recording: Recording, state: State) -> None:
        """Go on from this position."""
        self.game = recording.game
        self._state = copy.deepcopy(state)

    def step(self, moves: dict[str, str]) -> None:
        """Play one turn."""
        rules.step(self.game, self._state, moves)

    def state(self) -> State:
        """The present position."""
        return self._state

    def is_over(self) -> bool:
        """Whether the game has ended."""
        return rules.is_over(self.game, self._state)


class EngineRules:
    """The engine, as a batch of one game with the reference's food."""

    games: engine.Games
    recording: Recording

    def _make(self, recording: Recording) -> None:
        self.recording = recording
        try:
            self.games = engine.Games(
                1,
                width=recording.width,
                height=recording.height,
                num_snakes=len(recording.snake_ids),
                game=recording.game,
                food="seeded",
            )
        except ValueError as error:
            raise CannotHoldError(str(error)) from error

    def start(self, recording: Recording) -> None:
        """Set the game up from its seed."""
        self._make(recording)
        self.games.reset(np.array([recording.game.seed], dtype=np.int64))

    def load(self, recording: Recording, state: State) -> None:
        """Go on from this position; raises `CannotHoldError` where the engine refuses it."""
        self._make(recording)
        try:
            self.games.load(0, state, recording.game)
        except ValueError as error:
            raise CannotHoldError(str(error)) from error

    def step(self, moves: dict[str, str]) -> None:
        """Play one turn; raises `CannotHoldError` where only the engine refuses it."""
        answers = [moves.get(snake_id, "") for snake_id in self.recording.snake_ids]
        actions = [MOVES.index(answer) if answer in MOVES else engine.NO_MOVE for answer in answers]
        try:
            self.games.step(np.array([actions], dtype=np.uint8))
        except ValueError as error:
            game = self.recording.game
            if game.map:
                rules.MAPS[game.map].check_turn(game, self.state())
            raise CannotHoldError(str(error)) from error

    def state(self) -> State:
        """The present position, with the recording's snake ids."""
        state = self.games.state(0)
        ids = self.recording.snake_ids
        names = {snake.id: name for snake, name in zip(state.snakes, ids, strict=True)}
        for snake in state.snakes:
            snake.id = names[snake.id]
            snake.eliminated_by = names.get(snake.eliminated_by, snake.eliminated_by)
        return state

    def is_over(self) -> bool:
        """Whether the game has ended."""
        return bool(self.games.over[0])


RULES: dict[str, Callable[[], Rules]] = {"python": PythonRules, "engine": EngineRules}


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where the rules and a recording differ.

    ``details`` name what differs; the two positions are there where they can be compared.
    """

    where: str
    rules: str
    turn: int
    details: tuple[str, ...]
    game: Game
    recorded: State | None = None
    played: State | None = None

    def __str__(self) -> str:
        title = (
            f"{self.where} (ruleset {self.game.ruleset}, map {self.game.map or 'none'}, "
            f"seed {self.game.seed}): the {self.rules} rules differ at turn {self.turn}"
        )
        lines = [title, *(f"  {detail}" for detail in self.details)]
        if self.recorded and self.played:
            lines += ["", *self._side_by_side(self.recorded, self.played)]
        return "\n".join(lines)

    def _side_by_side(self, recorded: State, played: State) -> Iterator[str]:
        left = ["recorded", *board_text.write(self.game, recorded, None).splitlines()]
        right = [f"{self.rules} rules", *board_text.write(self.game, played, None).splitlines()]
        width = min(max(map(len, left)), 90)
        for a, b in zip_longest(left, right, fillvalue=""):
            yield f"  {a:<{width}} | {b}".rstrip()


@dataclass(frozen=True, slots=True)
class Agreement:
    """What the replay of one game by one form of the rules gave.

    ``refused`` is why the engine could not hold it; the Python rules have replayed it then.
    """

    rules: str
    map: str
    ruleset: str
    transitions: int
    difference: Difference | None = None
    refused: str = ""


@dataclass(slots=True)
class Comparison:
    """Compares the positions of one game; remembers which ties of culprits it let pass."""

    recording: Recording
    tied: dict[str, str] = field(default_factory=dict)

    def details(self, recorded: State, played: State, *, with_food: bool = True) -> list[str]:
        """What differs, in words; empty where nothing does."""
        found = [] if recorded.turn == played.turn else [f"turn: {recorded.turn}, {played.turn}"]
        if len(recorded.snakes) != len(played.snakes):
            found.append(f"snakes: {len(recorded.snakes)} recorded, {len(played.snakes)} played")
        for want, got in zip(recorded.snakes, played.snakes, strict=False):
            found += [
                differs(f"{want.id} {name}", want, got, name)
                for name in ("id", "body", "health", "eliminated_cause", "eliminated_on")
                if getattr(want, name) != getattr(got, name)
            ]
            if want.eliminated_by != got.eliminated_by and not self._is_tie(
                recorded, want.id, want.eliminated_by, got.eliminated_by
            ):
                found.append(differs(f"{want.id} eliminated_by", want, got, "eliminated_by"))
        if with_food and recorded.food != played.food:
            found.append(differs("food", recorded, played, "food"))
        if self.recording.hazard_order_exact:
            same = recorded.hazards == played.hazards
        else:
            same = Counter(recorded.hazards) == Counter(played.hazards)
        if not same:
            found.append(differs("hazards", recorded, played, "hazards"))
        return found

    def _is_tie(self, recorded: State, victim: str, want: str, got: str) -> bool:
        """Whether the reference's unstable sort could have named this culprit as well.

        Lengths are those at the turn of the elimination, so the answer is kept for later turns.
        """
        if len(recorded.snakes) <= SORTED_UNSTABLY or not want or not got:
            return False
        if victim not in self.tied:
            lengths = {snake.id: snake.length for snake in recorded.snakes}
            # A constrictor has grown since, unless it ate.
            slack = 1 if "constrictor" in self.recording.game.ruleset else 0
            if got not in lengths or abs(lengths[want] - lengths[got]) > slack:
                return False
            self.tied[victim] = got
        return self.tied[victim] == got


def differs(label: str, recorded: object, played: object, name: str) -> str:
    """One differing field in words; of long lists only the first different entries."""
    want, got = getattr(recorded, name), getattr(played, name)
    if not isinstance(want, list):
        return f"{label}: recorded {want!r}, played {got!r}"
    pairs = zip_longest(want, got)
    index = next(i for i, (a, b) in enumerate(pairs) if a != b)
    here = slice(index, index + 5)
    return (
        f"{label}: {len(want)} recorded, {len(got)} played, different from entry {index}: "
        f"recorded {want[here]}, played {got[here]}"
    )


def replay(recording: Recording, where: str, rules_name: str, referee: Rules) -> Agreement:
    """Play one recorded game again, up to the first difference.

    Raises `CannotHoldError` where the rules are the engine's and it refuses the game.
    """
    transitions = 0

    def outcome(turn: int, details: Sequence[str], *states: State) -> Agreement:
        difference = (
            Difference(where, rules_name, turn, tuple(details), recording.game, *states)
            if details
            else None
        )
        game = recording.game
        return Agreement(rules_name, game.map, game.ruleset, transitions, difference)

    compare = Comparison(recording)
    first = recording.frames[0].state
    turn = first.turn
    try:
        if recording.game.map:
            referee.start(recording)
            details = compare.details(first, referee.state(), with_food=recording.setup_exact)
            if details:
                return outcome(turn, details, first, referee.state())
        if not recording.setup_exact:
            referee.load(recording, first)
        for frame in recording.frames[1:]:
            if referee.is_over():
                return outcome(turn, ["the game is over, but the recording goes on"])
            turn = frame.state.turn
            referee.step(frame.moves)
            transitions += 1
            played = referee.state()
            details = compare.details(frame.state, played)
            if details:
                return outcome(turn, details, frame.state, played)
    except RulesError as error:
        return outcome(turn, [f"the rules refuse to go on: {error}"])
    return outcome(turn, list(end_details(recording, referee)))


def end_details(recording: Recording, referee: Rules) -> Iterator[str]:
    """What differs at the end of a game whose positions all agree."""
    state = referee.state()
    alive = tuple(snake.id for snake in state.snakes if snake.alive)
    if alive != recording.alive:
        yield f"survivors: recorded {recording.alive}, played {alive}"
    over = referee.is_over()
    if recording.reason == "over" and not over:
        yield "the recorded game is over, but the rules go on"
    # At the cap the recorder stops without looking whether the game has ended as well.
    at_cap = recording.reason == "cap" and recording.turns == recording.max_turns
    if recording.reason != "over" and over and not at_cap:
        yield f"the game is over, but the recording ends for another reason: {recording.reason}"
    if recording.reason == "panic":
        try:
            referee.step(dict.fromkeys(alive, "up"))
        except RulesError:
            return
        yield "the reference crashes on the next turn, but the rules play it"


def check_game(lines: Sequence[str], where: str, rules_names: Sequence[str]) -> list[Agreement]:
    """Replay one game by each form of the rules; what the engine cannot hold, Python replays."""
    recording = recordings.parse(lines, where)
    where = f"{where}: {recording.id}"
    outcomes = []
    for name in rules_names:
        try:
            outcomes.append(replay(recording, where, name, RULES[name]()))
        except CannotHoldError as error:
            instead = replay(recording, where, "python", PythonRules())
            outcomes.append(
                Agreement(
                    name,
                    instead.map,
                    instead.ruleset,
                    instead.transitions,
                    instead.difference,
                    refused=str(error),
                )
            )
    return outcomes


Task = tuple[list[str], str, Sequence[str]]


def _check_task(task: Task) -> list[Agreement]:
    return check_game(*task)


def check_folder(
    folder: Path, rules_names: Sequence[str], jobs: int = 1, progress: bool = False
) -> list[Agreement]:
    """Replay all recorded games under ``folder``, in ``jobs`` processes.

    Raises `RecordingError` where there are none or a file holds something else.
    """
    tasks: list[Task] = [
        (lines, str(path.relative_to(folder)), rules_names)
        for path in recordings.find_files(folder)
        for lines in recordings.read_lines(path)
    ]
    if not tasks:
        raise RecordingError(
            f"{folder} holds no recorded games (files named *.jsonl or *.jsonl.gz)"
        )
    bar = tqdm(total=len(tasks), unit="game", desc="replaying", disable=None if progress else True)
    outcomes: list[Agreement] = []
    with bar:
        for found in _run(tasks, jobs):
            outcomes += found
            bar.update()
    return outcomes


def _run(tasks: list[Task], jobs: int) -> Iterator[list[Agreement]]:
    if jobs == 1:
        yield from map(_check_task, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(_check_task, tasks, chunksize=4)


def summary(outcomes: Iterable[Agreement]) -> str:
    """Games and transitions by map and ruleset, refusals, and the first difference."""
    by_rules: dict[str, list[Agreement]] = {}
    for outcome in outcomes:
        by_rules.setdefault(outcome.rules, []).append(outcome)
    return "\n\n".join(_summary_of(name, found) for name, found in by_rules.items()) + "\n"


def to_json(outcomes: Iterable[Agreement]) -> list[dict[str, Any]]:
    """Each game by each form of the rules, as ``--json`` prints it."""
    return [
        {
            "rules": outcome.rules,
            "map": outcome.map,
            "ruleset": outcome.ruleset,
            "transitions": outcome.transitions,
            "refused": outcome.refused,
            "difference": str(outcome.difference) if outcome.difference else None,
        }
        for outcome in outcomes
    ]


def _summary_of(name: str, outcomes: list[Agreement]) -> str:
    lines = [f"{name} rules: games/transitions by map and ruleset", *_table(outcomes)]
    refused = Counter(
        re.sub(r"\d+", "N", outcome.refused) for outcome in outcomes if outcome.refused
    )
    if refused:
        lines.append(f"{refused.total()} games refused by the engine, replayed in Python instead:")
        lines += [f"  {count:5} {reason}" for reason, count in refused.most_common()]
    differences = [outcome.difference for outcome in outcomes if outcome.difference]
    lines.append(f"{len(differences)} games differ.")
    if differences:
        lines += ["First difference:", str(differences[0])]
    if len(differences) > 1:
        lines.append("Further games that differ:")
        lines += [f"  {found.where} at turn {found.turn}" for found in differences[1:]]
    return "\n".join(lines)


def _table(outcomes: list[Agreement]) -> list[str]:
    """Games and transitions, one line a map and ruleset, and of all."""
    games, transitions = Counter[str](), Counter[str]()
    for outcome in outcomes:
        for played in (f"{outcome.map or '(no map)'}, {outcome.ruleset}", "together"):
            games[played] += 1
            transitions[played] += outcome.transitions
    names = [*sorted(set(games) - {"together"}), "together"]
    return [f"  {games[name]}/{transitions[name]}  {name}" for name in names]


def parser() -> Parser:
    """The command's options."""
    parser = Parser(
        prog="battlesnake-gym game conformance",
        description="Replay recorded games of the reference engine and compare every position.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of the recorded games")
    parser.add_argument(
        "--rules",
        choices=[*RULES, "both"],
        default="both",
        help="the plain-Python rules, the engine, or both",
    )
    parser.add_argument(
        "--jobs",
        type=positive,
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of processes (default: one for each core, %(default)s)",
    )
    add_json(parser)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run the program; 0 if all games agree, 1 if any differs, 2 for a wrong call."""
    options = parser()
    arguments = options.parse_args(argv)
    if not arguments.folder.is_dir():
        options.error(f"DIR must be a folder, got {str(arguments.folder)!r}")
    rules_names = list(RULES) if arguments.rules == "both" else [arguments.rules]
    if "engine" in rules_names and not engine.COMPILED:
        options.error(
            f"--rules {arguments.rules} needs the compiled engine, which was not built: "
            "install the package again with a C compiler, or choose --rules python"
        )
    try:
        outcomes = check_folder(arguments.folder, rules_names, arguments.jobs, progress=True)
    except RecordingError as error:
        options.error(str(error))
    if arguments.json:
        write_json(to_json(outcomes))
    else:
        sys.stdout.write(summary(outcomes))
    return int(any(outcome.difference for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
