"""Counts the words that `docs/english.md` replaces; exit status 1 where there are too many."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).parents[1]
_PAGE = "docs/english.md"
_READ = ("*.py", "*.c", "*.h", "*.js", "*.md", f":!{_PAGE}", ":!tests", ":!tools/prose.py")


def rows(page: str) -> list[tuple[list[str], str, int]]:
    """The table: words, what to write instead, the most lines that may have one of them.

    >>> rows("| not | but | lines at most |\\n|---|---|---|\\n| told, tells | shown | 70 |")
    [(['told', 'tells'], 'shown', 70)]
    """
    found = []
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 3 and cells[2].isdecimal():
            found.append((cells[0].split(", "), cells[1], int(cells[2])))
    return found


def lines_with(words: list[str]) -> list[str]:
    """``file:line:text`` of all lines of the repository that have one of ``words``."""
    pattern = r"\b(" + "|".join(map(re.escape, words)) + r")\b"
    command = ["git", "grep", "-niP", pattern, "--", *_READ]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def main() -> int:
    """Print what is too much."""
    status = 0
    for words, instead, most in rows((_ROOT / _PAGE).read_text()):
        found = lines_with(words)
        if len(found) > most:
            status = 1
            print(*found, sep="\n")
            print(f"{len(found)} lines with {' or '.join(words)}, at most {most}: write {instead}")
    return status


if __name__ == "__main__":
    sys.exit(main())
