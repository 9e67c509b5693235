"""Setup script of a notebook instance, run with programs that only record their calls."""

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

pytest.importorskip("cfnlint", reason="needs the extra dev")

from tests.deployment import templates
from tests.processes import until

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"

NOTING = 'echo "$(basename "$0") $*" >> "$HOME/calls"\n'

# Results of each program that the script uses.
PROGRAMS = {
    "bin/sudo": 'echo "sudo $*" >> "$HOME/calls"\nexec bash\n',
    "bin/git": NOTING + "mkdir battlesnake\n",
    "anaconda3/bin/conda": NOTING + 'mkdir -p "$4/bin" && cp "$HOME/python" "$4/bin/python"\n',
    "python": NOTING + '[ ! -e "$HOME/offline" ]\n',
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "SageMaker").mkdir()
    for name, body in PROGRAMS.items():
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(f"#!/bin/bash\n{body}")
        program.chmod(0o755)
    return tmp_path


def script() -> str:
    """Return the script of a stack with the example parameters."""
    (setup,) = templates.resources("notebook", "AWS::SageMaker::NotebookInstanceLifecycleConfig")
    text: str = setup["OnStart"][0]["Content"]["Fn::Base64"]["Fn::Sub"]
    values = {"RepositoryBranch": "main"} | templates.PARAMETERS["notebook"]
    for name in re.findall(r"\$\{(\w+)\}", text):
        text = text.replace(f"${{{name}}}", values[name])
    return text


def start(home: Path) -> list[str]:
    """Start the instance, and return the calls before the installation ended."""
    (home / "calls").unlink(missing_ok=True)
    log = home / "SageMaker/install.log"
    log.unlink(missing_ok=True)
    subprocess.run(
        ["bash", "-c", script()],
        env={"HOME": str(home), "PATH": f"{home}/bin:/usr/bin:/bin"},
        check=True,
        timeout=300,
    )
    # The script returns before the installation ends in the background.
    until(lambda: log.exists() and "\nthe installation " in log.read_text())
    return (home / "calls").read_text().splitlines()


def test_an_instance_gets_the_repository_and_a_kernel(home: Path) -> None:
    calls = start(home)
    assert calls[0] == "sudo -u ec2-user -i"
    assert calls[1] == "git clone --branch main https://example.org/battlesnake.git battlesnake"
    assert calls[2].startswith(f"conda create --yes --prefix {home}/SageMaker/")
    assert calls[2].endswith("python=3.11")
    assert calls[3].startswith("python -m pip install -c constraints.txt -e ")
    assert calls[4].startswith("python -m ipykernel install --user --name battlesnake")
    assert "status 0" in (home / "SageMaker/install.log").read_text()
    assert [line for line in start(home) if line.startswith(("git", "conda"))] == [], "a restart"


def test_the_sdk_uses_the_stack_s_bucket(home: Path) -> None:
    """Otherwise the SDK would create a bucket, which the role does not allow."""
    start(home)
    settings = yaml.safe_load((home / ".config/sagemaker/config.yaml").read_text())
    assert settings["SchemaVersion"] == "1.0"
    session = settings["SageMaker"]["PythonSDK"]["Modules"]["Session"]
    assert session == {"DefaultS3Bucket": templates.PARAMETERS["notebook"]["BucketName"]}


def test_the_extras_exist(home: Path) -> None:
    (install,) = [line for line in script().splitlines() if "pip install" in line]
    extras = shlex.split(install)[-1].removeprefix(".[").removesuffix("]").split(",")
    known = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    assert set(extras) <= set(known)
    assert {"rllib", "server", "sagemaker", "notebooks"} <= set(extras)


def test_what_failed_is_tried_again_at_the_next_start(home: Path) -> None:
    (home / "offline").touch()
    assert not any("ipykernel" in call for call in start(home))
    assert "status 1" in (home / "SageMaker/install.log").read_text()
    (home / "offline").unlink()
    assert any("ipykernel" in call for call in start(home))


def test_the_script_fits(home: Path) -> None:
    assert len(script()) < 12_000, "16384 characters in base64"
