"""A snake in one file: your own rules, a network or an evaluation, and its looks.

A bundle is a zip that ``battlesnake-gym pack`` writes: `FACTS` has what plays, how it looks, and
the SHA-256 of every other file in it. Unpacked it works as well, named by its `FACTS`: AWS Lambda
unpacks it for us. `Bundle.open` compares the hashes and runs nothing; what the rules say is run by
`Bundle.factory`, once the snake is chosen to play.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import linecache
import re
import stat
import sys
import threading
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from battlesnake_gym import policy_file, snakes
from battlesnake_gym.boards.json_fields import parse, plain, shown
from battlesnake_gym.common.files import read_within, zipped
from battlesnake_gym.snakes import Bounded, Factory
from battlesnake_heuristics.rule_based import filters, policy_rules
from battlesnake_heuristics.rule_based.pipeline import Filter, Node
from battlesnake_heuristics.search import search
from battlesnake_heuristics.search.evaluation import Evaluation
from battlesnake_server.onnx_policy import Policy
from battlesnake_server.strategy_loader import PolicyFactory, PolicySnake, as_it_is, choose

FORMAT = 1
FACTS = "snake.json"
RULES, POLICY, EVALUATION = "rules.py", "policy.onnx", "snake.evaluation"
"""What the files of a bundle are called; `POLICY` has its JSON file beside it."""

LARGEST = 64 << 20
"""Bytes that a bundle may have unpacked; a policy has two million."""

LARGEST_PACKED = LARGEST + (1 << 20)

MOST_FILES = 100

MOST_POSITIONS = 10**9
"""Of a search a move: half an hour's."""

PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

LOOKS = {
    "color": re.compile("#[0-9a-fA-F]{6}"),
    "head": re.compile("[A-Za-z0-9_-]{1,64}"),
    "tail": re.compile("[A-Za-z0-9_-]{1,64}"),
    "author": re.compile("[^\\x00-\\x1f]{0,64}"),
}
"""What a bundle may say of a snake's looks."""

DAMAGE = (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, zlib.error)
"""What `zipfile` raises for archives that are none."""

_loading = threading.RLock()


class BundleError(ValueError):
    """A bundle is missing, damaged, of another version, or its rules fail; says what to do."""


@dataclass(frozen=True)
class Bundle:
    """A bundle that was read: where it is, the ``facts`` of it, its ``files`` by name.

    ``facts`` has ``snake`` (the name that plays, of the rules or of ours; None: the policy or the
    evaluation does), ``filters`` (names, for the policy), ``positions`` (of a search, or None for
    the clock) and ``looks``.
    """

    path: Path
    facts: Mapping[str, Any]
    files: Mapping[str, bytes]

    @classmethod
    def open(cls, path: str | Path) -> Bundle:
        """Read the zip, or the folder around an unpacked `FACTS`; nothing in it is run.

        Raises `BundleError` where a file is missing, damaged, or not listed.
        """
        path = Path(path)
        try:
            data = read_within(path, LARGEST_PACKED)
        except ValueError as error:
            raise BundleError(str(error)) from error
        except OSError as error:
            raise BundleError(
                f"{path}: {(error.strerror or 'cannot be read').lower()}; give the path of a "
                "bundle that `battlesnake-gym pack` wrote"
            ) from error
        read = _unpacked(path, data) if path.name == FACTS else _unzipped(path, data)
        return cls(path, *_checked(path, read))

    @property
    def looks(self) -> dict[str, str]:
        """``color``, ``head``, ``tail`` and ``author``, as far as they were given."""
        return dict(self.facts["looks"])

    def factory(self) -> Factory:
        """What builds the snake's strategies. Runs the rules, if there are any.

        Raises `BundleError` where they fail, or do not register what plays; `ValueError` where
        this version does not know a snake, filter or network of this kind.
        """
        with _loading, snakes.set_apart() as registered, filters_apart():
            nodes: tuple[Node, ...] = ()
            if RULES in self.files:
                name = f"{self.path}/{RULES}"
                module = run_rules(self.files[RULES], name)
                if hasattr(module, policy_rules.LIST):
                    nodes = policy_rules.checked(module.rules, name)
            chosen = [choose(name) for name in self.facts["filters"]]
            build = None if self.facts["snake"] else self._without_name(chosen, nodes)
        if build is None:
            name = self.facts["snake"]
            build = registered.get(name) or snakes.factory(name)
        positions = self.facts["positions"]
        return functools.partial(_bounded, build, positions) if positions else build

    def _without_name(self, chosen: list[Filter], nodes: tuple[Node, ...]) -> Factory:
        if POLICY in self.files:
            policy = self._policy()
            if not chosen and not nodes:
                return PolicyFactory(policy)
            return lambda seed: PolicySnake(policy, chosen, nodes)
        evaluation = Evaluation.read(self.files[EVALUATION], self.path / EVALUATION)
        return lambda seed: search.Search(evaluation=evaluation, decoupled=True)

    def _policy(self) -> Policy:
        onnx_path = self.path / POLICY
        text = self.files[onnx_path.with_suffix(".json").name]
        return Policy.build(*policy_file.check(self.files[POLICY], text, onnx_path), onnx_path)


def open_factory(path: str) -> Factory:
    """What plays the bundle in ``path``; a file that has not changed is loaded once a process."""
    return _loaded(*as_it_is(path))


def looks_of(snake: str | None) -> dict[str, str]:
    """How the snake wants to look, where it is a bundle."""
    return _read(*as_it_is(snake)).looks if snake and snakes.is_bundle(snake) else {}


@functools.lru_cache(maxsize=1)
def _read(path: str, *state: int) -> Bundle:
    """The last one is kept: a request for a snake's looks is mostly followed by a game of it."""
    return Bundle.open(path)


@functools.lru_cache(maxsize=64)
def _loaded(path: str, *state: int) -> Factory:
    return _read(path, *state).factory()


def write(facts: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """The bytes of a bundle; the same content gives the same bytes."""
    content = {
        "format": FORMAT,
        **facts,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
    }
    text = json.dumps(content, indent=2) + "\n"
    # Lambda's user must be able to read it.
    return zipped(((FACTS, text.encode()), *sorted(files.items())), 0o644)


def run_rules(source: bytes, name: str) -> ModuleType:
    """Run a file of rules, called ``name`` in tracebacks.

    Raises `BundleError` with the line where it fails.
    """
    text = source.decode("utf-8", "replace")
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = ModuleType(f"bundle_{hashlib.sha256(source).hexdigest()[:16]}")
    module.__file__ = name
    sys.modules[module.__name__] = module  # where dataclasses look for their module
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    except Exception as error:  # a user's rules may raise anything
        hint = "; a bundle holds one file of rules" if isinstance(error, ImportError) else ""
        line = _line_in(name, error)
        raise BundleError(f"{name}{line}: {type(error).__name__}: {error}{hint}") from error
    return module


def _line_in(name: str, error: Exception) -> str:
    """The last line of the file ``name`` that led to ``error``."""
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}"
    lines, trace = [], error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == name:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f", line {lines[-1]}" if lines else ""


@contextlib.contextmanager
def filters_apart() -> Iterator[dict[str, Filter]]:
    """As `snakes.set_apart`, for move filters."""
    before = dict(filters.FILTERS)
    found: dict[str, Filter] = {}
    try:
        yield found
    finally:
        found |= {name: rule for name, rule in filters.FILTERS.items() if before.get(name) != rule}
        filters.FILTERS.clear()
        filters.FILTERS.update(before)


def _bounded(build: Factory, positions: int, seed: int) -> Bounded:
    return Bounded(build(seed), positions)  # type: ignore[arg-type]  # checked when it was packed


def _unpacked(path: Path, facts: bytes) -> dict[str, bytes]:
    """The files beside `FACTS` that a bundle may have."""
    names = (RULES, POLICY, Path(POLICY).with_suffix(".json").name, EVALUATION)
    found = (path.with_name(name) for name in names)
    return {FACTS: facts} | {
        one.name: read_within(one, LARGEST_PACKED) for one in found if one.is_file()
    }


def _unzipped(path: Path, data: bytes) -> dict[str, bytes]:
    if data.count(b"PK\x01\x02") > MOST_FILES:  # each one's entry in the archive's directory
        raise BundleError(f"{path}: more than {MOST_FILES} files; pack it again")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(info.file_size for info in archive.infolist())
            if size > LARGEST:
                raise BundleError(f"{path}: {size} bytes unpacked; a bundle has {LARGEST} at most")
            return _contents(path, archive)
    except DAMAGE as error:
        why = plain(str(error), 200)
        raise BundleError(f"{path}: no zip, or a damaged one ({why}); pack it again") from error


def _contents(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    """The files by name, which may be none that leads elsewhere; what they unpack to is counted."""
    left, files = LARGEST, {}
    for info in archive.infolist():
        name, kind = info.filename, stat.S_IFMT(info.external_attr >> 16)
        if not PLAIN_NAME.fullmatch(name) or name in files or kind not in (0, stat.S_IFREG):
            raise BundleError(
                f"{path}: {plain(name, 64)!r} is not a plain file of its own name; pack it again"
            )
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BundleError(f"{path}: {name} is packed in an unusual way; pack it again")
        pieces = []
        with archive.open(info) as file:  # whose header may lie about its size
            while piece := file.read(io.DEFAULT_BUFFER_SIZE):
                pieces.append(piece)
                left -= len(piece)
                if left < 0:
                    raise BundleError(f"{path}: unpacks to more than {LARGEST} bytes")
        files[name] = b"".join(pieces)
    return files


def _checked(path: Path, read: dict[str, bytes]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The facts and the other files; raises where they do not fit each other."""
    try:
        facts = parse(read.pop(FACTS))
        version, hashes = facts["format"], facts["files"]
        if version != FORMAT:
            raise BundleError(f"{path}: format is {shown(version)}, this version reads {FORMAT}")
        if set(hashes) != set(read):
            differ = plain(", ".join(sorted(set(hashes) ^ set(read))), 200)
            raise BundleError(f"{path}: {FACTS} and the files differ in {differ}; pack it again")
        for name, digest in hashes.items():
            if hashlib.sha256(read[name]).hexdigest() != digest:
                raise BundleError(f"{path}: {name} is damaged; fetch or pack the bundle again")
        _check_facts(facts, read)
    except BundleError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(
            f"{path}: {FACTS} is missing or damaged ({plain(str(error), 200)}); pack it again"
        ) from error
    return facts, read


def _check_facts(facts: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Raise ``ValueError`` for what is not of its kind."""
    check_looks(facts["looks"])
    positions, named = facts["positions"], facts["filters"]
    if positions is not None and (
        type(positions) is not int or not 1 <= positions <= MOST_POSITIONS
    ):
        raise ValueError(
            f"positions must be a number between 1 and {MOST_POSITIONS}, got {shown(positions)}"
        )
    if not (isinstance(named, list) and all(isinstance(name, str) for name in named)):
        raise ValueError(f"filters must be a list of names, got {shown(named)}")
    snake = facts["snake"]
    players = [isinstance(snake, str), POLICY in files, EVALUATION in files]
    if sum(players) != 1 or (snake and snakes.is_bundle(snake)):
        raise ValueError("one of snake, policy and evaluation plays")


def check_looks(looks: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for a look that is not one."""
    for name, value in looks.items():
        if name not in LOOKS or not LOOKS[name].fullmatch(value):
            raise ValueError(f"{plain(name, 64)} cannot be {plain(str(value), 64)!r}")
