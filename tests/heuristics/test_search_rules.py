"""The search implements the rules: C compared with Python, and mutants of the C."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

import battlesnake_heuristics
from battlesnake_gym.engine import build_check
from tests.heuristics.search_rules import NO_DIFFERENCE, differences, games_of
from tests.processes import run

_search = pytest.importorskip("battlesnake_heuristics.search._search")

SOURCES = Path(battlesnake_heuristics.__file__).parent / "search/csrc"
ROOT = Path(__file__).parents[2]


class Mutant(NamedTuple):
    """A wrong line: its meaning, file, the original text and the replacement."""

    what: str
    file: str
    old: str
    new: str


MUTANTS = [
    Mutant(rule, file, *change)
    for file, changes in {
        "position.h": [
            ("nobody hungers", "    health--;\n    if (bits_has", "    if (bits_has"),
            ("food comes a turn late", "return 100;", "return 99;"),
            ("food in hazards does not save", "(bits_has(&pos->food, cell)) return", "(0) return"),
            ("one layer of hazard is as many", "layer > 0; layer--", "layer > 0; layer = 0"),
            ("healing goes beyond 100", "if (health > 100) health = 100;", ""),
            ("stacks stay", "        body->stacked--;\n", ""),
            ("tails stay", "        body->tail++;\n", ""),
            (
                "tails stay on the board",
                "vacate_cell(search, pos, s, segment(search, s, body->tail));",
                ";",
            ),
            (
                "eating makes no longer",
                "            body->length++;\n            fed",
                "            fed",
            ),
            (
                "eating stacks nothing",
                "            body->stacked++;\n            body",
                "            body",
            ),
            ("food stays", "            bits_remove(&pos->food, targets[s]);\n", ""),
            ("eaten food stays in the key", "pos->hash ^= search->food_key[targets[s]];", ";"),
            (
                "the starved block others",
                "targets[s] == OFF_BOARD) eliminate(search, to, s);",
                "0) ;",
            ),
            ("nobody dies in a body", "dies[s] |= bits_has(&pos->occupied, targets[s]);", ""),
            (
                "heads of one length pass",
                "pos->snake[o].length >= pos->snake[s].length",
                "pos->snake[o].length > pos->snake[s].length",
            ),
            ("the longer dies, too", "pos->snake[o].length >= pos->snake[s].length", "1"),
            (
                "collisions one after the other",
                "dies[o] |= pos",
                "dies[o] |= !dies[s] && pos",
            ),
            (
                "the dead still lie there",
                "vacate_cell(search, pos, s, segment(search, s, i));",
                ";",
            ),
            (
                "heads of the dead stay in the key",
                "pos->hash ^= search->head_key[s][segment(search, s, body->head)];",
                ";",
            ),
            ("constrictors hunger", "        body->health = 100;\n", ""),
            ("constrictors do not grow", "            body->stacked = 1;\n", ""),
            (
                "constrictors grow without length",
                "body->stacked = 1;\n            body->length++;",
                "body->stacked = 1;",
            ),
            (
                "constrictors keep their food",
                "bits_any(to->food)) remove_all_food(search, to);",
                "0) ;",
            ),
        ],
        "search_kernel.h": [
            ("up does not wrap", "cell + width : wrap ? x : OFF_BOARD", "cell + width : OFF_BOARD"),
            (
                "down wraps a row too high",
                "width * (height - 1) : OFF_BOARD",
                "width * (height - 2) : OFF_BOARD",
            ),
            ("walls are open on the left", "x > 0 ? cell - 1 :", "cell > 0 ? cell - 1 :"),
            ("stacks are not seen", "        stacked++;\n", "        break;\n"),
            ("bodies are set up as long as they look", ".length = length", ".length = num_cells"),
        ],
    }.items()
    for rule, *change in changes
]


def build(folder: Path) -> Path:
    """Compile the C sources in ``folder`` without optimization."""
    target = folder / f"_search{sysconfig.get_config_var('EXT_SUFFIX')}"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    command = [compiler, "-std=gnu11", "-O0", "-shared", "-fPIC", "-DPy_LIMITED_API=0x030B0000"]
    command += [f"-I{sysconfig.get_path('include')}", f"-I{build_check.SHARED_SOURCES[0].parent}"]
    command += map(str, folder.glob("*.c"))
    if sys.platform == "darwin":
        command += ["-undefined", "dynamic_lookup"]
    subprocess.run([*command, "-o", str(target)], check=True)
    return target


def noticed(target: Path, turns: int) -> str:
    """Return the difference of a build; uses another process, because a wrong line may crash."""
    told = run(sys.executable, "-m", "tests.heuristics.search_rules", target, turns, cwd=ROOT)
    return told.stdout.strip() or told.stderr.strip() or f"exit status {told.returncode}"


@pytest.mark.parametrize("turns", [20_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_it_plays_random_turns_as_the_rules_do(turns: int) -> None:
    assert list(itertools.islice(differences(_search, 7, turns), 3)) == []


def test_the_random_games_hold_what_the_rules_know() -> None:
    seen: Counter[str] = Counter()
    for game, state in games_of(7, 150):
        seen[game.ruleset] += 1
        seen[f"{len(state.snakes)} snakes"] += 1
        seen["healing"] += game.settings.hazard_damage_per_turn < 0 and bool(state.hazards)
        seen["stacked hazards"] += len(set(state.hazards)) < len(state.hazards)
        seen["starving"] += any(snake.health == 1 for snake in state.snakes)
        seen["7 wide"] += state.width == 7
        seen["25 wide"] += state.width == 25
    rare = [what for what, count in seen.items() if count < 8]
    assert not rare
    assert len([what for what in seen if what.endswith(" snakes")]) == 8


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.what)
def test_a_wrong_line_is_noticed(mutant: Mutant, tmp_path: Path) -> None:
    folder = tmp_path / "csrc"
    shutil.copytree(SOURCES, folder)
    source = (folder / mutant.file).read_text()
    assert source.count(mutant.old) == 1, f"{mutant.old!r} must stand once in {mutant.file}"
    (folder / mutant.file).write_text(source.replace(mutant.old, mutant.new))
    assert noticed(build(folder), 20_000) != NO_DIFFERENCE


def test_an_unchanged_copy_is_not_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "csrc"
    shutil.copytree(SOURCES, folder)
    assert noticed(build(folder), 2000) == NO_DIFFERENCE
