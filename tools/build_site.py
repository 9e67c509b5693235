"""Builds the documentation site: `python tools/build_site.py site`, or `make site`.

Three steps: the game and the search are compiled to WebAssembly for the page that plays, the
gallery's pictures are drawn, and Sphinx makes the pages. Nothing is fetched; a warning is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import draw_gallery

from battlesnake_gym.rules import Snake, tables
from battlesnake_heuristics.search.evaluation import CELLS_TO_LOGIT, SHIPPED, Evaluation
from battlesnake_heuristics.search.search import Weights
from battlesnake_server.frames import looks_of

HERE = Path(__file__).parents[1]
DOCS = HERE / "docs"
PAGE = ("index.html", "play.js", "worker.js")
SHARED = ("board.js", "copy.js", "look.css", "icon.svg")
"""What the page takes from the live snake's and the arena's pages."""

FOR_ALL = {
    'role="heading">': 'role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Pages">',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    '<div id="search-results"></div>': '<h1>Search</h1><div id="search-results"></div>',
}
"""What Sphinx and its theme write that keyboards and screen readers miss, and what they need."""

PYTHON_DOORS = ("batch.c", "module.c", "observe.c", "masks.c", "tables.c")
"""Sources of the engine that the page does without: they speak to Python or to learners."""


def main() -> None:
    """Build the site into the folder that is named."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path, help="folder of the site")
    parser.add_argument("--only", choices=("play", "pages"), help="one part of it")
    arguments = parser.parse_args()
    if arguments.only != "play":
        draw_gallery.draw(DOCS / "_gallery")
        make_pages(arguments.output)
    if arguments.only != "pages":
        lay_page(arguments.output / "docs" / "play")


def lay_page(folder: Path) -> None:
    """Put the page that plays, and all that it needs, into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PAGE:
        shutil.copy(DOCS / "play" / name, folder)
    for name in SHARED:
        shutil.copy(HERE / "server/battlesnake_server/static" / name, folder)
    champion = Evaluation.load(SHIPPED)
    facts = {
        "CELLS_TO_LOGIT": CELLS_TO_LOGIT,
        "LOOKS": looks(),
        "TRAINED_FOR": champion.facts["trained_for"],
    }
    lines = [f"export const {name} = {json.dumps(value)};\n" for name, value in facts.items()]
    (folder / "facts.js").write_text("".join(lines))
    compile_game(folder / "game.wasm", champion)


def looks() -> list[dict[str, Any]]:
    """Colours and shapes of the snakes, the visitor's first, as the arena's pages have them."""
    wear = [("smile", "curled"), ("evil", "sharp"), ("shades", "fat-rattle"), ("fang", "bolt")]
    return looks_of(
        [Snake(head, [(0, 0)], customizations={"head": head, "tail": tail}) for head, tail in wear]
    )


def compile_game(target: Path, evaluation: Evaluation) -> None:
    """Compile the engine's rules and the search, unchanged, with the C compiler of Zig."""
    engine = HERE / "battlesnake_gym/engine/csrc"
    search = HERE / "heuristics/battlesnake_heuristics/search/csrc"
    sources = [
        DOCS / "play" / "game.c",
        *(path for path in sorted(engine.glob("*.c")) if path.name not in PYTHON_DOORS),
        *(path for path in sorted(search.glob("*.c")) if "Python.h" not in path.read_text()),
    ]
    weights = ",".join(str(weight) for weight in Weights().packed())
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi", f"-I{engine}"]
    command += ["-mexec-model=reactor", "-std=gnu2x", "-O3", "-msimd128", "-Wl,--strip-all"]
    # a page knows no other clock
    command += [f"-DCLOCK_{whose}_CPUTIME_ID=CLOCK_MONOTONIC" for whose in ("THREAD", "PROCESS")]
    command += [f"-DSEARCH_WEIGHTS={weights}", "-o", str(target), *map(str, sources)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "numbers").write_bytes(evaluation.numbers)
        filled = Path(folder) / "tables.c"
        filled.write_text(filled_tables(engine))
        subprocess.run([*command, str(filled), f"--embed-dir={folder}"], check=True)


def filled_tables(engine: Path) -> str:
    """C with what Python hands over to the engine elsewhere: a page has none."""
    lines = [f'#include "{engine / name}"' for name in ("rand.h", "tables.h")]
    for name, content in {"RANDOM": tables.RANDOM, **tables.LAYOUTS}.items():
        numbers = ",".join(map(str, content))
        lines.append(f"_Alignas(8) static const unsigned char {name}_BYTES[] = {{{numbers}}};")
    for name in tables.LAYOUTS:
        whole = f"sizeof {name}_BYTES / sizeof(Point)"
        lines.append(f"Places {name} = {{(const Point *){name}_BYTES, {whole}}};")
    body = "return rand_init((const char *)RANDOM_BYTES, sizeof RANDOM_BYTES);"
    lines.append(f"int tables_init(void) {{ {body} }}")
    return "\n".join(lines) + "\n"


def make_pages(output: Path) -> None:
    """Run Sphinx; the first page is ``docs/index.html``, and the root leads there."""
    shutil.rmtree(DOCS / "_api", ignore_errors=True)  # pages of modules that have moved since
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command += ["-c", "docs", ".", str(output.absolute())]
    subprocess.run(command, check=True, cwd=HERE, env=environment)
    for page in output.rglob("*.html"):
        text = page.read_text()
        for made, mended in FOR_ALL.items():
            text = text.replace(made, mended)
        page.write_text(text)
    (output / "index.html").write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Battlesnake</title>'
        '<meta http-equiv="refresh" content="0; url=docs/index.html">'
        '<a href="docs/index.html">Battlesnake, learned and served</a>\n'
    )


if __name__ == "__main__":
    main()
