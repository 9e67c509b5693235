"""Pins of the images: packages by their hashes, the base image by its digest."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.processes import run

ROOT = Path(__file__).parents[2]
DOCKERFILES = ("deployment/server/Dockerfile", "deployment/training/Dockerfile")
REQUIREMENTS = {
    "deployment/server/requirements.txt": ("server",),
    "deployment/server/requirements-lambda.txt": (),
    "deployment/training/requirements.txt": ("rllib", "procgen"),
    "deployment/training/requirements-cuda12.txt": ("rllib", "procgen"),
    "deployment/ray/requirements.txt": (),
}
DIGEST = "sha256:" + "0123456789abcdef" * 4


def normal(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def pins(path: Path) -> dict[str, str]:
    return {
        normal(name): version
        for name, version in re.findall(r"^([\w.-]+)==([^\s;]+)", path.read_text(), re.MULTILINE)
    }


@pytest.mark.parametrize("name", REQUIREMENTS)
def test_every_package_of_an_image_has_its_hash_and_the_version_that_was_tested(name: str) -> None:
    text = (ROOT / name).read_text()
    for entry in re.split(r"\n(?=\w)", text.partition("\n")[2]):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry
    assert "://" not in text, "it names no index"
    tested, found = pins(ROOT / "constraints.txt"), pins(ROOT / name)
    if "cuda12" in name:
        tested["torch"] = "2.10.0"
        assert any(one.endswith("cu12") for one in found)
    assert {key: tested[key] for key in found if key in tested} == {
        key: version for key, version in found.items() if key in tested
    }, "tools/pin_images.sh packages writes them anew"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extra in REQUIREMENTS[name]:
        for wanted in project["dependencies"] + project["optional-dependencies"][extra]:
            assert normal(re.split(r"[\[<>=;!~ ]", wanted)[0]) in found, wanted


@pytest.mark.parametrize("name", DOCKERFILES)
def test_images_install_nothing_without_a_hash(name: str) -> None:
    text = (ROOT / name).read_text().replace("\\\n", " ")
    installs = [line for line in text.splitlines() if "pip install" in line]
    assert len(installs) == 2
    assert "--require-hashes" in installs[0]
    assert "--no-deps --no-build-isolation /source" in installs[1]
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${PYTHON_IMAGE}"] * 2


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Copy the tool and the Dockerfiles, and create a ``docker`` with one digest."""
    for name in ("tools/pin_images.sh", *DOCKERFILES):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\necho {DIGEST}\n")
    docker.chmod(0o755)
    return tmp_path


def tool(checkout: Path, word: str) -> subprocess.CompletedProcess[str]:
    path = f"{checkout}:{os.environ['PATH']}"
    return run(checkout / "tools/pin_images.sh", word, env={**os.environ, "PATH": path})


def test_the_base_image_of_the_repository_has_its_digest() -> None:
    done = tool(ROOT, "check")
    assert done.returncode == 0, done.stderr


def test_two_bases_are_refused(checkout: Path) -> None:
    path = checkout / DOCKERFILES[0]
    path.write_text(re.sub(r"@sha256:\w+", f"@{DIGEST}", path.read_text()))
    refused = tool(checkout, "check")
    assert refused.returncode == 1
    assert "PYTHON_IMAGE differs" in refused.stderr


def test_a_base_image_without_a_digest_is_refused_and_the_tool_writes_one(checkout: Path) -> None:
    for name in DOCKERFILES:
        path = checkout / name
        path.write_text(re.sub(r"@sha256:\w+", "", path.read_text()))
    refused = tool(checkout, "check")
    assert refused.returncode == 1
    assert all(
        re.search(f"{re.escape(name)}: PYTHON_IMAGE .*digest", refused.stderr)
        for name in DOCKERFILES
    )
    assert tool(checkout, "base").returncode == 0
    assert tool(checkout, "check").returncode == 0
    for name in DOCKERFILES:
        text = (checkout / name).read_text()
        assert f"ARG PYTHON_IMAGE=python:3.11-slim-bookworm@{DIGEST}\n" in text
    (checkout / "docker").write_text("#!/bin/sh\necho nothing\n")
    assert tool(checkout, "base").returncode == 1
