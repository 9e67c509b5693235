"""A recorded game as a part of a page that needs nothing else: board, button, slider."""

from __future__ import annotations

from pathlib import Path

from battlesnake_gym.replays.replay import Replay
from battlesnake_server import replay_json

SERVER = Path(__file__).parents[1]


def style() -> str:
    """The styles of all pages."""
    return read("static/look.css")


def read(name: str) -> str:
    """One of the server's files."""
    return (SERVER / name).read_text("utf-8")


def part(replay: Replay, turns_per_second: float) -> str:
    """The part, for a page that has `style` and allows inline scripts."""
    player = read("static/small_player.js").replace('import { BoardView } from "./board.js";\n', "")
    pieces = {
        "SPEED": f"{turns_per_second:g}",
        "SCRIPT": "\n" + read("static/board.js").replace("export ", "") + player,
        # A snake may be called anything, also "</script>" or "@SCRIPT@".
        "GAME": "".join(replay_json.replay_to_json(replay)).replace("<", "\\u003c"),
    }
    text = read("templates/small_player.html")
    for name, piece in pieces.items():
        text = text.replace(f"@{name}@", piece, 1)
    return text
