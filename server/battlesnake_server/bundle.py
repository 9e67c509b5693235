"""A snake in one file: your own rules, a network or an evaluation, and its looks.

A bundle is a zip that ``battlesnake-gym pack`` writes: `BUNDLE_METADATA_FILE` has what plays, how it looks, and
the SHA-256 of every other file in it. Unpacked it works as well, named by its `BUNDLE_METADATA_FILE`: AWS Lambda
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
from battlesnake_gym.boards.json_fields import format_value, parse, sanitize_text
from battlesnake_gym.common.files import read_bounded, zip_bytes
from battlesnake_gym.snakes import Factory, FixedNodes
from battlesnake_heuristics.rule_based import filters, policy_rules
from battlesnake_heuristics.rule_based.pipeline import Filter, PipelineStep
from battlesnake_heuristics.search import search
from battlesnake_heuristics.search.evaluation import Evaluation
from battlesnake_server.onnx_policy import OnnxPolicy
from battlesnake_server.strategy_loader import (
    PolicyFactory,
    PolicySnake,
    file_state,
    filter_by_name,
)

_FORMAT = 1
BUNDLE_METADATA_FILE = "snake.json"
RULES_FILE, POLICY_FILE, EVALUATION_FILE = "rules.py", "policy.onnx", "snake.evaluation"
"""What the files of a bundle are called; `POLICY` has its JSON file beside it."""

_MAX_UNPACKED_BYTES = 64 << 20
"""Bytes that a bundle may have unpacked; a policy has two million."""

_MAX_ARCHIVE_BYTES = _MAX_UNPACKED_BYTES + (1 << 20)

_MAX_FILES = 100

_MAX_NODES = 10**9
"""Of a search a move: half an hour's."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

CUSTOMIZATION_PATTERNS = {
    "color": re.compile("#[0-9a-fA-F]{6}"),
    "head": re.compile("[A-Za-z0-9_-]{1,64}"),
    "tail": re.compile("[A-Za-z0-9_-]{1,64}"),
    "author": re.compile("[^\\x00-\\x1f]{0,64}"),
}
"""What a bundle may say of a snake's looks."""

_CORRUPT_ARCHIVE_ERRORS = (
    zipfile.BadZipFile,
    NotImplementedError,
    RuntimeError,
    EOFError,
    zlib.error,
)
"""What `zipfile` raises for archives that are none."""

_loading = threading.RLock()


class BundleError(ValueError):
    """A bundle is missing, damaged, of another version, or its rules fail; says what to do."""


@dataclass(frozen=True)
class Bundle:
    """A bundle that was read: where it is, the ``facts`` of it, its ``files`` by name.

    ``facts`` has ``snake`` (the name that plays, of the rules or of ours; None: the policy or the
    evaluation does), ``filters`` (names, for the policy), ``positions`` (of a search, or None for
    the clock) and ``customization``.
    """

    path: Path
    metadata: Mapping[str, Any]
    files: Mapping[str, bytes]

    @classmethod
    def open(cls, path: str | Path) -> Bundle:
        """Read the zip, or the folder around an unpacked `BUNDLE_METADATA_FILE`; nothing in it is run.

        Raises `BundleError` where a file is missing, damaged, or not listed.
        """
        path = Path(path)
        try:
            data = read_bounded(path, _MAX_ARCHIVE_BYTES)
        except ValueError as error:
            raise BundleError(str(error)) from error
        except OSError as error:
            raise BundleError(
                f"{path}: {(error.strerror or 'cannot be read').lower()}; give the path of a "
                "bundle that `battlesnake-gym pack` wrote"
            ) from error
        read = _unpacked(path, data) if path.name == BUNDLE_METADATA_FILE else _unzipped(path, data)
        return cls(path, *_checked(path, read))

    @property
    def customization(self) -> dict[str, str]:
        """``color``, ``head``, ``tail`` and ``author``, as far as they were given."""
        return dict(self.metadata["looks"])

    def factory(self) -> Factory:
        """What builds the snake's strategies. Runs the rules, if there are any.

        Raises `BundleError` where they fail, or do not register what plays; `ValueError` where
        this version does not know a snake, filter or network of this kind.
        """
        with _loading, snakes.capture_registrations() as registered, capture_filter_registrations():
            nodes: tuple[PipelineStep, ...] = ()
            if RULES_FILE in self.files:
                name = f"{self.path}/{RULES_FILE}"
                module = run_rules(self.files[RULES_FILE], name)
                if hasattr(module, policy_rules.RULES_VARIABLE):
                    nodes = policy_rules.validate_rules(module.rules, name)
            chosen = [filter_by_name(name) for name in self.metadata["filters"]]
            build = None if self.metadata["snake"] else self._without_name(chosen, nodes)
        if build is None:
            name = self.metadata["snake"]
            build = registered.get(name) or snakes.factory(name)
        positions = self.metadata["positions"]
        return functools.partial(_bounded, build, positions) if positions else build

    def _without_name(self, chosen: list[Filter], nodes: tuple[PipelineStep, ...]) -> Factory:
        if POLICY_FILE in self.files:
            policy = self._policy()
            if not chosen and not nodes:
                return PolicyFactory(policy)
            return lambda seed: PolicySnake(policy, chosen, nodes)
        evaluation = Evaluation.read(self.files[EVALUATION_FILE], self.path / EVALUATION_FILE)
        return lambda seed: search.Search(evaluation=evaluation, decoupled=True)

    def _policy(self) -> OnnxPolicy:
        onnx_path = self.path / POLICY_FILE
        text = self.files[onnx_path.with_suffix(".json").name]
        return OnnxPolicy.build(
            *policy_file.check(self.files[POLICY_FILE], text, onnx_path), onnx_path
        )


def open_factory(path: str) -> Factory:
    """What plays the bundle in ``path``; a file that has not changed is loaded once a process."""
    return _loaded(*file_state(path))


def bundle_customization(snake: str | None) -> dict[str, str]:
    """How the snake wants to look, where it is a bundle."""
    return _read(*file_state(snake)).customization if snake and snakes.is_bundle(snake) else {}


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
        "format": _FORMAT,
        **facts,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
    }
    text = json.dumps(content, indent=2) + "\n"
    # Lambda's user must be able to read it.
    return zip_bytes(((BUNDLE_METADATA_FILE, text.encode()), *sorted(files.items())), 0o644)


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
def capture_filter_registrations() -> Iterator[dict[str, Filter]]:
    """As `snakes.capture_registrations`, for move filters."""
    before = dict(filters.FILTERS)
    found: dict[str, Filter] = {}
    try:
        yield found
    finally:
        found |= {name: rule for name, rule in filters.FILTERS.items() if before.get(name) != rule}
        filters.FILTERS.clear()
        filters.FILTERS.update(before)


def _bounded(build: Factory, positions: int, seed: int) -> FixedNodes:
    return FixedNodes(build(seed), positions)  # type: ignore[arg-type]  # checked when it was packed


def _unpacked(path: Path, facts: bytes) -> dict[str, bytes]:
    """The files beside `BUNDLE_METADATA_FILE` that a bundle may have."""
    names = (RULES_FILE, POLICY_FILE, Path(POLICY_FILE).with_suffix(".json").name, EVALUATION_FILE)
    found = (path.with_name(name) for name in names)
    return {BUNDLE_METADATA_FILE: facts} | {
        one.name: read_bounded(one, _MAX_ARCHIVE_BYTES) for one in found if one.is_file()
    }


def _unzipped(path: Path, data: bytes) -> dict[str, bytes]:
    if data.count(b"PK\x01\x02") > _MAX_FILES:  # each one's entry in the archive's directory
        raise BundleError(f"{path}: more than {_MAX_FILES} files; pack it again")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(info.file_size for info in archive.infolist())
            if size > _MAX_UNPACKED_BYTES:
                raise BundleError(
                    f"{path}: {size} bytes unpacked; a bundle has {_MAX_UNPACKED_BYTES} at most"
                )
            return _contents(path, archive)
    except _CORRUPT_ARCHIVE_ERRORS as error:
        why = sanitize_text(str(error), 200)
        raise BundleError(f"{path}: no zip, or a damaged one ({why}); pack it again") from error


def _contents(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    """The files by name, which may be none that leads elsewhere; what they unpack to is counted."""
    left, files = _MAX_UNPACKED_BYTES, {}
    for info in archive.infolist():
        name, kind = info.filename, stat.S_IFMT(info.external_attr >> 16)
        if not _PLAIN_NAME.fullmatch(name) or name in files or kind not in (0, stat.S_IFREG):
            raise BundleError(
                f"{path}: {sanitize_text(name, 64)!r} is not a plain file of its own name; pack it again"
            )
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BundleError(f"{path}: {name} is packed in an unusual way; pack it again")
        pieces = []
        with archive.open(info) as file:  # whose header may lie about its size
            while piece := file.read(io.DEFAULT_BUFFER_SIZE):
                pieces.append(piece)
                left -= len(piece)
                if left < 0:
                    raise BundleError(f"{path}: unpacks to more than {_MAX_UNPACKED_BYTES} bytes")
        files[name] = b"".join(pieces)
    return files


def _checked(path: Path, read: dict[str, bytes]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The facts and the other files; raises where they do not fit each other."""
    try:
        facts = parse(read.pop(BUNDLE_METADATA_FILE))
        version, hashes = facts["format"], facts["files"]
        if version != _FORMAT:
            raise BundleError(
                f"{path}: format is {format_value(version)}, this version reads {_FORMAT}"
            )
        if set(hashes) != set(read):
            differ = sanitize_text(", ".join(sorted(set(hashes) ^ set(read))), 200)
            raise BundleError(
                f"{path}: {BUNDLE_METADATA_FILE} and the files differ in {differ}; pack it again"
            )
        for name, digest in hashes.items():
            if hashlib.sha256(read[name]).hexdigest() != digest:
                raise BundleError(f"{path}: {name} is damaged; fetch or pack the bundle again")
        _check_facts(facts, read)
    except BundleError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(
            f"{path}: {BUNDLE_METADATA_FILE} is missing or damaged ({sanitize_text(str(error), 200)}); pack it again"
        ) from error
    return facts, read


def _check_facts(facts: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Raise ``ValueError`` for what is not of its kind."""
    check_looks(facts["looks"])
    positions, named = facts["positions"], facts["filters"]
    if positions is not None and (type(positions) is not int or not 1 <= positions <= _MAX_NODES):
        raise ValueError(
            f"positions must be a number between 1 and {_MAX_NODES}, got {format_value(positions)}"
        )
    if not (isinstance(named, list) and all(isinstance(name, str) for name in named)):
        raise ValueError(f"filters must be a list of names, got {format_value(named)}")
    snake = facts["snake"]
    players = [isinstance(snake, str), POLICY_FILE in files, EVALUATION_FILE in files]
    if sum(players) != 1 or (snake and snakes.is_bundle(snake)):
        raise ValueError("one of snake, policy and evaluation plays")


def check_looks(looks: Mapping[str, str]) -> None:
    """Raise ``ValueError`` for a look that is not one."""
    for name, value in looks.items():
        if name not in CUSTOMIZATION_PATTERNS or not CUSTOMIZATION_PATTERNS[name].fullmatch(value):
            raise ValueError(
                f"{sanitize_text(name, 64)} cannot be {sanitize_text(str(value), 64)!r}"
            )
