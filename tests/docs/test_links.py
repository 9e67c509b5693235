"""Every relative link of a page or notebook leads to a file, and every anchor to a heading."""

import json
import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINK = re.compile(r'\]\(([^)\s]+)\)|(?:src|href)="([^"]+)"')
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
GENERATED = ("_gallery/", "_reference/", "play/index.html", "play/puzzles.html")
"""Places in `docs` that `make site` fills."""

FILES = [
    ROOT / name
    for name in subprocess.run(
        ["git", "ls-files", "*.md", "*.ipynb"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    if (ROOT / name).exists()
]


def text_of(path: Path) -> str:
    """Return the Markdown of a page, or of the Markdown cells of a notebook."""
    text = path.read_text()
    if path.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "markdown")


@cache
def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as code hosts and the site make them."""
    titles = re.findall(
        r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text_of(path), flags=re.M | re.S), re.M
    )
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    for found in LINK.findall(CODE.sub("", text_of(path))):
        link = found[0] or found[1]
        if re.match(r"(\w+:|\.\./\.\./actions)", link) or any(one in link for one in GENERATED):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        assert target.exists(), f"{link}: no such file"
        if anchor and target.suffix in (".md", ".ipynb"):
            assert anchor in anchors(target), f"{link}: no such heading"
