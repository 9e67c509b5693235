"""All extras of the wheel together in a fresh environment."""

import json
import tomllib
import venv
from pathlib import Path

import pytest

from tests.processes import run
from tests.wheel.conftest import ROOT, Built, Environment

pytestmark = pytest.mark.slow


@pytest.mark.timeout(3600)
def test_ray_starts_with_every_extra_installed(built: Built, tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = ",".join(project["optional-dependencies"])
    environment = Environment(tmp_path / "environment")
    venv.create(environment.folder, with_pip=True)
    pip = (environment.python, "-m", "pip", "install", "-q", "--no-cache-dir", "--no-compile")
    constraints = ("-c", ROOT / "constraints.txt", f"{built.wheel}[{extras}]")
    run(*pip, *constraints, env=environment.variables, check=True)
    listed = run("battlesnake-gym", "doctor", "--json", env=environment.variables, check=True)
    states = {part["part"]: part["state"] for part in json.loads(listed.stdout)}
    assert {state for part, state in states.items() if part.startswith("extra ")} == {"good"}
    # The package whose import makes a start of Ray too slow for a busy machine.
    assert states["jsonschema"] == "slow"
    command = ("battlesnake-gym", "train", "--algorithm", "PPO", "--num-iters", "1")
    done = run(*command, "--num-env-runners", "1", cwd=tmp_path, env=environment.variables)
    assert done.returncode == 0, done.stderr
    assert "ray start failed" not in done.stderr
