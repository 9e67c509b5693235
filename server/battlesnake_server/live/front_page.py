"""The page that a browser gets at ``/``: the snake's looks, its game now, how it answers."""

from __future__ import annotations

import functools
import math
from pathlib import Path
from typing import Any

from flask import Blueprint, Response, current_app, jsonify, render_template_string, request

from battlesnake_gym.draw import customization
from battlesnake_server.live.live_metrics import Metrics
from battlesnake_server.strategy_loader import DEFAULT_SNAKE

_SERVER = Path(__file__).parents[1]

blueprint = Blueprint("front", __name__)


def asked_for() -> bool:
    """Whether a browser asks; engines take whatever comes, or JSON."""
    return "text/html" in request.headers.get("Accept", "")


@functools.cache
def read(name: str) -> str:
    """One of the files that the page is made of, read once."""
    return (_SERVER / name).read_text("utf-8")


def page() -> Response:
    """The page itself, which needs nothing else but ``now`` below it."""
    config = current_app.config
    board = read("static/board.js").replace("export ", "")
    script = read("static/served.js").replace('import { BoardView } from "./board.js";\n', "")
    look = {
        "color": config["COLOR"],
        "head": customization.to_json(customization.head(config["HEAD"])),
        "tail": customization.to_json(customization.tail(config["TAIL"])),
    }
    text = render_template_string(
        read("templates/served.html"),
        config=config,
        style=read("static/look.css"),
        look=look,
        script=board + script,
        name=config["SNAKE"] or config["POLICY"] or DEFAULT_SNAKE,
        url=request.base_url,
    )
    return Response(text, headers={"Vary": "Accept"})


@blueprint.get("/now")
def now(base: str = "") -> Response:
    """The game shown, from ``?since=`` on, and how the snake answers; under any ``base``."""
    snake = current_app.extensions["live_snake"]
    since, version = (request.args.get(name, 0, int) for name in ("since", "version"))
    return jsonify(game=snake.showcase.tell(max(0, since), version), moves=moves(snake.metrics))


def moves(metrics: Metrics) -> dict[str, Any]:
    """How many moves were answered, by whom, and within how many milliseconds half and 95 %."""
    samples = [sample for metric in metrics.moves.collect() for sample in metric.samples]
    by = {s.labels["chosen_by"]: s.value for s in samples if s.name.endswith("_total")}
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for metric in metrics.seconds.collect()
        for sample in metric.samples
        if sample.name.endswith("_bucket")
    ]
    count = buckets[-1][1]
    within = [
        next((1000 * le for le, below in buckets if below >= share * count), math.inf)
        for share in (0.5, 0.95)
    ]
    return {
        "answered": count,
        "strategy": by.get("strategy", 0) / max(1, sum(by.values())),
        "within": [ms if count and math.isfinite(ms) else None for ms in within],
        "games": metrics.registry.get_sample_value("battlesnake_games_alive"),
    }
