"""Wheels for every machine, and the workflow that releases them, run dry."""

import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.processes import run

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
RELEASE: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
VERSION: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]

MACHINES = {
    "manylinux_2_17_x86_64": (b"\x7fELF", b"\x3e\0"),
    "manylinux_2_17_aarch64": (b"\x7fELF", b"\xb7\0"),
    "musllinux_1_2_x86_64": (b"\x7fELF", b"\x3e\0"),
    "musllinux_1_2_aarch64": (b"\x7fELF", b"\xb7\0"),
    "macosx_11_0_arm64": (b"\xcf\xfa\xed\xfe", b"\x0c\0\0\x01"),
    "macosx_11_0_x86_64": (b"\xcf\xfa\xed\xfe", b"\x07\0\0\x01"),
    "win_amd64": (b"MZ", b"\x64\x86"),
}
"""How the compiled parts of each wheel begin, and how they name their processor."""


def test_the_workflows_are_what_their_schema_allows() -> None:
    pytest.importorskip("check_jsonschema", reason="needs the extra dev")
    words = ("-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows")
    done = run(sys.executable, *words, *WORKFLOWS)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_jobs_may_only_read(workflow: Path) -> None:
    text = workflow.read_text()
    used = re.findall(r"uses: (.*)", text)
    assert used
    for action in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", action), action
    loaded = yaml.safe_load(text)
    assert loaded["permissions"] == {"contents": "read"}
    writers = {name for name, job in loaded["jobs"].items() if "permissions" in job}
    assert writers == ({"publish"} if workflow.name == "ci.yml" else {"publish", "image"})


@pytest.mark.parametrize(("tag", "status"), [(f"v{VERSION}", 0), ("v9.9.9", 1)])
def test_a_tag_that_is_not_the_version_is_refused(tag: str, status: int, tmp_path: Path) -> None:
    (step,) = (step for step in RELEASE["jobs"]["build"]["steps"] if "name" in step)
    (tmp_path / "dist").mkdir()
    (tmp_path / f"dist/battlesnake_gym-{VERSION}.tar.gz").touch()
    done = run("bash", "-e", "-c", step["run"], cwd=tmp_path, env={"GITHUB_REF_NAME": tag})
    assert done.returncode == status


def test_the_images_are_published_under_the_name_of_the_fork(tmp_path: Path) -> None:
    script = "".join(step["run"] + "\n" for step in RELEASE["jobs"]["image"]["steps"][-2:])
    docker, sudo = tmp_path / "docker", tmp_path / "sudo"
    sudo.write_text("#!/bin/sh\n")
    sudo.chmod(0o755)
    docker.write_text('#!/bin/sh\necho "$@" >> "$LOG"\n[ "$1" != login ] || cat >> "$LOG"\n')
    docker.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(tmp_path / "log"), "TOKEN": "t"}
    env |= {"GITHUB_REPOSITORY": "Jane/Snake", "GITHUB_ACTOR": "Jane", "GITHUB_REF_NAME": "a/b"}
    done = run("bash", "-e", "-c", script, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    login, token, build, *training = (tmp_path / "log").read_text().splitlines()
    assert (login, token) == ("login ghcr.io --username Jane --password-stdin", "t")
    words = build.split()
    assert [words[i + 1] for i, word in enumerate(words) if word == "--tag"] == [
        "ghcr.io/jane/snake:latest", "ghcr.io/jane/snake:a-b"
    ]  # fmt: skip
    assert (ROOT / words[-1] / words[words.index("--file") + 1]).is_file()
    for line, name in zip(training, ("", "-cuda12"), strict=True):
        assert f"--tag ghcr.io/jane/snake-training:a-b{name} ." in line
        (packages,) = re.findall(r"REQUIREMENTS=(\S+)", line)
        assert (ROOT / "deployment/training" / packages).is_file()


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("abi3info", reason="needs the extra dev")
    folder = tmp_path_factory.mktemp("release") / "dist"
    subprocess.run([sys.executable, ROOT / "tools/build_wheels.py", folder], check=True)
    return folder


@pytest.mark.slow
def test_every_machine_has_a_wheel_of_its_own_kind(dist: Path) -> None:
    base = f"battlesnake_gym-{VERSION}"
    names = {f"{base}-cp311-abi3-{machine}.whl": machine for machine in MACHINES}
    assert {path.name for path in dist.iterdir()} == {*names, f"{base}.tar.gz"}
    for name, machine in names.items():
        magic, processor = MACHINES[machine]
        suffix = ".pyd" if machine == "win_amd64" else ".abi3.so"
        with zipfile.ZipFile(dist / name) as wheel:
            inside = set(wheel.namelist())
            for part in ("battlesnake_gym/engine/_engine", "battlesnake_heuristics/search/_search"):
                content = wheel.read(part + suffix)
                assert content.startswith(magic), name
                assert processor in content[:512], name
        compiled = {one for one in inside if one.endswith((".so", ".pyd", ".lib", ".pdb", ".dll"))}
        assert len(compiled) == 2, name


@pytest.mark.slow
def test_auditors_have_no_objection(dist: Path) -> None:
    wheels = sorted(dist.glob("*.whl"))
    done = run(Path(sys.executable).with_name("abi3audit"), "--strict", *wheels)
    assert done.returncode == 0, done.stdout + done.stderr
    for wheel in wheels:
        if "manylinux" in wheel.name:  # of musl's it can say nothing on a glibc system
            done = run(Path(sys.executable).with_name("auditwheel"), "show", wheel)
            tag = wheel.stem.rpartition("-")[2]
            assert f'tag: "{tag}"' in " ".join(done.stdout.split()), done.stdout + done.stderr


@pytest.mark.slow
def test_the_workflows_check_passes_here(dist: Path, tmp_path: Path) -> None:
    """With what is installed here in place of PyPI, and no compiler."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    (site,) = tmp_path.glob("venv/lib/python*/site-packages")
    packages = [path for path in sys.path if path.endswith("-packages")]
    (site / "packages.pth").write_text("\n".join(packages) + "\n")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    path = os.pathsep.join([str(tmp_path / "venv/bin"), os.environ["PATH"]])
    play = RELEASE["env"]["PLAY"].replace("install", "install --no-deps --force-reinstall", 1)
    done = run("bash", "-euc", play, cwd=dist.parent, env=kept | {"PATH": path, "CC": "false"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
