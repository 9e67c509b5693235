"""Build the documentation site: `python tools/build_site.py site`, or `make site`.

The script compiles the playable game and its search to WebAssembly, draws the pictures of the
gallery, and runs Sphinx. The script downloads no files. A warning of Sphinx is an error.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import draw_gallery
import numpy as np
from numpy.typing import NDArray

from battlesnake_gym import snakes
from battlesnake_gym.rules import Snake, tables
from battlesnake_heuristics.analysis import mistakes, position_analysis, win_probability
from battlesnake_heuristics.analysis.puzzles import load_builtin_puzzles
from battlesnake_heuristics.search.evaluation import BUILTIN_PATH, Evaluation
from battlesnake_heuristics.search.search import Weights
from battlesnake_server.replay_json import customizations_to_dicts
from battlesnake_server.strategy_loader import DEFAULT_POLICY_PATH as SHIPPED_POLICY
from battlesnake_server.web import puzzle_pages

_ROOT = Path(__file__).parents[1]
_DOCS_FOLDER = _ROOT / "docs"
PAGE_FILES = ("index.html", "play.js", "frames.js", "worker.js", "policy.js")
SHARED_FILES = ("board.js", "copy_button.js", "gif.js", "graph.js", "style.css", "icon.svg")
"""Files that the playable page shares with the other pages.

The other pages belong to the live snake and to the arena.
"""

_PUZZLE_FILES = ("puzzles.js", "decision.js", "requests.js")

_PREVIEW_ADDRESS = "../../_static/preview.png"

_ACCESSIBILITY_FIXES = {
    'role="heading">': 'role="heading" aria-level="2">',
    '<aside class="sidebar-drawer">': '<aside class="sidebar-drawer" aria-label="Pages">',
    '<aside class="toc-drawer': '<aside aria-label="On this page" class="toc-drawer',
    "<pre>": '<pre tabindex="0">',
    '<div class="table-wrapper': '<div tabindex="0" class="table-wrapper',
    '<div id="search-results"></div>': '<h1>Search</h1><div id="search-results"></div>',
}
"""Accessibility fixes for the output of Sphinx.

The keys are strings in the output, and the values are their replacements.
"""

_EXCLUDED_SOURCES = ("batch.c", "module.c", "map_layouts.c")
"""C sources of the engine that the page does not need.

These sources are for Python only.
"""

_SIZED_FUNCTIONS = ("{}_plain", "builtin_choices_{}", "territory_planes_{}")
"""C functions with one variant per board size.

The page omits the variant for the largest boards.
"""

_MIN_LARGE_LAYER_WEIGHTS, _MAX_4_BIT_WEIGHT, _MAX_8_BIT_WEIGHT = 100_000, 5, 127
"""Limits of the quantization of the policy.

In layers with more than `_MIN_LARGE_LAYER_WEIGHTS` weights, the weights are rounded to [-5, 5]. In
all other layers, the weights are rounded to [-127, 127]. The quantized policy prefers the best move
in 91% of the positions, and loses 0.003 cells in the remaining positions.
"""


def main() -> None:
    """Build the selected parts of the site in a directory."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("output", type=Path, help="output directory for the site")
    parser.add_argument(
        "--only", choices=("play", "pages"), help="part of the site to build (default: all)"
    )
    arguments = parser.parse_args()
    if arguments.only != "play":
        draw_gallery.write_gallery(_DOCS_FOLDER / "_gallery")
        _run_sphinx(arguments.output)
    if arguments.only != "pages":
        _write_play_page(arguments.output / "docs" / "play")
        _write_start_page(arguments.output)


def _write_start_page(folder: Path) -> None:
    """Write the start page.

    The page contains the playable game. Its links are relative to ``docs/play/``.
    """
    page = (folder / "docs" / "play" / "index.html").read_text()
    based = page.replace("<head>", '<head>\n  <base href="docs/play/">')
    (folder / "index.html").write_text(based)


def _write_play_page(folder: Path) -> None:
    """Write the page with the playable game and its files into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in PAGE_FILES:
        shutil.copy(_DOCS_FOLDER / "play" / name, folder)
    for name in (*SHARED_FILES, *_PUZZLE_FILES):
        shutil.copy(_ROOT / "server/battlesnake_server/static" / name, folder)
    puzzles = puzzle_pages.render_site_page(load_builtin_puzzles())
    (folder / "puzzles.html").write_text(puzzles.replace("./static/", ""))
    if "SITE_URL" in os.environ:  # Previews of shared links need an absolute address.
        address = f"{os.environ['SITE_URL'].rstrip('/')}/{_PREVIEW_ADDRESS.removeprefix('../../')}"
        for page in (folder / "index.html", folder / "puzzles.html"):
            page.write_text(page.read_text().replace(_PREVIEW_ADDRESS, address))
    champion = Evaluation.load(BUILTIN_PATH)
    facts = {
        "CALIBRATION": {
            "weights": win_probability.WEIGHTS,
            "far": win_probability.VALUE_SCALE,
            "late": win_probability.MAX_FEATURE_TURN,
            "decided": win_probability.MIN_PROVEN_VALUE,
            "sure": win_probability.MIN_FORCED_WIN_VALUE,
            "least": win_probability.MIN_PROBABILITY,
        },
        "LAYERS": _write_policy(folder / "policy.bin"),
        "LEARNED_RULES": json.loads(SHIPPED_POLICY.with_suffix(".json").read_text())["rulesets"],
        "LOOKS": _snake_customizations(),
        "MISTAKES": {
            "analysisNodes": position_analysis.ANALYSIS_NODES,
            "blunder": mistakes.BLUNDER_LOSS,
            "lineTurns": position_analysis.MAX_LINE_TURNS,
            "loss": mistakes.MISTAKE_LOSS,
            "rounds": mistakes.ROLLOUT_ROUNDS,
            "minDeviation": mistakes.MIN_DEVIATION,
            "minMistakeRollouts": mistakes.MIN_MISTAKE_ROLLOUTS,
            "minStandardErrors": mistakes.MIN_STANDARD_ERRORS,
            "nodes": [player.nodes for player in mistakes.ROLLOUT_PLAYERS],
            "doublings": {n: list(r) for n, r in mistakes.ROLLOUT_NODE_DOUBLINGS.items()},
            "turns": mistakes.ROLLOUT_TURNS,
        },
        "NAMED": snakes.ENGINE_SNAKES,
        "TRAINED_FOR": champion.metadata["trained_for"],
    }
    lines = [f"export const {name} = {json.dumps(value)};\n" for name, value in facts.items()]
    (folder / "facts.js").write_text("".join(lines))
    _compile_game(folder / "game.wasm", champion)


def _write_policy(target: Path) -> list[dict[str, Any]]:
    """Write the quantized default policy for the page.

    One layer has two-thirds of the weights. The quantization uses 4 bits per weight in this layer,
    and 8 bits in all other layers.

    Returns:
        The shape and the bits per weight of each layer.
    """
    import onnx

    numbers = [
        (tensor.name, onnx.numpy_helper.to_array(tensor))
        for tensor in onnx.load(SHIPPED_POLICY).graph.initializer
    ]
    biases = [array for name, array in numbers if name.endswith(".bias")]
    layers, scales, rounded = [], [], []
    for array in (array for name, array in numbers if name.endswith(".weight")):
        rows = array.reshape(len(array), -1)
        is_large = rows.size > _MIN_LARGE_LAYER_WEIGHTS
        bits, top = (4, _MAX_4_BIT_WEIGHT) if is_large else (8, _MAX_8_BIT_WEIGHT)
        scale, whole = _quantize_rows(rows, top)
        pairs = whole.reshape(-1, 2) + 8
        packed = pairs[:, 0] * 16 + pairs[:, 1] if bits == 4 else whole
        layers.append({"shape": rows.shape, "bits": bits})
        scales.append(scale)
        rounded.append(packed.astype(np.int8 if bits == 8 else np.uint8).tobytes())
    floats = np.concatenate([*scales, *biases]).astype(np.float32)
    target.write_bytes(gzip.compress(floats.tobytes() + b"".join(rounded), 9, mtime=0))
    return layers


def _quantize_rows(rows: NDArray[np.float32], top: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Quantize the rows of a matrix with the least squared error.

    Returns:
        The scale of each row, and the quantized weights in [-top, top].
    """
    peaks = np.abs(rows).max(1, keepdims=True)
    tried = [peaks * share / top for share in np.linspace(0.35, 1, 14)]
    whole = [np.clip(np.round(rows / scale), -top, top).astype(np.int64) for scale in tried]
    lost = [((n * scale - rows) ** 2).sum(1) for n, scale in zip(whole, tried, strict=True)]
    best, every = np.argmin(lost, 0), np.arange(len(rows))
    return np.stack(tried)[best, every, 0], np.stack(whole)[best, every]


def _snake_customizations() -> list[dict[str, Any]]:
    """Return the customizations of the snakes, starting with the snake of the visitor.

    Color-blind visitors can distinguish the colors.
    """
    wear = [
        ("#2f6fde", "smile", "curled"),
        ("#e0a100", "evil", "sharp"),
        ("#5b2a86", "shades", "fat-rattle"),
        ("#c44e00", "fang", "bolt"),
    ]
    return customizations_to_dicts(
        [
            Snake(head, [(0, 0)], customizations={"color": color, "head": head, "tail": tail})
            for color, head, tail in wear
        ]
    )


def _compile_game(target: Path, evaluation: Evaluation) -> None:
    """Compile the C code of the rules and of the search to WebAssembly.

    Zig's C compiler compiles the code. The compiler optimizes for size. The boards are limited to
    384 cells.
    """
    engine = _ROOT / "battlesnake_gym/engine/csrc"
    search = _ROOT / "heuristics/battlesnake_heuristics/search/csrc"
    weights = ",".join(str(weight) for weight in Weights().to_array())
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "wasm32-wasi"]
    options = [f"-I{engine}", "-std=gnu2x", "-msimd128", f"-DSEARCH_WEIGHTS={weights}"]
    # The only clock of WebAssembly is the monotonic clock.
    options += [f"-DCLOCK_{name}_CPUTIME_ID=CLOCK_MONOTONIC" for name in ("THREAD", "PROCESS")]
    options += [f"-D{name.format('large')}={name.format('medium')}" for name in _SIZED_FUNCTIONS]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "numbers").write_bytes(evaluation.network_bytes)
        filled = Path(folder) / "map_layouts.c"
        filled.write_text(_generate_tables(engine))
        rules = [path for path in sorted(engine.glob("*.c")) if path.name not in _EXCLUDED_SOURCES]
        players = [_DOCS_FOLDER / "play" / "game.c", *sorted(search.glob("*.c"))]
        for level, sources in (("-Oz", [filled, *rules]), ("-Os", players)):
            command = [*compiler, *options, level, f"--embed-dir={folder}", "-c"]
            for path in sources:
                if "large" not in path.name and "Python.h" not in path.read_text():
                    compiled = [str(path), "-o", f"{folder}/{path.stem}.o"]
                    subprocess.run([*command, *compiled], check=True)
        objects = sorted(map(str, Path(folder).glob("*.o")))
        command = [*compiler, "-mexec-model=reactor", "-O3", "-Wl,--strip-all"]
        subprocess.run([*command, "-o", str(target), *objects], check=True)


def _generate_tables(engine: Path) -> str:
    """Return C code with the tables of the engine.

    Other builds of the engine receive these tables from Python.
    """
    lines = [f'#include "{engine / name}"' for name in ("rand.h", "map_layouts.h")]
    for name, content in {"RANDOM": tables.RANDOM, **tables.LAYOUTS}.items():
        numbers = ",".join(map(str, content))
        lines.append(f"_Alignas(8) static const unsigned char {name}_BYTES[] = {{{numbers}}};")
    for name in tables.LAYOUTS:
        whole = f"sizeof {name}_BYTES / sizeof(Point)"
        lines.append(f"PointList {name} = {{(const Point *){name}_BYTES, {whole}}};")
    body = "return rand_init((const char *)RANDOM_BYTES, sizeof RANDOM_BYTES);"
    lines.append(f"int map_layouts_init(void) {{ {body} }}")
    return "\n".join(lines) + "\n"


def _run_sphinx(output: Path) -> None:
    """Build the documentation pages with Sphinx and fix their accessibility."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "auto"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command += ["-c", "docs", ".", str(output.absolute())]
    subprocess.run(command, check=True, cwd=_ROOT, env=environment)
    for page in output.rglob("*.html"):
        text = page.read_text()
        for old, new in _ACCESSIBILITY_FIXES.items():
            text = text.replace(old, new)
        page.write_text(text)
    shutil.copy(_DOCS_FOLDER / "llms.txt", output)


if __name__ == "__main__":
    main()
