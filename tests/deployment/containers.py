"""What the images run, run here as processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.server.launch import free_port, wait_for

ROOT = Path(__file__).parents[2]
PATIENCE = 120


@contextmanager
def served(words: list[str], snake: str, port: str, folder: Path) -> Iterator[str]:
    """A command of an image, in a folder, as it plays a snake; gives its address on the port."""
    programs = Path(sys.executable).parent
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "BATTLESNAKE_SNAKE": snake}
    server = subprocess.Popen(words, env=environment, cwd=folder)
    try:
        address = f"http://127.0.0.1:{port}"
        wait_for(address, server)
        yield address
    finally:
        server.terminate()
        server.wait(PATIENCE)


@contextmanager
def container(snake: str, folder: Path) -> Iterator[str]:
    """What Docker and Fargate run: the last CMD of the live snake's image."""
    text = (ROOT / "deployment/server/Dockerfile").read_text()
    port = str(free_port())
    words = json.loads(re.findall(r"^CMD (.*)$", text, re.MULTILINE)[-1].replace("8000", port))
    with served(words, snake, port, folder) as address:
        yield address
