"""Self-contained HTML player of a recorded game, with board, button and slider."""

from __future__ import annotations

from pathlib import Path

from battlesnake_gym.replays.replay import Replay
from battlesnake_server import replay_json

SERVER_DIR = Path(__file__).parents[1]


def render_page(replay: Replay, turns_per_second: float) -> str:
    """Return a page with the player that needs no other files."""
    page = read_package_file("templates/export.html")
    page = page.replace("@STYLE@", read_style_sheet(), 1)
    return page.replace("@PLAYER@", render(replay, turns_per_second), 1)


def read_style_sheet() -> str:
    """Return the style sheet of all pages."""
    return read_package_file("static/style.css")


def read_package_file(name: str) -> str:
    """Return the text of a file in the server's package."""
    return (SERVER_DIR / name).read_text("utf-8")


def render(replay: Replay, turns_per_second: float) -> str:
    """Return the HTML of the player.

    The page of the player must contain the style sheet and allow inline scripts.
    """
    script = read_package_file("static/embedded_player.js")
    script = script.replace('import { BoardView, CAUSES } from "./board.js";\n', "")
    parts = {
        "SPEED": f"{turns_per_second:g}",
        "SCRIPT": "\n" + read_package_file("static/board.js").replace("export ", "") + script,
        # A snake may have any name, including "</script>" or "@SCRIPT@".
        "GAME": "".join(replay_json.replay_to_json(replay)).replace("<", "\\u003c"),
    }
    text = read_package_file("templates/embedded_player.html")
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part, 1)
    return text
