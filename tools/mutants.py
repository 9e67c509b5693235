"""Mutation testing: change one line of code at a time, and run the tests.

    python tools/mutants.py                          all modules in mutants.toml
    python tools/mutants.py server heuristics        modules whose path contains one of the words

A mutant differs from the code in one line. The line has another comparison, another sign, a number
plus one, a negated condition, or no statement. Each module has the same mutants in every run. For
each mutant, the script runs the tests that ``mutants.toml`` lists for the module, until one test
fails. After a change of C code, the script compiles the code again. Each run works in its own copy
of the project, so several runs can work in parallel. ``build/mutants.jsonl`` stores the results
until the module changes, so an interrupted run resumes.

A surviving mutant must be listed in ``mutants.toml`` with a reason. The exit status is 1 if a
surviving mutant is not listed, or if fewer than 95% of the mutants are detected.
"""

from __future__ import annotations

import ast
import collections
import contextlib
import hashlib
import itertools
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_ROOT = Path(__file__).parents[1]
_RESULTS_PATH = _ROOT / "build/mutants.jsonl"
_MIN_DETECTED_FRACTION = 0.95
_MAX_MUTANTS = 12
"""Maximum number of mutants per module."""

_SOURCE_FOLDERS = (".", "heuristics", "server", "rllib_src", "rllib_common")
_COMPILED_MODULES = {
    "battlesnake_gym/engine/csrc": "_engine.abi3.so",
    "heuristics/battlesnake_heuristics/search/csrc": "_search.abi3.so",
}
_BUILD_CHECK_PATH = "battlesnake_gym/engine/build_check.py"
_SHARED_SOURCES = {
    path.name for path in runpy.run_path(str(_ROOT / _BUILD_CHECK_PATH))["SHARED_SOURCES"]
}
_REPLACEMENTS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+",
    "+=": "-=", "-=": "+=", "*": "+", "//": "*", "/": "*", "%": "+", "and": "or", "or": "and",
    "&&": "||", "||": "&&", "min": "max", "max": "min", "any": "all", "all": "any",
    "True": "False", "False": "True",
    "min_int": "max_int", "max_int": "min_int",
    "true": "false", "false": "true", "is": "is not", "in": "not in", "not": "", "break": "pass",
    "continue": "pass", "if": "if not", "while": "while not", "!": "",
}  # fmt: skip
"""Replacements for operators, keywords and function names in the source code."""

_NOT_CODE_PATTERN = re.compile(r'"""[^\0]*?"""|"(?:\\.|[^"\\\n])*"|#.*|/\*[^\0]*?\*/')
_PYTHON_PATTERNS = (
    re.compile(r"^\s*(@|import |from |__all__|def |class |assert |\w+: .*\[.*\]$)|.*\blog\w*\."),
    re.compile(r"^( *)(raise\b.*|[a-z_][\w.]*(\[.*\])?(\(.*\)| ([-+*/|&]|//)= .*))$"),
    re.compile(
        r"(?<= )(?:[<>]=?|[=!]=|[-+]=?|[*%]|//?|and|or|is(?! not)|(?<!not )in)(?= )"
        r"|(?<![.\w])(?:any|all|min|max)(?=\()|\b(?:True|False|break|continue)\b"
        r"|\bnot\b|(?<= {4})(?:if|while)(?= (?!not|.* (?:and|or|in|is|[<>=!]=|[<>]) ))"
        r"|(?<![\w.])(?<!e-)\d+\b(?!\.)"
    ),
)
_C_PATTERNS = (
    re.compile(r'^\s*(for \(|static |[a-z]\w* \**\w+\[|extern|PyErr|return FAIL|.* = \{)|.*"'),
    re.compile(r"^( +)[a-z_][\w>.\[\]*-]*(\(.*\)| [-+*/|&^]?= .*);$"),
    re.compile(
        r"(?<= )(?:[<>]=?|[=!]=|[-+]=?|&&|\|\|)(?= )|\b(?:min_int|max_int|true|false)\b"
        r"|(?<![\w.\[])\d+\b(?![.x])|!(?=[a-z(])"
    ),
)
"""Regular expressions by language.

The expressions match skipped lines, removable statements, and replaceable words.
"""


class _Mutant(NamedTuple):
    """A mutant of a file.

    The fields are the number of the changed line, the old line, and the new line.
    """

    path: str
    number: int
    old: str
    new: str

    @property
    def name(self) -> str:
        """The name of the mutant in ``mutants.toml``."""
        return f"{self.path}: {self.old.strip()} -> {self.new.strip()}"

    def apply_to(self, text: str) -> str:
        """Replace the line of the mutant in the text of the file."""
        lines = text.split("\n")
        lines[self.number] = self.new
        return "\n".join(lines)


def _select_mutants(path: str, text: str, most: int = _MAX_MUTANTS) -> list[_Mutant]:
    """Select up to ``most`` mutants of a file in a reproducible pseudorandom order."""
    found = {mutant.name: mutant for mutant in _iter_mutants(path, text)}
    order = sorted(found, key=lambda name: hashlib.sha256(name.encode()).digest())
    valid = (found[name] for name in order if _is_valid_code(path, found[name].apply_to(text)))
    return list(itertools.islice(valid, most))


def _is_valid_code(path: str, text: str) -> bool:
    """Return whether the text of a Python file can be parsed.

    The result is True for other languages.
    """
    with contextlib.suppress(SyntaxError):
        return not path.endswith(".py") or bool(ast.parse(text))
    return False


def _iter_mutants(path: str, text: str) -> Iterator[_Mutant]:
    """Yield all mutants of a file.

    C loop bounds are excluded, because sanitizers check the bounds.
    """
    quiet, statement, word = _PYTHON_PATTERNS if path.endswith(".py") else _C_PATTERNS
    code = _NOT_CODE_PATTERN.sub(
        lambda no: re.sub(r"[^\n]", '"' if no[0][0] == '"' else " ", no[0]), text
    )
    for number, (line, old) in enumerate(zip(code.split("\n"), text.split("\n"), strict=True)):
        if quiet.match(line):
            continue
        if gone := statement.match(line.rstrip()):
            yield _Mutant(
                path, number, old, gone[1] + ("pass" if word is _PYTHON_PATTERNS[2] else ";")
            )
        for found in word.finditer(line):
            old_word = found[0]
            if old_word.isdecimal() or not re.search(r"\bfor\b", line[: found.start()]):
                new = str(int(old_word) + 1) if old_word.isdecimal() else _REPLACEMENTS[old_word]
                yield _Mutant(path, number, old, old[: found.start()] + new + old[found.end() :])


class _ProjectCopy:
    """A copy of the project, in which the script changes lines and runs tests."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.check_output(
            ["git", "ls-files", "-zco", "--exclude-standard"], cwd=_ROOT, text=True
        )
        compiled = [f"{Path(csrc).parent}/{name}" for csrc, name in _COMPILED_MODULES.items()]
        for name in (*listed.split("\0"), *compiled):
            if (_ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(_ROOT / name, folder / name)
        (folder / "no_smaller_example.py").write_text(
            "from hypothesis import Phase, settings\n"
            "phases = [Phase.explicit, Phase.generate]\n"
            "settings.register_profile('m', phases=phases, database=None, derandomize=True)\n"
            "settings.load_profile('m')\n"
        )
        self._needs: dict[Path, list[str]] = {}
        self._written = 0

    def write_file(self, path: str, text: str) -> bool:
        """Write a file of the copy, and compile the C code that depends on the file.

        Returns:
            Whether the C code compiles.
        """
        file = self.folder / path
        file.write_text(text)
        self._written += 1  # A unique modification time prevents Python from using stale bytecode.
        os.utime(file, (1e9 + self._written, 1e9 + self._written))
        csrc = str(Path(path).parent)
        shared = file.name in _SHARED_SOURCES
        needing = [one for one in _COMPILED_MODULES if shared or one == csrc]
        return all(self._compile(self.folder / one, file.name) for one in needing)

    def _compile(self, csrc: Path, changed: str) -> bool:
        """Compile the C files that include the changed file.

        The first call compiles all files.

        Returns:
            Whether all files compile.
        """
        check = self.folder / _BUILD_CHECK_PATH
        sources = runpy.run_path(str(check))["sources_hash"](csrc)
        flags = ["-std=gnu11", "-O1", "-ffp-contract=off", "-fPIC", "-w", "-MMD", "-c"]
        flags += ["-DPy_LIMITED_API=0x030B0000", f'-DSOURCES_HASH="{sources}"']
        flags += [f"-I{sysconfig.get_path('include')}", f"-I{check.parent / 'csrc'}"]
        for source in csrc.glob("*.c"):
            needs = self._needs.get(source, [changed])
            if changed not in needs and not source.name.endswith(("module.c", "search_bindings.c")):
                continue
            made = source.with_suffix(".o")
            if subprocess.run(["gcc", *flags, source, "-o", made], capture_output=True).returncode:
                return False
            self._needs[source] = re.findall(r"[\w.]+", source.with_suffix(".d").read_text())
        target = csrc.parent / _COMPILED_MODULES[str(csrc.relative_to(self.folder))]
        target.unlink(missing_ok=True)
        return not subprocess.run(["gcc", "-shared", *csrc.glob("*.o"), "-o", target]).returncode

    def run_tests(self, tests: str, seconds: float) -> str:
        """Run tests with a time limit of ``seconds``.

        Returns:
            The first failing test, "too late" after the time limit, or "" if all tests pass.
        """
        folders = os.pathsep.join(str(self.folder / name) for name in _SOURCE_FOLDERS)
        words = ["timeout", "--signal=KILL", str(seconds), sys.executable, "-m", "pytest"]
        words += ["-x", "-q", "-n0", "--tb=line", "-m", "not slow", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*words, "-p", "no_smaller_example", *tests.split()],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": folders},
            capture_output=True,
            text=True,
            errors="replace",
        )
        failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
        what = "too late" if done.returncode < 0 else f"status {done.returncode}"
        return "" if done.returncode == 0 else failed[1] if failed else what


def _test_module(
    copy: _ProjectCopy, path: str, tests: str, results: dict[str, str], accepted: dict[str, str]
) -> collections.Counter[str]:
    """Test the mutants of one module and print the result.

    Returns:
        The number of mutants by result.
    """
    text, began = (_ROOT / path).read_text(), time.monotonic()
    counts, limit = collections.Counter[str](), 0.0
    tests = " ".join([path] * (">>>" in text) + [f"tests/{name}" for name in tests.split()])
    for mutant in _select_mutants(path, text):
        changed = mutant.apply_to(text)
        key = hashlib.sha256(changed.encode()).hexdigest()
        if key not in results:
            if not limit:
                copy.write_file(path, text)
                if failed := copy.run_tests(tests, 1000):
                    raise SystemExit(f"{path}: {failed} fails without mutants")
                limit = 15 + 4 * (time.monotonic() - began)
            if not copy.write_file(path, changed):
                continue  # The mutant does not compile and does not count.
            results[key] = copy.run_tests(tests, limit)
            with _RESULTS_PATH.open("a") as file:
                line = {"mutant": key, "name": mutant.name, "detected": results[key]}
                print(json.dumps(line), file=file)
        what = "detected" if results[key] else "accepted" if mutant.name in accepted else "missed"
        counts.update(["mutants", what])
        if what == "missed":
            print(f"NOT DETECTED {mutant.name}", flush=True)
    copy.write_file(path, text)
    took = time.monotonic() - began
    print(f"{path}: {counts['detected']} of {counts['mutants']}, {took:.0f} s", flush=True)
    return counts


def main(modules: list[str]) -> int:
    """Test the mutants of some modules or of all modules.

    Args:
        modules: Words; a module is selected if its path contains one of the words. An empty list
            selects all modules.

    Returns:
        The exit status.
    """
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    _RESULTS_PATH.parent.mkdir(exist_ok=True)
    lines = _RESULTS_PATH.read_text().splitlines() if _RESULTS_PATH.exists() else []
    results = {
        one["mutant"]: one["detected"] for one in map(json.loads, lines) if one.get("detected")
    }
    counts = collections.Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        copy = _ProjectCopy(Path(folder))
        for path, tests in table["tests"].items():
            if not modules or any(name in path for name in modules):
                counts += _test_module(copy, path, tests, results, table["accepted"])
    detected = counts["detected"] / max(1, counts["mutants"])
    print(f"{counts['mutants']} mutants, {detected:.1%} detected; {counts['accepted']} accepted")
    return 1 if counts["missed"] or detected < _MIN_DETECTED_FRACTION else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
