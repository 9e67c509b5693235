"""Snakes as users have them: the starter project, Flask, FastAPI and a plain function."""

from __future__ import annotations

import gc
import logging
import sys
from pathlib import Path

import pytest

from battlesnake_gym import snakes
from battlesnake_gym.boards.board import Board
from battlesnake_gym.cli import main
from battlesnake_gym.snakes import Decision, Strategy
from tests.processes import run

STARTER = """
import typing
from logic import pick

LOG = []

def info() -> typing.Dict:
    return {"apiversion": "1", "author": "me", "color": "#884488", "head": "evil", "tail": "bolt"}

def start(game_state: typing.Dict):
    LOG.append("start")

def end(game_state: typing.Dict):
    LOG.append(("end", game_state["turn"]))

def move(game_state: typing.Dict) -> typing.Dict:
    return {"move": pick(game_state)}

if __name__ == "__main__":
    from server import run_server
    run_server({"info": info, "start": start, "move": move, "end": end})
"""

FLASK = """
from flask import Flask, request
from logic import pick

app = Flask(__name__)

@app.get("/")
def info():
    return {"apiversion": "1", "color": "#884488"}

@app.post("/move")
def move():
    return {"move": pick(request.get_json()), "shout": "hi"}
"""

FASTAPI = """
from contextlib import asynccontextmanager
from fastapi import FastAPI
from logic import pick

started = []

@asynccontextmanager
async def lifespan(app):
    started.append(True)
    yield

app = FastAPI(lifespan=lifespan)

@app.get("/")
async def info():
    return {"apiversion": "1", "color": "#884488"}

@app.post("/move")
def move(state: dict):
    return {"move": pick(state) if started else "down", "shout": "hi"}
"""

PLAIN = "from logic import pick\n\ndef move(state):\n    return pick(state)\n"


@pytest.fixture
def board() -> Board:
    board = Board.new(7, 7, 2)
    board.you_id = board.snakes[0].id
    return board


def write(folder: Path, source: str, move: str = "up") -> str:
    """Write a snake's file and a module next to it; return the path of the file."""
    folder.mkdir()
    (folder / "logic.py").write_text(
        f'def pick(state):\n    assert state["you"] and state["board"]\n    return "{move}"\n'
    )
    path = folder / "main.py"
    path.write_text(source)
    return str(path)


@pytest.mark.parametrize(
    ("source", "shout", "package"),
    [(STARTER, "", ""), (FLASK, "hi", "flask"), (FASTAPI, "hi", "fastapi"), (PLAIN, "", "")],
)
def test_a_snake_plays_as_it_is(
    tmp_path: Path, board: Board, source: str, shout: str, package: str
) -> None:
    if package:
        pytest.importorskip(package, reason="needs the extra server")
    made = snakes.factory(write(tmp_path / "mine", source))
    assert snakes.to_decision(made(0)(board)) == Decision("up", shout=shout)
    color = getattr(made, "customization").get("color")  # noqa: B009  (a factory may have it)
    assert color == ("#884488" if source != PLAIN else None)


def test_a_snake_receives_the_request_of_a_limited_view(tmp_path: Path) -> None:
    path = tmp_path / "main.py"
    path.write_text("def move(state):\n    return {'move': 'up', 'shout': repr(state['board'])}\n")
    board = Board.from_text("view_radius=2\nA . . . . . B\n^ . . . . . ^\nA: you")
    sent = board.to_limited_api()["board"]
    assert sent["snakes"][1]["body"] == [None]
    assert snakes.to_decision(snakes.make(str(path))(board.limited())).shout == repr(sent)


def test_customization_must_be_text(tmp_path: Path) -> None:
    source = PLAIN + "\n\ndef info():\n    return {'color': 7}\n"
    with pytest.raises(ValueError, match=r"main\.py: info returns the color 7; return text"):
        snakes.factory(write(tmp_path / "mine", source))


def test_modules_of_the_same_name_belong_to_the_file_next_to_them(
    tmp_path: Path, board: Board
) -> None:
    one = snakes.make(write(tmp_path / "one", PLAIN, "left"))
    other = snakes.make(write(tmp_path / "other", PLAIN, "right"))
    assert [snakes.to_decision(player(board)).move for player in (one, other)] == ["left", "right"]


def test_standard_modules_are_found_before_the_folder(tmp_path: Path, board: Board) -> None:
    path = write(tmp_path / "mine", "import colorsys\n" + PLAIN)
    (tmp_path / "mine" / "colorsys.py").write_text("raise RuntimeError('shadowed')\n")
    assert snakes.to_decision(snakes.make(path)(board)).move == "up"


def test_start_and_end_are_called_once_per_game(tmp_path: Path, board: Board) -> None:
    made = snakes.factory(write(tmp_path / "mine", STARTER))
    log = made(0)._send._module.LOG  # type: ignore[attr-defined]
    player: Strategy | None = made(0)
    assert player is not None
    player(board)
    board.step({snake.id: "up" for snake in board.snakes})
    board.you_id = board.snakes[0].id
    player(board)
    player = None
    gc.collect()
    assert log == ["start", ("end", 1)]


@pytest.mark.parametrize("options", [[], ["--rules"]])
def test_a_new_snake_plays_and_replaces_no_file(
    tmp_path: Path, board: Board, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    path = str(tmp_path / "fresh.py")
    assert main.main(["snakes", "new", path, *options]) == 0
    board.food = [(board.you.head[0], board.you.head[1] - 1)]
    board.you.health = 20
    decision = snakes.to_decision(snakes.make(path)(board))
    assert decision.move == "down"
    assert bool(decision.reasons) == bool(options), "rules explain their moves"
    assert main.main(["snakes", "new", path]) == 2
    assert "exists" in capsys.readouterr().err


def test_a_bad_reply_is_an_error_that_quotes_it(tmp_path: Path, board: Board) -> None:
    made = snakes.factory(write(tmp_path / "mine", "def move(state):\n    return 3\n"))
    with pytest.raises(TypeError, match="got 3"):
        made(0)(board)


@pytest.mark.parametrize("server", ["app.run(port=0)", "app.run(port=0, debug=True)"])
def test_a_file_that_starts_its_server_is_refused(tmp_path: Path, server: str) -> None:
    text = f"from flask import Flask\n\napp = Flask(__name__)\n{server}\n"
    with pytest.raises(ValueError, match=r"line 4: .* server only below if __name__ =="):
        snakes.factory(write(tmp_path / "mine", text))
    assert logging.root.isEnabledFor(logging.CRITICAL)


def test_a_file_that_starts_uvicorn_is_refused_in_one_line(tmp_path: Path) -> None:
    # Not in this process: uvicorn closes the handlers of all logs.
    text = "import fastapi\nimport uvicorn\napp = fastapi.FastAPI()\nuvicorn.run(app, port=0)\n"
    mine = write(tmp_path / "mine", text)
    done = run(sys.executable, "-m", "battlesnake_gym", "arena", mine, "hungry", cwd=tmp_path)
    assert done.returncode == 2
    assert "server only below if __name__ ==" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_without_a_snake_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="function move or a web application app"):
        snakes.factory(write(tmp_path / "mine", "x = 1\n"))
