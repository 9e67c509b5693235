"""Battlesnake servers: the live snake and the arena.

The live snake is a Flask application. The arena consists of a referee, ratings and stored games.
"""

import os

# Snakes must not send telemetry. Without this variable, onnxruntime starts a telemetry thread,
# whose locks abort a forked gunicorn worker at exit. The variable must be set before the import
# of onnxruntime.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
