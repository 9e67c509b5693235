"""Self-contained file ``report.html`` with all information about a run."""

from __future__ import annotations

import time
from pathlib import Path

import jinja2

from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.run_dir import REPORT_FILE
from battlesnake_gym.replays.replay import Replay
from battlesnake_server.replay_viewer import embedded_player
from battlesnake_server.runs import charts
from battlesnake_server.runs.run_view import RunView

_TURNS_PER_SECOND = 7
_NO_GAME = "this algorithm records none, or the run ended before its first checkpoint"


def write(run_dir: Path) -> Path:
    """Write the report into the run directory, and return the report's path."""
    target = run_dir / REPORT_FILE
    text = page(RunView(run_dir))
    write_atomically(target, lambda part: part.write_text(text, "utf-8"))
    return target


def page(run: RunView) -> str:
    """Return the HTML of the report."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(embedded_player.SERVER_DIR / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    game = next((game for game in run.games() if game.path is not None), None)
    player = ""
    if game is not None and game.path is not None:
        player = embedded_player.render(Replay.load(game.path), _TURNS_PER_SECOND)
    ended = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.ended)) if run.ended else ""
    return templates.get_template("run_report.html").render(
        run=run,
        when=ended,
        style=embedded_player.style(),
        script=embedded_player.read("static/curves.js"),
        charts=charts.charts([run]),
        deaths=charts.deaths(run),
        game=game,
        player=player,
        no_game=_NO_GAME,
    )
