"""Bundles: zip files that contain one snake each.

A bundle contains extension code, a policy or an evaluation, and the snake's customization.
``battlesnake-gym pack`` writes bundles. `BUNDLE_METADATA_FILE` describes the snake and contains the
SHA-256 hashes of the other files. AWS Lambda unpacks bundles. `Bundle.load` therefore also accepts
the path of an unpacked `BUNDLE_METADATA_FILE`. `Bundle.load` verifies the hashes and does
not execute any code from the bundle. `Bundle.factory` executes the extension code.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import linecache
import re
import stat
import sys
import threading
import traceback
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from battlesnake_gym import api_snakes, policy_file, snakes
from battlesnake_gym.boards.json_fields import format_value, parse_small_json, sanitize_text
from battlesnake_gym.common.files import create_zip, read_bounded
from battlesnake_gym.policy_file import OnnxPolicy
from battlesnake_gym.snake_spec import SnakeSpec
from battlesnake_gym.snakes import StrategyFactory
from battlesnake_heuristics.rule_based import filters, policy_rules
from battlesnake_heuristics.rule_based.pipeline import Filter, PipelineStep
from battlesnake_heuristics.search import search
from battlesnake_heuristics.search.evaluation import Evaluation
from battlesnake_server.file_cache import cache_by_file
from battlesnake_server.strategy_loader import PolicyFactory, filter_by_name

_FORMAT_VERSION = 2
_FORMAT_1_KEY_RENAMES = {"looks": "customization", "positions": "nodes"}
_FORMAT_1_NAME_RENAMES = {
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
"""Current names of modules and attributes, keyed by their names in format 1."""

_FORMAT_1_NAME_PATTERN = re.compile(
    rb"\b(?:%s)\b" % b"|".join(map(re.escape, _FORMAT_1_NAME_RENAMES))
)

BUNDLE_METADATA_FILE = "snake.json"
RULES_FILE, POLICY_FILE, EVALUATION_FILE = "rules.py", "policy.onnx", "snake.evaluation"
"""Names of the files in a bundle.

The JSON file for the policy is in the same directory as `POLICY_FILE`.
"""

_MAX_UNPACKED_BYTES = 64 << 20
"""Maximum size of an unpacked bundle in bytes.

A policy has about 2 MB.
"""

_MAX_ARCHIVE_BYTES = _MAX_UNPACKED_BYTES + (1 << 20)

_MAX_FILES = 100

_MAX_NODES = 10**9
"""Maximum number of nodes per move.

A search of 10**9 nodes lasts about half an hour.
"""

_FILE_NAME_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

CUSTOMIZATION_FORMATS = {
    "color": (re.compile("#[0-9a-fA-F]{6}"), "#rrggbb, such as #3366cc"),
    "head": (re.compile("[A-Za-z0-9_-]{1,64}"), "the name of a head, such as evil"),
    "tail": (re.compile("[A-Za-z0-9_-]{1,64}"), "the name of a tail, such as bolt"),
    "author": (re.compile("[^\\x00-\\x1f]{0,64}"), "a name of at most 64 characters"),
}
"""Patterns and descriptions of the values of a snake's customization, by key."""

_loading = threading.RLock()


class _BundleError(ValueError):
    """Error raised if the content of a bundle is damaged or unsupported."""


@dataclass(frozen=True)
class Bundle:
    """Content of a bundle.

    The metadata has these keys:

    * ``snake``: Name of a snake of the extension code or of a built-in snake. None selects the
      policy or the evaluation.
    * ``filters``: Names of the policy's move filters.
    * ``nodes``: Number of nodes per move of a search, or None for a time budget.
    * ``customization``: Customization of the snake.

    Attributes:
        path: Path of the bundle.
        metadata: Content of `BUNDLE_METADATA_FILE`.
        files: Contents of the other files, keyed by file name.
    """

    path: Path
    metadata: Mapping[str, Any]
    files: Mapping[str, bytes]

    @classmethod
    def load(cls, path: str | Path) -> Bundle:
        """Load a bundle from a zip file, or from an unpacked `BUNDLE_METADATA_FILE`.

        The method does not execute any code from the bundle.

        Raises:
            ValueError: If a file is missing, damaged or not listed in the metadata; the message
                contains a remedy.
        """
        path = Path(path)
        try:
            data = read_bounded(path, _MAX_ARCHIVE_BYTES)
        except OSError as error:
            raise ValueError(
                f"{path}: {(error.strerror or 'cannot be read').lower()}; give the path of a "
                "bundle that `battlesnake-gym pack` wrote"
            ) from error
        unpacked = path.name == BUNDLE_METADATA_FILE
        try:
            read = _read_unpacked_files(path, data) if unpacked else _unzip(data)
            return cls(path, *_parse_metadata(read))
        except _BundleError as error:
            raise ValueError(f"{path}: {error}") from error

    @property
    def customization(self) -> dict[str, str]:
        """Customization of the snake.

        The possible keys are ``color``, ``head``, ``tail`` and ``author``. Unset keys are missing.
        """
        return dict(self.metadata["customization"])

    def factory(self) -> StrategyFactory:
        """Execute the extension code, and return a factory for the snake's strategies.

        Raises:
            ValueError: If the extension code fails, or does not register the snake, or this version
                lacks the snake, a filter or the network type.
        """
        with _loading, snakes.capture_registrations() as registered, capture_filter_registrations():
            steps: tuple[PipelineStep, ...] = ()
            module: ModuleType | None = None
            if RULES_FILE in self.files:
                name = f"{self.path}/{RULES_FILE}"
                module = run_extension_code(self.files[RULES_FILE], name)
                if hasattr(module, policy_rules.RULES_VARIABLE):
                    steps = policy_rules.validate_rules(module.rules, name)
            chosen = [filter_by_name(name) for name in self.metadata["filters"]]
            build = None if self.metadata["snake"] else self._make_learned_factory(chosen, steps)
        if build is None:
            name = self.metadata["snake"]
            own = api_snakes.find_factory(module) if module and name not in registered else None
            build = registered.get(name) or own or snakes.factory(name)
        nodes = self.metadata["nodes"]
        return snakes.with_nodes(str(self.path), build, nodes) if nodes else build

    def _make_learned_factory(
        self, chosen: list[Filter], steps: tuple[PipelineStep, ...]
    ) -> StrategyFactory:
        """Make the factory of the policy, or of the search with the evaluation."""
        if POLICY_FILE in self.files:
            path = self.path / POLICY_FILE
            text = self.files[path.with_suffix(".json").name]
            checked = policy_file.check(self.files[POLICY_FILE], text, path)
            return PolicyFactory(OnnxPolicy.from_contents(*checked, path), chosen, steps)
        evaluation = Evaluation.from_bytes(self.files[EVALUATION_FILE], self.path / EVALUATION_FILE)
        return lambda seed: search.Search(evaluation=evaluation, decoupled=True)


def bundle_customization(snake: str | None) -> dict[str, str]:
    """Return the customization of a bundle or a Python file, or an empty dict for other snakes."""
    spec = SnakeSpec.parse(snake or "")
    if spec.is_bundle:
        return _load_bundle(spec.source).customization
    is_python_file = spec.source.endswith(".py")
    return dict(getattr(snakes.factory(spec.source), "customization", {})) if is_python_file else {}


@cache_by_file(1)
def _load_bundle(path: Path) -> Bundle:
    """Load a bundle, and cache the last bundle.

    `bundle_customization` and `open_factory` usually load the same bundle in succession.
    """
    return Bundle.load(path)


@cache_by_file(64)
def open_factory(path: Path) -> StrategyFactory:
    """Return the factory of the bundle at ``path``.

    The factories of unchanged files are cached.
    """
    return _load_bundle(path).factory()


def to_bytes(metadata: Mapping[str, Any], files: Mapping[str, bytes]) -> bytes:
    """Return the content of a zip file with the metadata and the files.

    Equal arguments result in equal bytes.
    """
    content = {
        "format": _FORMAT_VERSION,
        **metadata,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
    }
    text = json.dumps(content, indent=2) + "\n"
    # Mode 644 is required because Lambda's user must be able to read the files.
    return create_zip(((BUNDLE_METADATA_FILE, text.encode()), *sorted(files.items())), 0o644)


def run_extension_code(source: bytes, name: str) -> ModuleType:
    """Execute a file of extension code.

    Args:
        source: Python source.
        name: File name in tracebacks.

    Raises:
        ValueError: If the code fails; the message contains the line number.
    """
    text = source.decode("utf-8", "replace")
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = ModuleType(f"bundle_{hashlib.sha256(source).hexdigest()[:16]}")
    module.__file__ = name
    sys.modules[module.__name__] = module  # Dataclasses search sys.modules for their module.
    try:
        exec(compile(source, name, "exec"), module.__dict__)
    except BaseException as error:  # A user's code may raise any exception, including SystemExit.
        hint = "; a bundle contains a single file of code" if isinstance(error, ImportError) else ""
        line = _format_error_line(name, error)
        raise ValueError(f"{name}{line}: {type(error).__name__}: {error}{hint}") from error
    return module


def _format_error_line(name: str, error: BaseException) -> str:
    """Format the number of the last line of the file ``name`` in a traceback.

    The result is empty if the traceback does not contain the file.
    """
    if isinstance(error, SyntaxError):
        return f", line {error.lineno}" if error.lineno else ""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [number for frame, number in frames if frame.f_code.co_filename == name]
    return f", line {lines[-1]}" if lines else ""


@contextlib.contextmanager
def capture_filter_registrations() -> Iterator[dict[str, Filter]]:
    """Collect the filters that code registers within the context.

    `filters.FILTERS` is restored at the end of the context. `snakes.capture_registrations` collects
    snakes.
    """
    before = dict(filters.FILTERS)
    found: dict[str, Filter] = {}
    try:
        yield found
    finally:
        found |= {name: rule for name, rule in filters.FILTERS.items() if before.get(name) != rule}
        filters.FILTERS.clear()
        filters.FILTERS.update(before)


def _read_unpacked_files(path: Path, metadata: bytes) -> dict[str, bytes]:
    """Return the files in the directory of an unpacked bundle.

    The function ignores files whose names are not names of bundle files.
    """
    names = (RULES_FILE, POLICY_FILE, Path(POLICY_FILE).with_suffix(".json").name, EVALUATION_FILE)
    found = (path.with_name(name) for name in names)
    return {BUNDLE_METADATA_FILE: metadata} | {
        one.name: read_bounded(one, _MAX_ARCHIVE_BYTES) for one in found if one.is_file()
    }


def _unzip(data: bytes) -> dict[str, bytes]:
    """Return the contents of a zip file by file name."""
    # Every archive entry has this signature in the central directory.
    if data.count(b"PK\x01\x02") > _MAX_FILES:
        raise _BundleError(f"more than {_MAX_FILES} files; pack it again")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _extract_files(archive)
    except _BundleError:
        raise
    except Exception as error:  # `zipfile` raises many types of exceptions for damaged files.
        why = sanitize_text(str(error), 200)
        raise _BundleError(f"not a zip file, or damaged ({why}); pack it again") from error


def _extract_files(archive: zipfile.ZipFile) -> dict[str, bytes]:
    """Extract the archive's files, and return the contents by file name.

    Raises:
        _BundleError: If a path is not allowed, or the unpacked files are too large.
    """
    left, files = _MAX_UNPACKED_BYTES, {}
    for info in archive.infolist():
        name, kind = info.filename, stat.S_IFMT(info.external_attr >> 16)
        if not _FILE_NAME_PATTERN.fullmatch(name) or name in files or kind not in (0, stat.S_IFREG):
            raise _BundleError(
                f"{sanitize_text(name, 64)!r} is not a plain file with a unique name; pack it again"
            )
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _BundleError(f"{name} uses an unsupported compression method; pack it again")
        with archive.open(info) as file:
            files[name] = file.read(left + 1)  # The size in the header may be wrong.
        left -= len(files[name])
        if left < 0:
            raise _BundleError(
                f"unpacks to more than {_MAX_UNPACKED_BYTES} bytes; pack fewer or smaller files"
            )
    return files


def _parse_metadata(read: dict[str, bytes]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Parse and check the metadata of a bundle.

    Returns:
        The metadata, and the contents of the other files, keyed by file name.

    Raises:
        _BundleError: If the metadata and the files are inconsistent.
    """
    try:
        metadata = parse_small_json(read.pop(BUNDLE_METADATA_FILE))
        version, hashes = metadata["format"], metadata["files"]
        if version not in (1, _FORMAT_VERSION):
            raise _BundleError(
                f"format is {format_value(version)}, this version reads 1 and {_FORMAT_VERSION}; "
                "pack it again"
            )
        if set(hashes) != set(read):
            differ = sanitize_text(", ".join(sorted(set(hashes) ^ set(read))), 200)
            raise _BundleError(
                f"{BUNDLE_METADATA_FILE} and the files differ in {differ}; pack it again"
            )
        for name, digest in hashes.items():
            if hashlib.sha256(read[name]).hexdigest() != digest:
                raise _BundleError(f"{name} is damaged; fetch or pack the bundle again")
        if version == 1:
            metadata, read = _upgrade_format_1(metadata, read)
        _check_metadata(metadata, read)
    except _BundleError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        why = sanitize_text(str(error), 200)
        raise _BundleError(
            f"{BUNDLE_METADATA_FILE} is missing or damaged ({why}); pack it again"
        ) from error
    return metadata, read


def _upgrade_format_1(
    metadata: dict[str, Any], files: dict[str, bytes]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Replace the names of format 1 in the metadata and in the extension code."""
    renamed = {_FORMAT_1_KEY_RENAMES.get(key, key): value for key, value in metadata.items()}
    upgraded = dict(files)
    if RULES_FILE in files:
        upgraded[RULES_FILE] = _FORMAT_1_NAME_PATTERN.sub(
            lambda found: _FORMAT_1_NAME_RENAMES[found[0]], files[RULES_FILE]
        )
    return renamed | {"format": _FORMAT_VERSION}, upgraded


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
    if sum(players) != 1 or (snake and SnakeSpec.parse(snake).is_bundle):
        raise ValueError("the bundle must contain exactly one of snake, policy and evaluation")


def check_customization(customization: Mapping[str, str]) -> None:
    """Raise ``ValueError`` if a value of the customization is invalid."""
    for name, value in customization.items():
        pattern, wanted = CUSTOMIZATION_FORMATS.get(name, (None, "omitted"))
        if pattern is None or not pattern.fullmatch(value):
            raise ValueError(
                f"{sanitize_text(name, 64)} must be {wanted}, got {sanitize_text(str(value), 64)!r}"
            )
