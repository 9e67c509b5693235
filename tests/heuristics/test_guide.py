"""The files and commands of docs/tutorials/first-snake.md work as described."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import processes

PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "first-snake.md").read_text()
FILES = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = "".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


Run = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(script: str) -> subprocess.CompletedProcess[str]:
        scripts = Path(sys.executable).parent
        environment = {**os.environ, "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
        return processes.run("bash", "-ec", script, cwd=tmp_path, env=environment)

    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return run


def test_the_page_has_files_and_commands() -> None:
    assert set(FILES) == {"my_snake.py", "my_tests.txt"}
    assert COMMANDS.count("battlesnake-gym ") == 5
    lines = [line for line in FILES["my_snake.py"].splitlines() if line.strip()]
    assert len(lines) <= 10


def test_its_scenario_tells_a_careless_snake(run: Run) -> None:
    done = run("battlesnake-gym game scenarios my_tests.txt --snake hungry")
    assert done.returncode == 1
    assert re.search(r"\bleft\b.* up\b", done.stdout)
