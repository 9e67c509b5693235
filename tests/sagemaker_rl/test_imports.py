"""Imports of a training script: messages about missing packages, and a job's flat folder."""

import os
import re
import sys
from pathlib import Path

import pytest

from sagemaker_rl.job.source_files import PROJECT_DEPENDENCIES, merge_source_dir
from tests import processes

ROOT = Path(__file__).parents[2]


def run(script: str, tmp_path: Path, *path: str) -> tuple[str, str]:
    """Run a script with ``path`` and the standard library; return the failure and the log."""
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(str(ROOT / one) for one in path),
        "SM_MODEL_DIR": str(tmp_path / "model"),
        "SAGEMAKER_BASE_DIR": str(tmp_path),
    }
    done = processes.run(sys.executable, "-S", ROOT / "rllib_src" / script, env=environment)
    assert done.returncode == 1, done.stderr
    return (tmp_path / "output" / "failure").read_text(), done.stderr


@pytest.mark.parametrize("script", ["train-mabs.py", "train-procgen.py"])
@pytest.mark.parametrize(
    ("path", "missing", "remedy"),
    [
        ([], "sagemaker_rl", r"copy_project_sources\(\)"),
        # Depends on the order of the imports.
        (["rllib_common", "."], r"(numpy|torch|ray|gymnasium|yaml)[.\w]*",
         r"rllib_src/requirements\.txt to source_dir; .* pip install -c constraints\.txt"),
    ],
    ids=["our-packages", "our-requirements"],
)  # fmt: skip
def test_a_missing_package_has_a_remedy(
    script: str, path: list[str], missing: str, remedy: str, tmp_path: Path
) -> None:
    failure, log = run(script, tmp_path, *path)
    assert re.match(rf"No module named '{missing}' \(.*{remedy}", failure)
    assert log == failure + "\n"
    assert len(failure) - len(sys.executable) < 160


def test_an_image_with_an_old_python() -> None:
    script = str(ROOT / "rllib_src" / "train-mabs.py")
    code = "import runpy, sys; sys.version_info = (3, 8); "
    code += f"runpy.run_path({script!r}, run_name='__main__')"
    path = os.pathsep.join(str(ROOT / one) for one in ("rllib_src", "rllib_common"))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path}
    done = processes.run(sys.executable, "-S", "-c", code, env=environment)
    assert done.returncode == 1
    assert re.search(r"3\.11.* 3\.8", done.stderr)
    assert done.stderr.count("\n") == 1


STARTER_PACK = """
from sagemaker_rl.ray_launcher import SageMakerRayLauncher
import battlesnake_gym, battlesnake_heuristics, battlesnake_rl.mabs, sagemaker_rl
class Launcher(SageMakerRayLauncher): pass
print(SageMakerRayLauncher.__module__)
for package in (sagemaker_rl, battlesnake_gym, battlesnake_heuristics, battlesnake_rl):
    print(*package.__path__)
"""
"""A training script; its first line is that of the starter pack's scripts."""


def test_a_job_finds_all_names_in_what_was_copied_flat(tmp_path: Path) -> None:
    """Without an installation, the packages next to the script are imported."""
    folders = [ROOT / name for name in PROJECT_DEPENDENCIES]
    sources = merge_source_dir(source_dir=ROOT / "rllib_src", dependencies=folders)
    (Path(sources) / "train.py").write_text(STARTER_PACK)
    # Without `site`, which would process the .pth files of an editable installation.
    packages = os.pathsep.join(path for path in sys.path if path.endswith("-packages"))
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": packages}
    words = (sys.executable, "-S", "train.py")
    done = processes.run(*words, cwd=sources, env=environment)
    assert done.returncode == 0, done.stderr
    name, *places = done.stdout.split()
    assert name == "sagemaker_rl.ray_launcher"
    root = Path(sources)
    assert list(map(Path, places)) == [
        root / "sagemaker_rl",
        root / "battlesnake_gym",
        root / "heuristics" / "battlesnake_heuristics",
        root / "battlesnake_rl",
    ]
