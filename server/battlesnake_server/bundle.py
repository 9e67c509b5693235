"""Bundles: zip files that contain one snake each.

A bundle contains extension code, a policy or an evaluation, and the snake's customization.
``battlesnake-gym pack`` writes bundles. `BUNDLE_METADATA_FILE` describes the snake and contains the
SHA-256 hashes of the other files. Because AWS Lambda unpacks bundles, the path of an unpacked
`BUNDLE_METADATA_FILE` is also accepted. `Bundle.open` verifies the hashes and executes no code of
the bundle. `Bundle.factory` executes the extension code.
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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from battlesnake_gym import policy_file, snakes
from battlesnake_gym.boards.json_fields import format_value, parse_small_json, sanitize_text
from battlesnake_gym.common.files import create_zip, read_bounded
from battlesnake_gym.snakes import StrategyFactory, FixedNodesSearch
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

_FORMAT = 2
_FORMAT_1_KEYS = {"looks": "customization", "positions": "nodes"}
_FORMAT_1_NAMES = {
    b"battlesnake_gym.records.engine_form": b"battlesnake_gym.replays.engine_frames",
    b"battlesnake_gym.records.official_form": b"battlesnake_gym.replays.official_format",
    b"battlesnake_gym.records.shown_rules": b"battlesnake_gym.replays.rule_inference",
    b"battlesnake_gym.records": b"battlesnake_gym.replays",
    b"battlesnake_gym.see": b"battlesnake_gym.mdp",
    b"battlesnake_heuristics.handwritten.foresight": (
        b"battlesnake_heuristics.rule_based.one_turn_search"
    ),
    b"battlesnake_heuristics.handwritten.own_rules": (
        b"battlesnake_heuristics.rule_based.policy_rules"
    ),
    b"battlesnake_heuristics.handwritten.pack_heuristics": (
        b"battlesnake_heuristics.rule_based.starter_pack_heuristics"
    ),
    b"battlesnake_heuristics.handwritten": b"battlesnake_heuristics.rule_based",
    b"battlesnake_heuristics.judge.analysis": b"battlesnake_heuristics.analysis.position_analysis",
    b"battlesnake_heuristics.judge.calibration": b"battlesnake_heuristics.analysis.win_probability",
    b"battlesnake_heuristics.judge.coaching": b"battlesnake_heuristics.analysis.loss_analysis",
    b"battlesnake_heuristics.judge.game_queue": b"battlesnake_heuristics.rating.process_pool",
    b"battlesnake_heuristics.judge.ladder": b"battlesnake_heuristics.rating.ladder",
    b"battlesnake_heuristics.judge.match": b"battlesnake_heuristics.rating.match",
    b"battlesnake_heuristics.judge.sprt": b"battlesnake_heuristics.rating.sprt",
    b"battlesnake_heuristics.judge.worths": b"battlesnake_heuristics.analysis.input_attribution",
    b"battlesnake_heuristics.judge": b"battlesnake_heuristics.analysis",
    b"battlesnake_heuristics.named": b"battlesnake_heuristics.builtin_snakes",
    b"battlesnake_heuristics import named": (
        b"battlesnake_heuristics import builtin_snakes as named"
    ),
    b"as_mask": b"to_mask_function",
    b"centre": b"center",
    b"view.rivals": b"view.opponents",
    b"view.room": b"view.num_reachable",
    b"view.first": b"view.first_reached",
    b"view.claims": b"view.territories",
    b"view.taken": b"view.blocked_cells",
}
"""Current names by the names in extension code of format 1."""

_FORMAT_1_NAME = re.compile(rb"\b(?:%s)\b" % b"|".join(map(re.escape, _FORMAT_1_NAMES)))

BUNDLE_METADATA_FILE = "snake.json"
RULES_FILE, POLICY_FILE, EVALUATION_FILE = "rules.py", "policy.onnx", "snake.evaluation"
"""Names of the files in a bundle.

The JSON file of the policy is in the same directory as `POLICY_FILE`.
"""

_MAX_UNPACKED_BYTES = 64 << 20
"""Maximum size of an unpacked bundle in bytes.

A policy has about 2 MB.
"""

_MAX_ARCHIVE_BYTES = _MAX_UNPACKED_BYTES + (1 << 20)

_MAX_FILES = 100

_MAX_NODES = 10**9
"""Maximum number of nodes per move.

A search of this many nodes takes half an hour.
"""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

CUSTOMIZATION_PATTERNS = {
    "color": re.compile("#[0-9a-fA-F]{6}"),
    "head": re.compile("[A-Za-z0-9_-]{1,64}"),
    "tail": re.compile("[A-Za-z0-9_-]{1,64}"),
    "author": re.compile("[^\\x00-\\x1f]{0,64}"),
}
"""Valid values of a snake's customization."""

_CUSTOMIZATION_FORMS = {
    "color": "#rrggbb, such as #3366cc",
    "head": "the name of a head, such as evil",
    "tail": "the name of a tail, such as bolt",
    "author": "a name of at most 64 characters",
}
"""Descriptions of the valid values in error messages."""

_loading = threading.RLock()


class BundleError(ValueError):
    """Error raised if a bundle is missing, damaged or unknown, or if its code fails.

    The message contains the remedy.
    """


@dataclass(frozen=True)
class Bundle:
    """Content of a bundle.

    Attributes:
        path: Path of the bundle.
        metadata: Content of `BUNDLE_METADATA_FILE`. ``snake`` is the name of a snake of the
            extension
            code or of a built-in snake; None selects the policy or the evaluation. ``filters``
            lists the names of the policy's move filters. ``nodes`` is the number of nodes per move
            of a search; None selects the time budget. ``customization`` is the snake's
            customization.
        files: Contents of the other files by name.
    """

    path: Path
    metadata: Mapping[str, Any]
    files: Mapping[str, bytes]

    @classmethod
    def open(cls, path: str | Path) -> Bundle:
        """Read the zip file, or the directory of an unpacked `BUNDLE_METADATA_FILE`.

        The method executes no code of the bundle.

        Raises:
            BundleError: If a file is missing, damaged or not listed in the metadata.
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
        """The keys ``color``, ``head``, ``tail`` and ``author``, if set."""
        return dict(self.metadata["customization"])

    def factory(self) -> StrategyFactory:
        """Execute the extension code and return the factory of the snake's strategies.

        Raises:
            BundleError: If the extension code fails, or does not register the snake.
            ValueError: If this version does not have the snake, filter or kind of network.
        """
        with _loading, snakes.capture_registrations() as registered, capture_filter_registrations():
            steps: tuple[PipelineStep, ...] = ()
            if RULES_FILE in self.files:
                name = f"{self.path}/{RULES_FILE}"
                module = run_rules(self.files[RULES_FILE], name)
                if hasattr(module, policy_rules.RULES_VARIABLE):
                    steps = policy_rules.validate_rules(module.rules, name)
            chosen = [filter_by_name(name) for name in self.metadata["filters"]]
            build = None if self.metadata["snake"] else self._without_name(chosen, steps)
        if build is None:
            name = self.metadata["snake"]
            build = registered.get(name) or snakes.factory(name)
        nodes = self.metadata["nodes"]
        return functools.partial(_with_fixed_nodes, build, nodes) if nodes else build

    def _without_name(self, chosen: list[Filter], steps: tuple[PipelineStep, ...]) -> StrategyFactory:
        if POLICY_FILE in self.files:
            policy = self._policy()
            if not chosen and not steps:
                return PolicyFactory(policy)
            return lambda seed: PolicySnake(policy, chosen, steps)
        evaluation = Evaluation.read(self.files[EVALUATION_FILE], self.path / EVALUATION_FILE)
        return lambda seed: search.Search(evaluation=evaluation, decoupled=True)

    def _policy(self) -> OnnxPolicy:
        onnx_path = self.path / POLICY_FILE
        text = self.files[onnx_path.with_suffix(".json").name]
        return OnnxPolicy.build(
            *policy_file.check(self.files[POLICY_FILE], text, onnx_path), onnx_path
        )


def open_factory(path: str) -> StrategyFactory:
    """Return the factory of the bundle at ``path``.

    Unchanged files are cached.
    """
    return _loaded(*file_state(path))


def bundle_customization(snake: str | None) -> dict[str, str]:
    """Return the customization of a bundle, or an empty dict for other snakes."""
    return _read(*file_state(snake)).customization if snake and snakes.is_bundle(snake) else {}


@functools.lru_cache(maxsize=1)
def _read(path: str, *state: int) -> Bundle:
    """Read a bundle, and cache the last result.

    A request for the snake's customization usually precedes a game.
    """
    return Bundle.open(path)


@functools.lru_cache(maxsize=64)
def _loaded(path: str, *state: int) -> StrategyFactory:
    return _read(path, *state).factory()


def write(metadata: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """Return the bytes of a bundle.

    The bytes depend only on the content.
    """
    content = {
        "format": _FORMAT,
        **metadata,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
    }
    text = json.dumps(content, indent=2) + "\n"
    # Mode 644 is required because Lambda's user must be able to read the files.
    return create_zip(((BUNDLE_METADATA_FILE, text.encode()), *sorted(files.items())), 0o644)


def run_rules(source: bytes, name: str) -> ModuleType:
    """Execute a file of extension code.

    Args:
        source: Python source.
        name: File name in tracebacks.

    Raises:
        BundleError: If the code fails; the message contains the line.
    """
    text = source.decode("utf-8", "replace")
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = ModuleType(f"bundle_{hashlib.sha256(source).hexdigest()[:16]}")
    module.__file__ = name
    sys.modules[module.__name__] = module  # Dataclasses search sys.modules for their module.
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    except BaseException as error:  # A user's code may raise anything, including SystemExit.
        hint = "; a bundle contains a single file of code" if isinstance(error, ImportError) else ""
        line = _line_in(name, error)
        raise BundleError(f"{name}{line}: {type(error).__name__}: {error}{hint}") from error
    return module


def _line_in(name: str, error: BaseException) -> str:
    """Return the last line of the file ``name`` in the traceback of ``error``."""
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
    """Collect the filters registered within the context.

    `snakes.capture_registrations` does the same for snakes.
    """
    before = dict(filters.FILTERS)
    found: dict[str, Filter] = {}
    try:
        yield found
    finally:
        found |= {name: rule for name, rule in filters.FILTERS.items() if before.get(name) != rule}
        filters.FILTERS.clear()
        filters.FILTERS.update(before)


def _with_fixed_nodes(build: StrategyFactory, nodes: int, seed: int) -> FixedNodesSearch:
    return FixedNodesSearch(build(seed), nodes)  # type: ignore[arg-type]  # checked when it was packed


def _unpacked(path: Path, metadata: bytes) -> dict[str, bytes]:
    """Return the files in the directory of an unpacked bundle.

    Only names that a bundle may contain are read.
    """
    names = (RULES_FILE, POLICY_FILE, Path(POLICY_FILE).with_suffix(".json").name, EVALUATION_FILE)
    found = (path.with_name(name) for name in names)
    return {BUNDLE_METADATA_FILE: metadata} | {
        one.name: read_bounded(one, _MAX_ARCHIVE_BYTES) for one in found if one.is_file()
    }


def _unzipped(path: Path, data: bytes) -> dict[str, bytes]:
    # Every archive entry has this signature in the central directory.
    if data.count(b"PK\x01\x02") > _MAX_FILES:
        raise BundleError(f"{path}: more than {_MAX_FILES} files; pack it again")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            size = sum(info.file_size for info in archive.infolist())
            if size > _MAX_UNPACKED_BYTES:
                raise BundleError(
                    f"{path}: {size} bytes unpacked; a bundle has at most {_MAX_UNPACKED_BYTES}"
                )
            return _contents(path, archive)
    except BundleError:
        raise
    except Exception as error:  # zipfile raises almost anything for a damaged file.
        why = sanitize_text(str(error), 200)
        raise BundleError(f"{path}: not a zip file, or damaged ({why}); pack it again") from error


def _contents(path: Path, archive: zipfile.ZipFile) -> dict[str, bytes]:
    """Return the archive's files by name.

    Raises:
        BundleError: If a path is not allowed, or the unpacked files are too large.
    """
    left, files = _MAX_UNPACKED_BYTES, {}
    for info in archive.infolist():
        name, kind = info.filename, stat.S_IFMT(info.external_attr >> 16)
        if not _PLAIN_NAME.fullmatch(name) or name in files or kind not in (0, stat.S_IFREG):
            raise BundleError(
                f"{path}: {sanitize_text(name, 64)!r} is not a plain file with a unique name; "
                "pack it again"
            )
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BundleError(f"{path}: {name} uses an unsupported compression; pack it again")
        pieces = []
        with archive.open(info) as file:  # The header may contain a wrong size.
            while piece := file.read(io.DEFAULT_BUFFER_SIZE):
                pieces.append(piece)
                left -= len(piece)
                if left < 0:
                    raise BundleError(f"{path}: unpacks to more than {_MAX_UNPACKED_BYTES} bytes")
        files[name] = b"".join(pieces)
    return files


def _checked(path: Path, read: dict[str, bytes]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the metadata and the other files.

    Raises:
        BundleError: If the metadata and the files are inconsistent.
    """
    try:
        metadata = parse_small_json(read.pop(BUNDLE_METADATA_FILE))
        version, hashes = metadata["format"], metadata["files"]
        if version not in (1, _FORMAT):
            raise BundleError(
                f"{path}: format is {format_value(version)}, this version reads 1 and {_FORMAT}"
            )
        if set(hashes) != set(read):
            differ = sanitize_text(", ".join(sorted(set(hashes) ^ set(read))), 200)
            raise BundleError(
                f"{path}: {BUNDLE_METADATA_FILE} and the files differ in {differ}; pack it again"
            )
        for name, digest in hashes.items():
            if hashlib.sha256(read[name]).hexdigest() != digest:
                raise BundleError(f"{path}: {name} is damaged; fetch or pack the bundle again")
        if version == 1:
            metadata, read = _upgrade(metadata, read)
        _check_metadata(metadata, read)
    except BundleError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BundleError(
            f"{path}: {BUNDLE_METADATA_FILE} is missing or damaged "
            f"({sanitize_text(str(error), 200)}); pack it again"
        ) from error
    return metadata, read


def _upgrade(
    metadata: dict[str, Any], files: dict[str, bytes]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Convert the metadata and the extension code of format 1 to current names."""
    renamed = {_FORMAT_1_KEYS.get(key, key): value for key, value in metadata.items()}
    upgraded = dict(files)
    if RULES_FILE in files:
        upgraded[RULES_FILE] = _FORMAT_1_NAME.sub(
            lambda found: _FORMAT_1_NAMES[found[0]], files[RULES_FILE]
        )
    return renamed | {"format": _FORMAT}, upgraded


def _check_metadata(metadata: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Raise ``ValueError`` if a value of the metadata is invalid."""
    check_customization(metadata["customization"])
    nodes, named = metadata["nodes"], metadata["filters"]
    if nodes is not None and (type(nodes) is not int or not 1 <= nodes <= _MAX_NODES):
        raise ValueError(
            f"nodes must be a number between 1 and {_MAX_NODES}, got {format_value(nodes)}"
        )
    if not (isinstance(named, list) and all(isinstance(name, str) for name in named)):
        raise ValueError(f"filters must be a list of names, got {format_value(named)}")
    snake = metadata["snake"]
    players = [isinstance(snake, str), POLICY_FILE in files, EVALUATION_FILE in files]
    if sum(players) != 1 or (snake and snakes.is_bundle(snake)):
        raise ValueError("exactly one of snake, policy and evaluation must play")


def check_customization(customization: Mapping[str, str]) -> None:
    """Raise ``ValueError`` if a value of the customization is invalid."""
    for name, value in customization.items():
        if name not in CUSTOMIZATION_PATTERNS or not CUSTOMIZATION_PATTERNS[name].fullmatch(value):
            wanted = _CUSTOMIZATION_FORMS.get(name, "left out")
            raise ValueError(
                f"{sanitize_text(name, 64)} must be {wanted}, got {sanitize_text(str(value), 64)!r}"
            )
