"""The wheel in a folder full of a snake's author's own files, whose names could have been ours."""

import json
import re
from pathlib import Path

import pytest

from battlesnake_gym.cli.main import COMMANDS
from tests.mabs.test_launcher import SMALL
from tests.processes import fetch_json, free_port, run, served
from tests.wheel.conftest import ROOT, Environment

OWN_FILES = ("server", "heuristics", "mabs", "main", "logic", "snake", "utils", "game", "rules")
"""What people call their files; the official Python starter has ``server.py`` and ``main.py``."""

RIVALS = """
import gymnasium
env = gymnasium.make("battlesnake_gym:Battlesnake-v0", opponents=["hungry", "cautious"])
_, info = env.reset(seed=1)
env.step(env.action_space.sample(info["action_mask"]))
"""


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A folder in which each of `OWN_FILES` ends whatever imports it."""
    for name in OWN_FILES:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name}.py was imported')\n")
    return tmp_path


def do(environment: Environment, desk: Path, *words: object) -> str:
    """Run a command there; Python looks for modules in the folder first, as in a shell."""
    done = run(*words, cwd=desk, env=environment.variables | {"PYTHONPATH": str(desk)})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


HELP = """
import contextlib, io, sys
from battlesnake_gym.cli import main
for command in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
        main.main([*command.split(), "--help"])
    assert said.getvalue().startswith(f"usage: battlesnake-gym {command}"), command
"""


def test_every_command_explains_itself(environment: Environment, desk: Path) -> None:
    do(environment, desk, environment.python, "-c", HELP, *COMMANDS)


def test_named_snakes_play(environment: Environment, desk: Path) -> None:
    do(environment, desk, environment.python, "-c", RIVALS)
    table = do(
        environment, desk, *("battlesnake-gym", "arena", "hungry", "cautious", "--games", "2")
    )
    assert "hungry" in table


def test_a_training_of_seconds(environment: Environment, desk: Path) -> None:
    do(environment, desk, "battlesnake-gym", "train", *SMALL, "--num-iters", "1", "--name", "mine")
    assert (desk / "runs" / "mine" / "model" / "policy.onnx").is_file()


def test_a_snake_is_served(environment: Environment, desk: Path) -> None:
    port = free_port()
    words = ("battlesnake-gym", "serve", "--snake", "hungry", "--port", str(port))
    variables = environment.variables | {"PYTHONPATH": str(desk)}
    with served(words, port, cwd=desk, env=variables) as address:
        assert fetch_json(f"{address}/")["apiversion"] == "1"


def test_the_imports_of_the_notebooks(environment: Environment, desk: Path) -> None:
    (desk / "board_widget.py").write_text((ROOT / "notebooks" / "board_widget.py").read_text())
    lines = {"import sys"}
    for page in (ROOT / "notebooks").glob("*.ipynb"):
        for cell in json.loads(page.read_text())["cells"]:
            if cell["cell_type"] == "code":
                lines |= set("".join(cell["source"]).splitlines())
    imports = (one for one in lines if re.match(r"(import|from) (?!.*sagemaker)", one))
    do(environment, desk, environment.python, "-c", "\n".join(sorted(imports)))
