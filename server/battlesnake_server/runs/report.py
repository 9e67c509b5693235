"""Self-contained HTML report of a run: the file ``report.html``."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import jinja2

from battlesnake_gym.common.files import write_atomically
from battlesnake_gym.common.run_dir import REPORT_FILE
from battlesnake_gym.replays.replay import Replay, ReplayError
from battlesnake_server.page_files import SERVER_DIR, read_page_file
from battlesnake_server.replay_viewer import embedded_player
from battlesnake_server.runs import charts
from battlesnake_server.runs.run_view import RecordedGame, RunView

_UPLOT = "static/uplot-1.6.32"
_TURNS_PER_SECOND = 7
_NO_GAME_REASON = "this algorithm records none, or the run ended before its first checkpoint"


def write(run_dir: Path) -> Path:
    """Write the report into the run directory, and return the report's path."""
    target = run_dir / REPORT_FILE
    text = _render_report(RunView(run_dir))
    write_atomically(target, lambda part: part.write_text(text, "utf-8"))
    return target


def _latest_game(run: RunView) -> tuple[RecordedGame | None, str]:
    """Return the latest readable game and the HTML of its player, or (None, "")."""
    for game in run.games():
        with suppress(ReplayError, OSError):
            if game.path is not None:
                replay = Replay.load(game.path)
                return game, embedded_player.render(replay, _TURNS_PER_SECOND)
    return None, ""


def _render_report(run: RunView) -> str:
    """Return the HTML of the report."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(SERVER_DIR / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    game, player = _latest_game(run)
    ended = run.status.ended_at
    return templates.get_template("run_report.html").render(
        run=run,
        when=time.strftime("%Y-%m-%d %H:%M", time.localtime(ended)) if ended else "",
        style=read_page_file("static/style.css") + read_page_file(f"{_UPLOT}/uPlot.min.css"),
        uplot=read_page_file(f"{_UPLOT}/uPlot.iife.min.js"),
        script=read_page_file("static/charts.js"),
        charts=charts.build_charts([run]),
        deaths=charts.build_cause_chart(run),
        game=game,
        player=player,
        no_game=_NO_GAME_REASON,
    )
