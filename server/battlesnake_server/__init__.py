"""Snakes on the network: the live snake (Flask) and the arena (referee, ratings, stored games)."""

import os

# What plays here sends no reports. Unless that is set before it is imported, onnxruntime starts
# a thread that does, and that thread's locks abort a worker that gunicorn forked when it exits.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
