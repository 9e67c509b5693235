"""The snake's page; the server sends this page to browsers at ``/``.

The page shows the customization, the featured game and the latency of the snake.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

from flask import Blueprint, Response, abort, current_app, render_template_string, request

from battlesnake_server import replay_json
from battlesnake_server.live.live_metrics import Metrics
from battlesnake_server.page_files import read_board_script, read_page_file
from battlesnake_server.strategy_loader import DEFAULT_SNAKE

blueprint = Blueprint("front", __name__)


def render_page() -> Response:
    """Render the snake's page.

    The page requests only ``/now`` from the server.
    """
    config = current_app.config
    names = {key: config[key.upper()] for key in ("color", "head", "tail")}
    text = render_template_string(
        read_page_file("templates/live_snake_page.html"),
        config=config,
        style=read_page_file("static/style.css"),
        customization=replay_json.customization_to_dict(names),
        script=read_board_script("static/live_snake_page.js"),
        name=config["SNAKE"] or config["POLICY"] or DEFAULT_SNAKE,
        url=request.base_url,
    )
    return Response(text, headers={"Vary": "Accept"})


@blueprint.get("/now")
def current_game(base: str = "") -> Response:
    """Return the featured game and the move statistics.

    The query parameter ``since`` is the index of the first frame to return. ``moves`` contains the
    first letters of the snake's moves with which a new example game starts.
    """
    snake = current_app.extensions["live_snake"]
    since, version = (request.args.get(name, 0, int) for name in ("since", "version"))
    moves = request.args.get("moves", "")
    if not re.fullmatch("[udlr]{0,400}", moves):
        abort(400, "moves must contain up to 400 letters u, d, l and r")
    game = snake.featured_game.to_json(max(0, since), version, moves)
    statistics = json.dumps(_move_statistics(snake.metrics))
    return Response(f'{{"game": {game}, "moves": {statistics}}}', mimetype="application/json")


def _move_statistics(metrics: Metrics) -> dict[str, Any]:
    """Return the move statistics.

    Returns:
        A dict with four keys. ``num_moves`` is the number of moves. ``strategy`` is the fraction of
        moves that the strategy chose, in [0, 1]. ``latency_percentiles_ms`` contains the 50th and
        95th percentile of the latency in milliseconds, rounded up to a histogram bound (None above
        the last bound). ``games`` is the number of active games.
    """
    samples = [sample for metric in metrics.moves.collect() for sample in metric.samples]
    by = {s.labels["chosen_by"]: s.value for s in samples if s.name.endswith("_total")}
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for metric in metrics.move_seconds.collect()
        for sample in metric.samples
        if sample.name.endswith("_bucket")
    ]
    count = buckets[-1][1]
    percentiles = [
        next((1000 * le for le, below in buckets if below >= fraction * count), math.inf)
        for fraction in (0.5, 0.95)
    ]
    return {
        "num_moves": count,
        "strategy": by.get("strategy", 0) / max(1, sum(by.values())),
        "latency_percentiles_ms": [
            ms if count and math.isfinite(ms) else None for ms in percentiles
        ],
        "games": metrics.registry.get_sample_value("battlesnake_active_games"),
    }
