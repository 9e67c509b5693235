"""Servers started for real on loopback, a tiny network, and request bodies."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.mdp import observations
from battlesnake_gym.rules import MOVES, Game
from battlesnake_server.arena.database import Database
from tests.processes import COMMAND, free_port, served
from tests.server import web_site
from tests.server.browser import browser as browser
from tests.server.browser import quiet as quiet


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., str]]:
    """Start `battlesnake-gym serve`, or a program like it, with these arguments; its address."""
    with contextlib.ExitStack() as running:

        def start(*arguments: str, program: Sequence[str] = (*COMMAND, "serve")) -> str:
            port = free_port()
            return running.enter_context(served([*program, f"--port={port}", *arguments], port))

        yield start


@pytest.fixture(scope="session")
def cautious(serve: Callable[..., str]) -> str:
    """The address of a live snake."""
    return serve("--snake", "cautious")


@pytest.fixture
def in_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own folder is the current directory, as for databases and written files."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty database of the arena."""
    one = Database(f"sqlite:///{tmp_path / 'arena.sqlite'}")
    yield one
    one.close()


@pytest.fixture
def empty(tmp_path: Path) -> web_site.Pages:
    """The arena's pages without games."""
    return web_site.make(tmp_path, games=0)


@pytest.fixture
def board() -> Board:
    """A fresh standard game of four."""
    return Board.new(11, 11, 4, game=Game(seed=5, id="a-game"))


@pytest.fixture
def body(board: Board) -> dict[str, Any]:
    """A request as the official engine sends it."""
    return board.to_api("snake_0")


def write_policy(
    folder: Path,
    values: Sequence[float] = (-1.0, -2.0, -3.0, -4.0),
    sizes: Sequence[tuple[int, int]] = ((11, 11),),
    observation: str = "planes",
    changes: Mapping[str, Any] | None = None,
) -> Path:
    """A network that says ``values`` of every position, and its JSON file with ``changes``."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    encoder = observations.get(observation)
    shape = encoder.shape(max(w for w, _ in sizes), max(h for _, h in sizes))
    weights = np.zeros((int(np.prod(shape)), len(MOVES)), np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["observations"], ["floats"], to=TensorProto.FLOAT),
            helper.make_node("Flatten", ["floats"], ["flat"]),
            helper.make_node("Gemm", ["flat", "weights", "bias"], ["q_values"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("observations", TensorProto.UINT8, ["batch", *shape])],
        [helper.make_tensor_value_info("q_values", TensorProto.FLOAT, ["batch", len(MOVES)])],
        [
            numpy_helper.from_array(weights, "weights"),
            numpy_helper.from_array(np.array(values, np.float32), "bias"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    folder.mkdir(exist_ok=True)
    path = folder / "policy.onnx"
    onnx.save(model, path)
    metadata = {
        "format": 2,
        "observation": encoder.to_dict(),
        "board_sizes": [list(size) for size in sizes],
        "actions": list(MOVES),
        "training": {},
        "versions": {},
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
    }
    path.with_suffix(".json").write_text(json.dumps(metadata | dict(changes or {})))
    return path


@pytest.fixture
def make_policy(tmp_path: Path) -> Callable[..., Path]:
    """`write_policy` into a folder of the test's own."""

    def make(*arguments: Any, **options: Any) -> Path:
        return write_policy(tmp_path / "policy", *arguments, **options)

    return make


@pytest.fixture(scope="session")
def policy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A policy that always likes "up" best, then "down"."""
    return write_policy(tmp_path_factory.mktemp("policies") / "policy")
