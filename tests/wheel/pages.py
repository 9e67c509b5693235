"""The fenced blocks of the documentation, and the commands in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "server/battlesnake_server/default_policy/README.md",
    *sorted(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md")),
)

SHELL = {"bash", "sh", "console"}
OTHERS = {"python", "text", "json", "yaml", "nginx"}
"""Languages of blocks; what is none of these is a directive of the site, in braces."""

FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block; ``file`` is the name that stands beside its language, if any."""

    line: int
    language: str
    file: str
    text: str


def blocks(page: str) -> list[Block]:
    """All blocks of a page, in order."""
    text = (ROOT / page).read_text()
    found = []
    for match in FENCE.finditer(text):
        language, _, file = match[1].partition(" ")
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(line, language, file.strip(), match[2]))
    return found


@dataclass(frozen=True)
class Command:
    """One command, and what the page shows as its output."""

    line: str
    output: str = ""


def commands(block: Block) -> list[Command]:
    """The commands of a block; in a console those behind a prompt, else every line."""
    text = block.text.replace("\\\n", " ")
    if block.language != "console":
        lines = (line.strip() for line in text.splitlines())
        return [Command(line) for line in lines if line and not line.startswith("#")]
    found = []
    for part in re.split(r"^(?=[$#] )", text, flags=re.MULTILINE):
        first, _, output = part.partition("\n")
        if first:
            found.append(Command(first[2:], output))
    return found
