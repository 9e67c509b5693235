"""Self-contained HTML player of a recorded game, with board, button and slider."""

from __future__ import annotations

from battlesnake_gym.replays.replay import Replay
from battlesnake_server import replay_json
from battlesnake_server.page_files import read_board_script, read_page_file


def render_page(replay: Replay, turns_per_second: float) -> str:
    """Return a page with the player that needs no other files."""
    page = read_page_file("templates/export.html")
    page = page.replace("@STYLE@", read_page_file("static/style.css"), 1)
    return page.replace("@PLAYER@", render(replay, turns_per_second), 1)


def render(replay: Replay, turns_per_second: float) -> str:
    """Return the HTML of the player.

    The page of the player must contain the style sheet and allow inline scripts.
    """
    head = replay_json.replay_header(replay)
    frames = replay_json.iter_frames(replay.first.copy(), replay.turns[:])  # A live game grows.
    game = replay_json.chunk_to_json(head, frames)
    parts = {
        "SPEED": f"{turns_per_second:g}",
        "SCRIPT": read_board_script("static/embedded_player.js"),
        # A snake may have any name, including "</script>" or "@SCRIPT@".
        "GAME": game.replace("<", "\\u003c"),
    }
    text = read_page_file("templates/embedded_player.html")
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part, 1)
    return text
