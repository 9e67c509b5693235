"""Steps of the live snake's image, run without a container engine."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import Game
from tests.processes import fetch, fetch_json, free_port, served

ROOT = Path(__file__).parents[2]
Steps = list[tuple[str, str]]


@pytest.fixture(scope="module")
def stages() -> dict[str, Steps]:
    """Return the instructions of each stage by its name; the last stage has the name ""."""
    found: dict[str, Steps] = {}
    text = (ROOT / "deployment/server/Dockerfile").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        instruction, _, rest = line.partition(" ")
        if instruction == "ARG":
            continue
        if instruction == "FROM":
            steps = found[rest.partition(" AS ")[2]] = []
        steps.append((instruction, rest))
    return found


def only(steps: Steps, instruction: str) -> str:
    (rest,) = [rest for name, rest in steps if name == instruction]
    return rest


def test_the_image_that_runs_has_no_compiler_and_no_root(stages: dict[str, Steps]) -> None:
    assert list(stages) == ["build", ""]
    final = stages[""]
    assert only(final, "USER") == "10001"
    assert f"--uid {only(final, 'USER')} " in only(final, "RUN")
    names = [name for name, _ in final]
    assert names.index("USER") < names.index("CMD")
    assert "gcc" not in only(final, "RUN")


def test_the_image_for_fargate_has_the_policy_where_the_template_looks() -> None:
    text = (ROOT / "deployment/server/aws.Dockerfile").read_text()
    (folder,) = re.findall(r"^COPY \. (\S+)$", text, re.MULTILINE)
    assert f"{folder}policy.onnx" in (ROOT / "deployment/cloudformation/container.yaml").read_text()


def test_the_context_holds_what_the_packages_need(tmp_path: Path) -> None:
    copy_context(tmp_path / "source")
    names = {path.name for path in (tmp_path / "source").iterdir()}
    assert {"battlesnake_gym", "heuristics", "server", "setup.py", "pyproject.toml"} <= names
    assert not names & {".git", ".venv", "tests", "runs", "demo"}
    assert not list((tmp_path / "source").rglob("*.so"))
    policy = (tmp_path / "source/server/battlesnake_server/default_policy").iterdir()
    assert {path.name for path in policy} == {"policy.onnx", "policy.json", "README.md"}


@pytest.mark.slow
def test_the_steps_of_the_image_make_a_snake_that_plays(
    stages: dict[str, Steps], tmp_path: Path
) -> None:
    copy_context(tmp_path / "source")
    places = {"/source": tmp_path / "source", "/snake": tmp_path / "snake"}
    python = f"{sys.base_prefix}/bin/python3"

    def here(command: str) -> list[str]:
        words = shlex.split(command)
        words = [python if word == "python" else word for word in words]
        for place, path in places.items():
            words = [word.replace(place, str(path)) for word in words]
        return words

    for instruction, rest in stages["build"]:
        if instruction == "RUN" and not rest.startswith("apt-get"):
            subprocess.run(here(rest), check=True, cwd=tmp_path)
    check_size(tmp_path / "snake")

    port = str(free_port())
    assert only(stages[""], "ENV") == "PATH=/snake/bin:$PATH"
    environment = {"PATH": f"{tmp_path}/snake/bin:{os.environ['PATH']}"}
    environment |= {"BATTLESNAKE_SNAKE": "minimax", "BATTLESNAKE_COLOR": "#112233"}
    environment["PORT"] = port
    command = json.loads(only(stages[""], "CMD"))
    with served(command, port, env=environment, cwd=tmp_path) as address:
        check = only(stages[""], "HEALTHCHECK").partition("CMD ")[2]
        subprocess.run(json.loads(check), env=environment, check=True, cwd=tmp_path)
        assert fetch_json(address)["color"] == "#112233"
        board = Board.new(11, 11, 2, game=Game(seed=1, id="image", timeout=5000))
        answer = fetch_json(f"{address}/move", board.to_api("snake_0"))
        assert answer["move"] in board.safe_moves("snake_0")
        metrics = fetch(f"{address}/metrics")
        assert 'battlesnake_moves_total{chosen_by="strategy"} 1.0' in metrics
    assert subprocess.run(json.loads(check), env=environment, stderr=subprocess.DEVNULL).returncode


def check_size(environment: Path) -> None:
    """The environment is small and has no training library."""
    packages = next(environment.glob("lib/python3*/site-packages"))
    names = {path.name for path in packages.iterdir()}
    assert "onnxruntime" in names
    assert not names & {"torch", "ray", "sagemaker", "pandas", "matplotlib", "onnx"}
    size = sum(path.stat().st_size for path in environment.rglob("*") if path.is_file())
    assert size < 400 << 20, f"{size >> 20} MiB"


def copy_context(folder: Path) -> None:
    """Return the build context after .dockerignore."""
    lines = (ROOT / ".dockerignore").read_text().split("\n")
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*", "everything is left out but what is named"
    left_out = [pattern.removeprefix("**/") for pattern in patterns if pattern.startswith("**/")]
    folder.mkdir()
    for pattern in patterns:
        if not pattern.startswith("!"):
            continue
        source, target = ROOT / pattern[1:], folder / pattern[1:]
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(*left_out))
        else:
            shutil.copy(source, target)
