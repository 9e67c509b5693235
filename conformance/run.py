"""Play recorded games of the official engine with other engines.

The script compares the positions. ``run.py battlesnake_c "mine=./my-engine --lines"`` prints the
number of agreeing games by ruleset and map, and the games per second. ``--mutants`` plays engines
with one broken rule each. ``--views`` compares the views of snakes with a view radius. README.md
describes the protocol.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import shlex
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, pairwise, zip_longest
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
Json = dict[str, Any]

_MAX_STABLE_SORT_SNAKES = 12
"""Maximum number of snakes that the official engine sorts in a stable order.

With more snakes, the engine may name any killer of equal length.
"""

_SNAKE_FIELDS = ("b", "hp", "x", "by", "on")
_RULE_BY_FIELD = {
    "t": "clock (RULES.md 2)",
    "b": "move, feed or grow (RULES.md 3)",
    "hp": "starve, hazard or feed (RULES.md 3)",
    "x": "eliminate (RULES.md 3)",
    "by": "eliminate, culprit (RULES.md 3)",
    "on": "eliminate, turn (RULES.md 3)",
    "f": "food (RULES.md 6)",
    "hz": "hazards (RULES.md 3, shrink, and 6)",
    "over": "over? (RULES.md 3)",
}
"""Description of the rule that determines each field."""


class _EngineFailedError(Exception):
    """Error for an engine that exited, timed out or sent an invalid response."""


class _RejectedError(Exception):
    """Error for a response that rejects the game or reports that the game cannot continue."""

    def __init__(self, response: Json) -> None:
        self.response = response


@dataclass(frozen=True)
class Recording:
    """A recorded game: the header, the positions with moves, and the end line."""

    file: str
    header: Json
    frames: list[Json]
    end: Json


def iter_recordings(path: Path) -> Iterator[Recording]:
    """Yield the recorded games of a file.

    A position without hazards receives the hazards of the previous position.

    Raises:
        ValueError: If the file is not in the format of README.md; the message names the file.
    """
    lines: list[Json] = []
    openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
    try:
        with openers.get(path.suffix, open)(path, "rt", encoding="utf-8") as file:
            for line in file:
                lines.append(json.loads(line))
                if lines[-1]["k"] == "end":
                    header, *frames, end = lines
                    hazards = frames[0]["hz"]
                    for frame in frames:
                        hazards = frame.setdefault("hz", hazards)
                    if header["format"] != 1 or end["t"] != frames[-1]["t"]:
                        raise ValueError(f"format {header['format']}, end at {end['t']}")
                    yield Recording(path.name, header, frames, end)
                    lines = []
        if lines:
            raise ValueError("the last game has no end line")
    except (OSError, EOFError, ValueError, KeyError, IndexError, TypeError) as error:
        raise ValueError(f"{path} has no recorded games: {error!r}") from error


class Engine:
    """An engine in a separate process.

    Each request and each response is one line.
    """

    def __init__(self, name: str, command: list[str], timeout_s: float) -> None:
        self.name, self.command, self.timeout_s = name, command, timeout_s
        self.start()

    def start(self) -> None:
        """Start a new process and request the name of the engine."""
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, text=True)
        try:
            hello = self.request({"hello": 1})
            self.title, self.lacks = str(hello["engine"]), frozenset(hello.get("lacks", ()))
        except (_EngineFailedError, KeyError):
            self.stop()
            raise

    def request(self, message: Json) -> Json:
        """Send a request to the engine and return the response.

        Raises:
            _EngineFailedError: If there is no valid response.
        """
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        timer = threading.Timer(self.timeout_s, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
            response = json.loads(self.process.stdout.readline())
        except (OSError, ValueError) as error:
            problem = f"no response to {json.dumps(message)[:80]}: {error}"
            raise _EngineFailedError(problem) from error
        finally:
            timer.cancel()
        if not isinstance(response, dict):
            raise _EngineFailedError(f"a response must be an object, got {response!r:.80}")
        return response

    def stop(self) -> None:
        """Kill the process of the engine."""
        self.process.kill()
        self.process.communicate()


@dataclass(frozen=True)
class _Outcome:
    """Result of one game, with the turn and the rule of the first difference.

    ``verdict`` is "agrees", "differs" or "refused".
    """

    verdict: str
    recording: Recording
    turns: int = 0
    turn: int = 0
    rule: str = ""
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        header = self.recording.header
        where = (
            f"{self.recording.file}: {header['id']} (ruleset {header['ruleset']}, "
            f"map {header['map'] or 'none'}, seed {header['seed']})"
        )
        return "\n  ".join([f"{where}: turn {self.turn}, rule: {self.rule}", *self.details])


@dataclass
class _Comparison:
    """Comparison of recorded and played positions of one game.

    ``tied`` maps an eliminated snake to the killer that the comparison accepted as a tie.
    """

    header: Json
    lacks: frozenset[str] = frozenset()
    tied: dict[str, str] = field(default_factory=dict)

    def find_differences(self, want: Json, got: Json, without: str = "") -> list[tuple[str, str]]:
        """List the differing fields, each with a description of the difference.

        Args:
            want: Recorded position.
            got: Position returned by the engine.
            without: Field that is not compared.
        """
        found = []
        lacks = self.lacks | {without}
        if "t" not in lacks and want["t"] != got.get("t"):
            found.append(("t", f"turn: recorded {want['t']}, played {got.get('t')}"))
        played = got.get("s") or []
        if len(want["s"]) != len(played):
            found.append(("b", f"snakes: recorded {len(want['s'])}, played {len(played)}"))
        for name, one, other in zip(self.header["snakes"], want["s"], played, strict=False):
            if other is None or ("x" in one and "dead" in lacks):
                if ("x" in one) != (other is None or "x" in other):
                    found.append(("x", f"{name}: alive on one side only"))
                continue
            for key in _SNAKE_FIELDS:
                recorded, got_value = one.get(key), other.get(key)
                if key in lacks or recorded == got_value:
                    continue
                if not self._is_tie(want, name, key, one, other):
                    text = _describe_difference(f"{name} {key}", recorded, got_value)
                    found.append((key, text))
        ended = all(one is None for one in played)
        for key in {"f", "hz"} - lacks:
            if ended and got.get(key, []) is None:
                continue  # Some engines stop updating a board without living snakes.
            one, other = want[key], got.get(key) or []
            if key == "hz" and not self.header["hazardOrderExact"]:
                one, other = sorted(parse_cells(one)), sorted(parse_cells(other))
            if one != other:
                found.append((key, _describe_difference(key, one, other)))
        return found

    def _is_tie(self, want: Json, victim: str, key: str, one: Json, other: Json) -> bool:
        """Return whether the official engine might have named the killer in ``other``.

        The official engine sorts snakes of equal length in an arbitrary order. The method compares
        the lengths on the turn of the elimination and stores the result for later turns.
        """
        by, instead = one.get("by"), other.get("by")
        if key != "by" or len(want["s"]) <= _MAX_STABLE_SORT_SNAKES or not by or not instead:
            return False
        if victim not in self.tied:
            names = zip(self.header["snakes"], want["s"], strict=True)
            lengths = {name: len(snake["b"]) // 2 for name, snake in names}
            # In constrictor games, a snake has grown since the elimination unless the snake ate.
            slack = 1 if "constrictor" in self.header["ruleset"] else 0
            if instead not in lengths or abs(lengths[by] - lengths[instead]) > slack:
                return False
            self.tied[victim] = instead
        return bool(self.tied[victim] == instead)


def parse_cells(flat: list[int]) -> list[tuple[int, int]]:
    """Convert a flat list ``x0, y0, x1, y1, ...`` to cells."""
    return list(zip(flat[::2], flat[1::2], strict=True))


def _describe_difference(label: str, want: object, got: object) -> str:
    """Describe the difference between the recorded and the played value of a field.

    For long lists, the description contains only the first differing entries.
    """
    if not isinstance(want, list) or not isinstance(got, list):
        return f"{label}: recorded {want!r}, played {got!r}"
    at = next(i for i, (a, b) in enumerate(zip_longest(want, got)) if a != b)
    return (
        f"{label}: {len(want)} recorded, {len(got)} played, different from entry {at}: "
        f"recorded {want[at : at + 6]}, played {got[at : at + 6]}"
    )


def _play_recording(engine: Engine, recording: Recording) -> _Outcome:
    """Play one recorded game with an engine up to the first difference."""
    header, frames, end = recording.header, recording.frames, recording.end
    compare, lacks = _Comparison(header, engine.lacks), engine.lacks
    reload_each_turn = bool({"f", "hz"} & lacks)
    turns, turn = 0, frames[0]["t"]

    def make_outcome(verdict: str, rule: str = "", *details: str) -> _Outcome:
        """Create the outcome of this game on the current turn."""
        return _Outcome(verdict, recording, turns, turn, rule, details)

    def request_position(message: Json) -> Json:
        """Send a request and return the position in the response."""
        response = engine.request(message)
        if {"refused", "error"} & set(response):
            raise _RejectedError(response)
        return response

    got: Json = {}
    try:
        if header["map"] and not reload_each_turn and "start" not in lacks:
            got = request_position({"start": header})
            found = compare.find_differences(frames[0], got, "" if header["setupExact"] else "f")
            if found:
                return make_outcome("differs", "setup (RULES.md 6)", *(text for _, text in found))
        if not got or not header["setupExact"]:
            got = request_position({"load": header, "state": frames[0]})
        for before, frame in pairwise(frames):
            is_later = before is not frames[0]
            if is_later and not reload_each_turn and "over" not in lacks and got["over"]:
                problem = "over, but the recording continues"
                return make_outcome("differs", _RULE_BY_FIELD["over"], problem)
            turn = frame["t"]
            if is_later and reload_each_turn:
                request_position({"load": header, "state": before})
            got = request_position({"step": frame["m"]})
            turns += 1
            if found := compare.find_differences(frame, got):
                texts = (text for _, text in found)
                return make_outcome("differs", _RULE_BY_FIELD[found[0][0]], *texts)
    except _RejectedError as error:
        if "refused" in error.response:
            return make_outcome("refused", "refused", str(error.response["refused"]))
        problem = f"the engine cannot continue: {error.response['error']}"
        return make_outcome("differs", "none", problem)
    if "over" in lacks:
        return make_outcome("agrees")
    # At the turn limit, the recorder stops without a check whether the game is over.
    at_cap = end["reason"] == "cap" and turn - frames[0]["t"] == header["maxTurns"]
    if got["over"] != (end["reason"] == "over") and not (at_cap and got["over"]):
        problem = f"the recording ends because of {end['reason']!r}, over is {got['over']}"
        return make_outcome("differs", _RULE_BY_FIELD["over"], problem)
    crash = end["reason"] == "panic" and not reload_each_turn
    if crash and "error" not in engine.request({"step": frame["m"]}):
        problem = "the official engine crashes on the next turn, this engine does not"
        return make_outcome("differs", "none", problem)
    return make_outcome("agrees")


def _play_recordings(engine: Engine, games: Iterator[Recording]) -> Iterator[_Outcome]:
    """Play every recorded game with one engine.

    A failure of the engine counts as a difference and restarts the engine.
    """
    for recording in games:
        try:
            yield _play_recording(engine, recording)
        except (_EngineFailedError, KeyError) as error:
            yield _Outcome("differs", recording, rule="none", details=(f"engine failed: {error}",))
            engine.stop()
            engine.start()


def _find_view_differences(engine: Engine, path: Path) -> Iterator[tuple[str, str]]:
    """Compare the recorded views of snakes with a view radius.

    Each view is requested with both placeholders of hidden segments.

    Args:
        engine: Engine to check.
        path: File of recorded views, in the format of README.md.

    Yields:
        The name of the view, and the difference or "".

    Raises:
        _EngineFailedError: If there is no valid response.
    """
    with lzma.open(path, "rt", encoding="utf-8") as file:
        positions = [json.loads(line) for line in file]
    for number, position in enumerate(positions):
        for viewer, view in position["views"].items():
            for hidden in (None, {"x": -1, "y": -1}):
                name = f"position {number}, view of {viewer}, placeholder {hidden}"
                message = {"view": _make_request(position, viewer), "radius": position["r"]}
                response = engine.request(message | {"hidden": hidden})
                if "refused" in response:
                    yield "refused", str(response["refused"])
                    return
                got = response.get("view", {})
                snakes = [_make_snake(snake["id"], snake, hidden) for snake in view["snakes"]]
                food = [{key: one.get(key) for key in "xy"} for one in got.get("food", [])]
                compared = (
                    ("snakes", snakes, got.get("snakes")),
                    ("food", _make_cells(view["food"]), food),
                )
                different = (_describe_difference(*one) for one in compared if one[1] != one[2])
                yield name, next(different, "")


def _make_request(position: Json, viewer: str) -> Json:
    """Return the complete move request of ``viewer`` in a recorded position."""
    snakes = {name: _make_snake(name, snake) for name, snake in position["snakes"].items()}
    food = [{"x": x, "y": y, "spawn_turn": turn} for x, y, turn in position["food"]]
    board = {"width": position["w"], "height": position["h"], "hazards": [], "food": food}
    return {
        "game": {"ruleset": {"name": "standard", "settings": {}}},
        "turn": position["turn"],
        "board": board | {"snakes": list(snakes.values())},
        "you": snakes[viewer],
    }


def _make_snake(name: str, snake: Json, hidden: Json | None = None) -> Json:
    """Return a recorded snake as in a move request; None in its body stands for hidden segments."""
    cells = _make_cells(snake["body"], hidden)
    kept = {key: snake[key] for key in ("health", "length")}
    return {"id": name, "head": cells[0], "body": cells, **kept}


def _make_cells(cells: list[Any], hidden: Json | None = None) -> list[Json | None]:
    """Convert pairs to cells of a move request; ``hidden`` replaces None."""
    return [hidden if cell is None else {"x": cell[0], "y": cell[1]} for cell in cells]


def engine_command(word: str) -> tuple[str, list[str]]:
    """Return the name and the command of an engine.

    Args:
        word: ``NAME=COMMAND``, or the name of a file in ``adapters`` without its suffix.

    Raises:
        ValueError: If ``adapters`` has no file with this name.
    """
    name, equals, command = word.partition("=")
    if equals:
        return name, shlex.split(command)
    for suffix, program in ((".py", sys.executable), (".mjs", "node")):
        if (path := _FOLDER / "adapters" / f"{name}{suffix}").exists():
            return name, [program, str(path)]
    known = sorted(p.stem for p in (_FOLDER / "adapters").iterdir() if p.suffix in (".py", ".mjs"))
    raise ValueError(f"no adapter {name!r}; choose one of {', '.join(known)}, or NAME=COMMAND")


def _iter_table_lines(outcomes: dict[str, list[_Outcome]]) -> Iterator[str]:
    """Yield the lines of a table with the numbers of games.

    The columns count agreeing, played and rejected games.
    """
    width = max(14, *(len(name) + 2 for name in outcomes))
    yield " " * 34 + "".join(f"{name:>{width}}" for name in outcomes)
    for kind in ("ruleset", "map"):
        values = {o.recording.header[kind] for found in outcomes.values() for o in found}
        for one in sorted(values):
            row = f"{kind + ' ' + (one or '(none)'):<34}"
            for found in outcomes.values():
                count = Counter(o.verdict for o in found if o.recording.header[kind] == one)
                played = count.total() - count["refused"]
                refused = f" -{count['refused']}" if count["refused"] else ""
                row += f"{count['agrees']}/{played}{refused}".rjust(width)
            yield row


def _run_mutants(files: list[Path], timeout_s: float) -> Iterator[tuple[str, _Outcome | None]]:
    """Play recorded games with each mutant of the Python engine.

    The games of a mutant end when a game detects the mutant.

    Yields:
        The broken rule, and the differing game or None.
    """
    name, command = engine_command("battlesnake_python")
    for mutant in json.loads((_FOLDER / "mutants.json").read_text()):
        engine = Engine(name, [*command, "--mutant", mutant["rule"]], timeout_s)
        chosen = [p for p in files if p.name.split(".")[0] == mutant["games"]] or files
        outcomes = _play_recordings(engine, chain.from_iterable(map(iter_recordings, chosen)))
        yield mutant["rule"], next((o for o in outcomes if o.verdict == "differs"), None)
        engine.stop()


def _create_parser() -> argparse.ArgumentParser:
    """Create the command-line parser."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("engines", nargs="*", metavar="ENGINE", help="name of an adapter, or NAME=COMMAND")
    add("--games", type=Path, default=_FOLDER / "games", metavar="DIR")
    add("--only", default="*", metavar="GLOB",
        help="pattern of the files with recorded games, such as snail_mode*")  # fmt: skip
    add("--timeout", dest="timeout_s", type=float, default=60, metavar="SECONDS",
        help="response timeout, in seconds")  # fmt: skip
    add("--differences", type=int, default=3, metavar="N",
        help="maximum number of printed differences per engine")  # fmt: skip
    add("--mutants", action="store_true",
        help="also play mutants of the Python engine, each with one broken rule")  # fmt: skip
    add("--views", action="store_true",
        help="compare views of snakes with a view radius, instead of games")  # fmt: skip
    return parser


def main(argv: list[str] | None = None) -> int:
    """Play the selected games with the selected engines and print the results.

    Returns:
        0 if all games agree; 1 if a game differs or a mutant is not detected. Errors exit with 2.
    """
    parser = _create_parser()
    options = parser.parse_args(argv)
    if not options.engines and not options.mutants:
        parser.error("no engine is given; name an engine, or give --mutants")
    unused = {} if options.engines else dict.fromkeys(("differences", "views"), "without engines")
    if options.views and not options.mutants:
        unused |= dict.fromkeys(("games", "only"), "with --views")
    for name, when in unused.items():
        if getattr(options, name) != parser.get_default(name):
            parser.error(f"--{name} has no effect {when}; omit --{name}")
    files = sorted(p for p in options.games.glob(f"{options.only}") if ".jsonl" in p.name)
    if not files:
        parser.error(f"--games {options.games} has no files {options.only} of recorded games")
    status = 0
    if options.mutants:
        for rule, outcome in _run_mutants(files, options.timeout_s):
            verdict = f"detected, {outcome}" if outcome else "NOT DETECTED"
            print(f"{rule}: {verdict}", flush=True)
            status |= not outcome
    outcomes: dict[str, list[_Outcome]] = {}
    for word in options.engines:
        try:
            engine = Engine(*engine_command(word), options.timeout_s)
        except (ValueError, OSError, _EngineFailedError, KeyError) as error:
            parser.error(f"{word}: {error}")
        if options.views:
            status |= _print_views(engine, options.differences)
            continue
        started_at = time.perf_counter()
        try:
            games = chain.from_iterable(map(iter_recordings, files))
            found = outcomes[engine.name] = list(_play_recordings(engine, games))
        except ValueError as error:
            parser.error(str(error))
        finally:
            engine.stop()
        seconds = time.perf_counter() - started_at
        played = [o for o in found if o.verdict != "refused"]
        different = [o for o in played if o.verdict == "differs"]
        lacks = ", ".join(sorted(engine.lacks)) or "nothing"
        print(
            f"{engine.name}: {engine.title}, lacks {lacks}: {len(played) - len(different)} of "
            f"{len(played)} games agree, {len(found) - len(played)} refused; "
            f"{sum(o.turns for o in found)} turns, {len(played) / seconds:.1f} games per second"
        )
        print(*different[: options.differences], sep="\n", end="\n" if different else "")
        status |= bool(different)
    if outcomes:
        print(*_iter_table_lines(outcomes), sep="\n")
    return status


def _print_views(engine: Engine, max_differences: int) -> bool:
    """Compare all recorded views, print the result, and return whether a view differs."""
    try:
        views = list(_find_view_differences(engine, _FOLDER / "views.jsonl.xz"))
    except _EngineFailedError as error:
        views = [("engine failed", str(error))]
    finally:
        engine.stop()
    different = [f"{name}: {difference}" for name, difference in views if difference]
    print(f"{engine.name}: {len(views) - len(different)} of {len(views)} views agree")
    print(*different[:max_differences], sep="\n", end="\n" if different else "")
    return bool(different)


if __name__ == "__main__":
    sys.exit(main())
