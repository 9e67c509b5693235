"""The pages of the documentation: structure, length, and names that exist."""

import ast
import dataclasses
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from battlesnake_gym.cli.main import COMMANDS
from tests.parsers import parser_of
from tests.test_code_map import defined
from tests.wheel.pages import DOCS, FENCE, ROOT

HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))
NAMED = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]

MODEL_CARDS = (
    ROOT / "server/battlesnake_server/default_policy/README.md",
    ROOT / "heuristics/battlesnake_heuristics/search/evaluations/README.md",
)
ABOUT_THE_PROJECT = ("AGENTS.md", "CONTRIBUTING.md", "SECURITY.md")

PACKAGES = {
    "battlesnake_gym": "battlesnake_gym",
    "battlesnake_heuristics": "heuristics/battlesnake_heuristics",
    "battlesnake_server": "server/battlesnake_server",
    "battlesnake_rl": "rllib_src/battlesnake_rl",
    "sagemaker_rl": "rllib_common/sagemaker_rl",
}

OTHER_FILES = (
    *("training_src/", "common/", "envs/", "models/", "algorithms/", "callbacks/"),
    *("preprocessors/", "experiments/", "utilities/"),
)
"""Folders of the starter kits, and of the reader's own files."""

OTHER_FLAGS = {
    *("--read-only", "--tmpfs", "--time", "--index-url", "--require-hashes", "--build-arg"),
    *("--ha", "--auto-stop", "--force", "--address", "--lines", "--only", "--minutes"),
    *("--environment", "--learned", "--run", "--config", "--stop", "--train", "--out"),
    *("--save-info", "--use-shelve", "--monitor", "--env", "--episodes", "--repo-type", "--region"),
    *("--version", "--help", "--help-all"),
}
"""Options of other programs, and of scripts in `benchmarks` and `conformance`."""


def spans(page: Path) -> list[str]:
    """Return the code spans of a page."""
    text = FENCE.sub("", page.read_text())
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]


def command_lines(page: Path) -> list[str]:
    """Return the lines with a command of this project, of all blocks and spans of a page."""
    blocks = [block for _, block in FENCE.findall(page.read_text())]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines() + spans(page)
    return [line for line in lines if re.match(r"(\$ )?(\w+=\S+ )?battlesnake-gym \w", line)]


def title(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", HOW_TO, ids=title)
def test_a_how_to_page_is_short(page: Path) -> None:
    assert len(page.read_text().split()) <= 600


def test_the_documentation_is_short() -> None:
    def words(pages: Iterator[Path]) -> int:
        return sum(len(page.read_text().split()) for page in pages)

    research, project = ROOT / "docs/research", ROOT / "docs/project"
    user = (page for page in DOCS if page.parent not in (research, project))
    assert words(iter([ROOT / "README.md", *user])) <= 28_000
    assert words(iter([*MODEL_CARDS, *research.glob("*.md")])) <= 12_000
    about = [ROOT / name for name in ABOUT_THE_PROJECT]
    assert words(iter([*about, *project.glob("*.md")])) <= 4_000


@pytest.mark.parametrize("page", HOW_TO, ids=title)
def test_runs_of_two_algorithms_have_two_names(page: Path) -> None:
    algorithms: dict[str, str] = {}
    for line in command_lines(page):
        options = dict(re.findall(r"--(name|experiment|algorithm) (\S+)", line))
        name = options.get("name", options.get("experiment"))
        if " train " in line and "--dry-run" not in line and name:
            algorithm = options.get("algorithm", "")
            assert algorithms.setdefault(name, algorithm) == algorithm, line


def test_every_page_is_in_the_menu() -> None:
    def below(page: Path) -> Iterator[Path]:
        yield page
        for block in re.findall(r"^```\{toctree\}\n(.*?)^```$", page.read_text(), re.M | re.S):
            for line in filter(lambda line: not line.startswith(":"), block.splitlines()):
                name = re.sub(r".*<(.*)>", r"\1", line)
                for path in page.parent.glob(f"{name}.md") if ".." not in name else ():
                    yield from below(path)

    assert sorted(below(ROOT / "docs/index.md")) == DOCS


@pytest.mark.parametrize("page", NAMED, ids=title)
def test_files_exist(page: Path) -> None:
    folders = {path.name for path in ROOT.iterdir() if path.is_dir()} - {"runs", "replays", "demo"}
    for span in spans(page):
        path = span.partition(":")[0]
        if not re.fullmatch(r"[\w.-]+(/[\w.*-]+)+/?", path) or path.startswith(OTHER_FILES):
            continue
        if path.partition("/")[0] in folders:
            made = path.startswith(("notebooks/", "site/")) or "*" in path
            assert made or (ROOT / path).exists(), f"{span}: no such file"


@pytest.mark.parametrize("page", NAMED, ids=title)
def test_symbols_exist(page: Path) -> None:
    text = page.read_text()
    names = {span for span in spans(page) if re.fullmatch(r"[a-z_]+(\.\w+)+(\(.*\))?", span)}
    names |= {f"{module}.{name}" for module, name in imports(text)}
    for name in names:
        if name.partition(".")[0] in PACKAGES:
            assert resolves(name.partition("(")[0]), f"{name}: no such symbol"


def imports(text: str) -> Iterator[tuple[str, str]]:
    """Yield the modules and names of the imports in a page's Python blocks."""
    for head, block in FENCE.findall(text):
        if head.startswith("python"):
            code = "\n".join(re.sub(r"^(>>>|\.\.\.) ?", "", line) for line in block.splitlines())
            for module, names in re.findall(r"^from (\S+) import ([\w, ]+)$", code, re.M):
                yield from ((module, name.partition(" ")[0]) for name in names.split(", "))


def resolves(name: str) -> bool:
    """Return whether a dotted name is a module, or a name at the top of one."""
    package, *parts = name.split(".")
    path = ROOT / PACKAGES[package]
    while parts and ((path / parts[0]).is_dir() or (path / f"{parts[0]}.py").exists()):
        path = path / parts.pop(0)
    if not parts:
        return True
    file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    if not file.exists():
        return False
    tree = ast.parse(file.read_text())
    known = defined(tree) | {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom | ast.Import)
        for alias in node.names
    }
    return parts[0] in known or f'"{parts[0]}"' in file.read_text()


@cache
def options(command: str) -> set[str]:
    """Return the options of a command; `train` also has all settings of all algorithms."""
    found = set(parser_of(command)._option_string_actions)
    if command == "train":
        settings = pytest.importorskip("battlesnake_rl.mabs.settings.algorithm_settings")
        for cls in settings.ALGORITHMS.values():
            names = (field.name.strip("_") for field in dataclasses.fields(cls))
            found |= {f"--{name.replace('_', '-')}" for name in names}
    return found


@pytest.mark.parametrize("page", NAMED, ids=title)
def test_commands_and_options_exist(page: Path) -> None:
    for line in command_lines(page):
        words = line.partition("battlesnake-gym ")[2].partition("  #")[0].split()
        two = " ".join(words[:2])
        command = two if two in COMMANDS else words[0]
        if command in ("COMMAND",):
            continue
        assert command in COMMANDS, line
        for flag in re.findall(r"(?<!\S)(--[a-z][\w-]*)(?![\w.-])", line):
            assert flag in options(command) | {"--help", "--help-all"}, f"{line}: no {flag}"


@pytest.mark.parametrize("page", NAMED, ids=title)
def test_options_alone_exist(page: Path) -> None:
    every = set[str]().union(*(options(command) for command in COMMANDS)) | OTHER_FLAGS
    for span in spans(page):
        for flag in re.findall(r"^(--[a-z][\w-]*)(?![\w.-])", span):
            assert flag in every, f"{span}: no command has {flag}"


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in NAMED:
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(), re.M):
            assert re.search(rf"^{target}:", makefile, re.M), f"{page}: make {target}"
