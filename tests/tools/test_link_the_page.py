"""The README's first link leads to where the page that plays was published."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.processes import run

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "tools/link_the_page.sh"
ADDRESS = "https://owner.example/name/docs/play/index.html"


def git(folder: Path, *words: str) -> str:
    return run("git", *words, cwd=folder, check=True).stdout.strip()


def link(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "GITHUB_REF_NAME"}
    return run(SCRIPT, ADDRESS, cwd=folder, env=environment)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A repository that takes pushes."""
    git(tmp_path, "init", "-q", "--bare", "-b", "main", "published")
    return tmp_path / "published"


@pytest.fixture
def clone(published: Path) -> Path:
    """A clone with the README as it is."""
    git(published.parent, "clone", "-q", "published", "clone")
    folder = published.parent / "clone"
    shutil.copy(ROOT / "README.md", folder)
    git(folder, "add", "README.md")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "First")
    git(folder, "push", "-q", "origin", "HEAD:main")
    return folder


def test_the_link_is_committed_and_pushed_once(clone: Path, published: Path) -> None:
    before = (clone / "README.md").read_text()
    assert link(clone).returncode == 0
    after = git(published, "show", "main:README.md")
    lines = zip(before.strip().splitlines(), after.splitlines(), strict=True)
    changed = [new for old, new in lines if old != new]
    assert len(changed) == 1
    assert f"]({ADDRESS})" in changed[0]
    again = link(clone)
    assert (again.returncode, "already" in again.stdout) == (0, True)
    assert git(published, "rev-list", "--count", "main") == "2"


def test_a_branch_that_takes_no_pushes_says_what_to_do(clone: Path, published: Path) -> None:
    hook = published / "hooks/pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    done = link(clone)
    assert done.returncode == 1
    assert re.search(rf"{re.escape(ADDRESS)} .*README\.md", done.stderr)


def test_a_readme_without_the_link_is_told(clone: Path) -> None:
    (clone / "README.md").write_text("# Nothing\n")
    done = link(clone)
    assert done.returncode == 1
    assert "README.md" in done.stderr
