"""What the images run, run here as processes."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import processes
from tests.processes import free_port

ROOT = Path(__file__).parents[2]


@contextmanager
def served(words: list[str], snake: str, port: str, folder: Path) -> Iterator[str]:
    """A command of an image, in a folder, as it plays a snake; gives its address on the port."""
    programs = Path(sys.executable).parent
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", "BATTLESNAKE_SNAKE": snake}
    environment["PORT"] = port
    with processes.served(words, port, env=environment, cwd=folder) as address:
        yield address


@contextmanager
def container(snake: str, folder: Path) -> Iterator[str]:
    """What Docker and Fargate run: the last CMD of the live snake's image."""
    text = (ROOT / "deployment/server/Dockerfile").read_text()
    port = str(free_port())
    words = json.loads(re.findall(r"^CMD (.*)$", text, re.MULTILINE)[-1])
    with served(words, snake, port, folder) as address:
        yield address
