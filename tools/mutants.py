"""Breaks the code a line at a time, and looks whether the tests notice.

    python tools/mutants.py                          all modules that mutants.toml names
    python tools/mutants.py server heuristics        those in folders, or of these names

A mutant is one changed line: another comparison, a sign, a number that is one too high, a condition
turned round, a statement left out. Each module gets the same ones every time (``--most``), and each
of them the tests that ``mutants.toml`` names for its module, until one fails. C is compiled again.
All happens in a copy, several can run beside each other, and what was noticed is kept in
``build/mutants.jsonl`` until the line or what is around it changes: an interrupted run goes on.

What no test notices must be in ``mutants.toml`` with a reason. The exit status is 1 where one is
not, or where fewer than 95 of 100 are noticed.
"""

from __future__ import annotations

import argparse
import ast
import collections
import hashlib
import importlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tokenize
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
KEPT = ROOT / "build/mutants.jsonl"
WANTED = 0.95
FOLDERS = (".", "heuristics", "server", "rllib_src", "rllib_common/sagemaker_rl")
COMPILED = {
    "battlesnake_gym/engine/csrc": "_engine.abi3.so",
    "heuristics/battlesnake_heuristics/search/csrc": "_search.abi3.so",
}
SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+",
    "+=": "-=", "-=": "+=", "*": "+", "//": "*", "/": "*", "%": "+", "and": "or", "or": "and",
    "&&": "||", "||": "&&", "min": "max", "max": "min", "any": "all", "all": "any",
    "smallest": "largest", "largest": "smallest", "True": "False", "False": "True",
    "true": "false", "false": "true", "is": "is not", "in": "not in", "not": "", "break": "pass",
    "continue": "pass",
}  # fmt: skip
"""What a word of the code is replaced by."""

QUIET = re.compile(r"^\s*(@|import |from |__all__|def |class |assert |\w+: .*\[.*\]$)|\blog\w*\.")
"""Lines of Python that are no code, or say something."""

COMPARED = re.compile(r" (and|or|in|is|[<>=!]=|[<>]) ")

C_WORD = re.compile(
    r"(?<= )(?:[<>]=?|[=!]=|[-+]=?|&&|\|\|)(?= )|\b(?:smallest|largest|true|false)\b"
    r"|(?<![\w.\[])\d+\b(?![.x])|!(?=[a-z(])"
)
C_STATEMENT = re.compile(r"^( +)[a-z_][\w>.\[\]*-]*(\(.*\)| [-+*/|&^]?= .*);$")
C_QUIET = re.compile(
    r"^\s*(#|/?\*|//|for \(|static |[a-z]\w* \**\w+\[|extern|PyErr|return REFUSE|.* = \{)"
)


class Mutant(NamedTuple):
    """A line of a file, and the one that replaces it."""

    path: str
    number: int
    old: str
    new: str

    @property
    def name(self) -> str:
        """What ``mutants.toml`` calls it."""
        return f"{self.path}: {self.old.strip()} -> {self.new.strip()}"

    def applied(self, text: str) -> str:
        """The file with this line."""
        lines = text.split("\n")
        lines[self.number] = self.new
        return "\n".join(lines)


def mutants(path: str, text: str, most: int) -> list[Mutant]:
    """At most ``most`` of a file's mutants: always the same, spread over the file."""
    lines = text.split("\n")
    changes = c_changes(lines) if path.endswith((".c", ".h")) else python_changes(text, lines)
    found: dict[str, Mutant] = {}
    for number, new in changes:
        mutant = Mutant(path, number, lines[number], new)
        found.setdefault(mutant.name, mutant)
    order = sorted(found, key=lambda name: hashlib.sha256(name.encode()).digest())
    valid = (found[name] for name in order if parses(path, found[name].applied(text)))
    return list(itertools.islice(valid, most))


def parses(path: str, text: str) -> bool:
    """Whether a text is Python, where it has to be."""
    try:
        if path.endswith(".py"):
            ast.parse(text)
    except SyntaxError:
        return False
    return True


def python_changes(text: str, lines: list[str]) -> Iterator[tuple[int, str]]:
    """Numbers of lines from 0, and what they become."""
    kinds = (ast.Expr, ast.AugAssign, ast.Raise)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, kinds) and node.lineno == node.end_lineno:
            if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Call):
                continue
            line = lines[node.lineno - 1]
            if not QUIET.search(line):
                yield (
                    node.lineno - 1,
                    line[: node.col_offset] + "pass" + line[node.end_col_offset :],
                )
    words = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for before, word, after in zip(words, words[1:], words[2:], strict=False):
        (row, start), (_, end) = word.start, word.end
        line = lines[row - 1]
        if QUIET.search(line) or (word.type == tokenize.NAME and before.string in (".", "for")):
            continue
        new = SWAPS.get(word.string)
        if word.type == tokenize.NUMBER and word.string.isdecimal():
            new = str(int(word.string) + 1)
        elif word.string in ("if", "while") and "else" not in line and before.string.isspace():
            new = f"{word.string} not" if after.string != "not" else None
            if COMPARED.search(line):
                new = None  # the other words say the same
        elif word.type not in (tokenize.NAME, tokenize.OP) or re.search(r"\bfor\b", line[:start]):
            new = None
        if word.string in ("*", "-", "+") and before.string in ("(", ",", "[", "=", "return", ":"):
            new = None  # one that belongs to what follows
        if new is not None and not (word.string in ("in", "is") and after.string == "not"):
            yield row - 1, line[:start] + new + line[end:]


def c_changes(lines: list[str]) -> Iterator[tuple[int, str]]:
    """The same of C; ends of loops are left to the sanitizers."""
    inside = False
    for number, line in enumerate(lines):
        inside = (inside or "/*" in line) and "*/" not in line
        code = line.split("/*")[0].rstrip()
        if inside or not code or C_QUIET.match(line) or "*/" in line.split("/*")[0]:
            continue
        if statement := C_STATEMENT.match(code):
            yield number, f"{statement[1]};"
        if '"' in code:
            continue
        for word in C_WORD.finditer(code):
            new = "" if word[0] == "!" else SWAPS.get(word[0]) or str(int(word[0]) + 1)
            yield number, line[: word.start()] + new + line[word.end() :]


class Copy:
    """A copy of the project, in which lines are broken and tests run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listed = subprocess.run(
            ["git", "ls-files", "-zco", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
        )
        compiled = [f"{Path(csrc).parent}/{name}" for csrc, name in COMPILED.items()]
        for name in (*listed.stdout.decode().split("\0"), *compiled):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, folder / name)
        self._needs: dict[Path, set[str]] = {}
        self._written = 0

    def write(self, path: str, text: str) -> bool:
        """Change a file; whether it could be compiled."""
        file = self.folder / path
        file.write_text(text)
        self._written += 1  # a time of its own: else Python believes what it compiled before
        os.utime(file, (1e9 + self._written, 1e9 + self._written))
        csrc = str(Path(path).parent)
        return csrc not in COMPILED or self._compile(self.folder / csrc, file.name)

    def _compile(self, csrc: Path, changed: str) -> bool:
        """Compile what includes the changed file; all the first time."""
        check = self.folder / "battlesnake_gym/engine/build_check.py"
        hashed = "import runpy, sys, pathlib; print(runpy.run_path(sys.argv[1])['hash_of_sources']"
        hashed += "(pathlib.Path(sys.argv[2])))"
        sources = subprocess.run(
            [sys.executable, "-c", hashed, check, csrc], capture_output=True, text=True, check=True
        )
        flags = ["-std=gnu11", "-O1", "-ffp-contract=off", "-fPIC", "-w", "-MMD", "-c"]
        flags += ["-DPy_LIMITED_API=0x030B0000", f'-DSOURCES="{sources.stdout.strip()}"']
        flags += [f"-I{sysconfig.get_path('include')}", f"-I{check.parent / 'csrc'}"]
        for source in csrc.glob("*.c"):
            needs = self._needs.get(source)
            if needs and changed not in needs and not source.name.endswith("module.c"):
                continue
            made = source.with_suffix(".o")
            if subprocess.run(["gcc", *flags, source, "-o", made], capture_output=True).returncode:
                return False
            names = source.with_suffix(".d").read_text().replace("\\\n", " ").split()
            self._needs[source] = {Path(name).name for name in names}
        target = csrc.parent / COMPILED[str(csrc.relative_to(self.folder))]
        target.unlink(missing_ok=True)
        linked = subprocess.run(["gcc", "-shared", *csrc.glob("*.o"), "-o", target])
        return linked.returncode == 0

    def notice(self, tests: str, seconds: float) -> str:
        """The test that fails, "too late" after so many seconds, or "" where all pass."""
        log = self.folder / "mutants.log"
        child = os.fork()
        if not child:
            self._test(tests, log)
        end = time.monotonic() + seconds
        while (done := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < end:
            time.sleep(0.02)
        if done == (0, 0):
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "too late"
        if done[1] == 0:
            return ""
        failed = re.search(
            r"^(?:FAILED|ERROR) (\S+)", log.read_text(errors="replace"), re.MULTILINE
        )
        return failed[1] if failed else f"status {done[1]}"

    def _test(self, tests: str, log: Path) -> None:
        """In a process of its own, with all that takes long to import imported already."""
        os.setsid()
        os.chdir(self.folder)
        with log.open("w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        folders = [str(self.folder / name) for name in FOLDERS]
        sys.path[:0] = folders
        os.environ["PYTHONPATH"] = os.pathsep.join(folders)
        import pytest

        words = ["-x", "-q", "-n0", "--tb=line", "-m", "not slow", "-p", "no:cacheprovider"]
        words += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
        status = pytest.main([*words, *tests.split()])
        sys.stdout.flush()
        os._exit(status)


def prepare(tests: str) -> None:
    """Import what no mutant changes; no failing test looks for a smaller example."""
    from hypothesis import Phase, settings

    settings.register_profile(
        "mutants", phases=[Phase.explicit, Phase.generate], database=None, derandomize=True
    )
    settings.load_profile("mutants")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("numpy", "yaml", *(("torch", "ray.rllib") if "mabs" in tests else ())):
            importlib.import_module(name)


def main() -> int:
    """Try the mutants of the modules named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", help="folders or files (all of mutants.toml)")
    parser.add_argument("--most", type=int, default=12, help="mutants a module (%(default)s)")
    options = parser.parse_args()
    table = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    chosen = {
        path: tests
        for path, tests in table["tests"].items()
        if not options.modules or any(name in path for name in options.modules)
    }
    KEPT.parent.mkdir(exist_ok=True)
    lines = KEPT.read_text().splitlines() if KEPT.exists() else []
    kept = {one["mutant"]: one["noticed"] for one in map(json.loads, lines) if one["noticed"]}
    counts = collections.Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        copy = Copy(Path(folder))
        for path, tests in chosen.items():
            counts += one_module(copy, path, tests, kept, table["left"], options.most)
    share = counts["noticed"] / max(1, counts["mutants"])
    print(f"{counts['mutants']} mutants, {share:.1%} noticed; {counts['left']} left with a reason")
    return 1 if counts["missed"] or share < WANTED else 0


def one_module(
    copy: Copy, path: str, tests: str, kept: dict[str, str], left: dict[str, str], most: int
) -> collections.Counter[str]:
    """Try the mutants of a module, and say what came of them."""
    text = (ROOT / path).read_text()
    counts, limit = collections.Counter[str](), 0.0
    tests = " ".join(f"tests/{name}" for name in tests.split())
    if ">>>" in text:
        tests = f"{path} {tests}"
    began = time.monotonic()
    for mutant in mutants(path, text, most):
        changed = mutant.applied(text)
        key = hashlib.sha256(changed.encode()).hexdigest()
        if key not in kept:
            if not limit:
                prepare(tests)
                copy.write(path, text)
                start = time.monotonic()
                if failed := copy.notice(tests, 1000):
                    raise SystemExit(f"{path}: {failed} fails without a mutant")
                limit = 15 + 4 * (time.monotonic() - start)
            if not copy.write(path, changed):
                continue  # no C
            kept[key] = copy.notice(tests, limit)
            with KEPT.open("a") as file:
                line = {"mutant": key, "name": mutant.name, "noticed": kept[key]}
                print(json.dumps(line), file=file)
        counts["mutants"] += 1
        what = "noticed" if kept[key] else "left" if mutant.name in left else "missed"
        counts[what] += 1
        if what == "missed":
            print(f"NOT NOTICED {mutant.name}", flush=True)
    copy.write(path, text)
    took = time.monotonic() - began
    print(f"{path}: {counts['noticed']} of {counts['mutants']}, {took:.0f} s", flush=True)
    return counts


if __name__ == "__main__":
    sys.exit(main())
