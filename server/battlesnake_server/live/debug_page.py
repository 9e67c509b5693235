"""The page ``/debug`` of a snake in development: every game's board, move and reasons."""

from __future__ import annotations

from flask import Blueprint, render_template_string

from battlesnake_server.live.views import live_snake

blueprint = Blueprint("debug", __name__)

PAGE = """<!doctype html>
<meta charset="utf-8"><meta http-equiv="refresh" content="1"><title>Live snake</title>
<style>
  :root { color-scheme: light dark } body { font: 15px sans-serif; margin: 2em }
  pre { line-height: 1.1 } td, th { padding: 0 1em 0 0; text-align: left; vertical-align: top }
</style>
<h1>Live snake</h1>
{% for session in sessions %}
  <h2>{{ session.name }}</h2>
  {% if session.board %}
  <pre>{{ session.board }}</pre>
  <p>Turn {{ session.board.turn }}: <b>{{ session.decision.move }}</b>
     {{ session.decision.shout }}; round trip
     {{ "unknown" if session.round_trip.seconds is none
        else "%.0f ms" % (session.round_trip.seconds * 1000) }}</p>
  <table><tr><th>Rule<th>Vetoed<th>Scores<th>Note</tr>
  {% for reason in session.decision.reasons %}
    <tr><td>{{ reason.rule }}<td>{{ reason.vetoed | join(", ") }}
        <td>{% for m, s in reason.scores.items() %}{{ m }} {{ "%.3g" % s }} {% endfor %}
        <td>{{ reason.note }}</tr>
  {% endfor %}
  </table>
  {% else %}<p>No move yet.</p>{% endif %}
{% else %}<p>No game is being played.</p>
{% endfor %}
"""


@blueprint.get("/debug")
def debug() -> str:
    """Show all games that are being played."""
    return render_template_string(PAGE, sessions=live_snake().sessions.alive())
