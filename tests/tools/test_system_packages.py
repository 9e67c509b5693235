"""The script that installs Debian packages, beside programs that only note what they are told."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "tools" / "system_packages.sh"

# dpkg-query says of all packages but those in $MISSING that they are installed.
PROGRAMS = {
    "dpkg-query": 'case " $MISSING " in *" $4 "*) exit 1 ;; esac; echo "install ok installed"',
    "id": 'echo "$USER_ID"',
    "sudo": '[ -z "$ASKS" ] || exit 1; [ "$2" = true ] || { echo "sudo" >>"$TOLD"; shift; "$@"; }',
    "apt-get": 'echo "$DEBIAN_FRONTEND: apt-get $*" >>"$TOLD"',
}


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the programs write what they were told; they stand first in the PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, body in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
    told = tmp_path / "told"
    told.touch()
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("TOLD", str(told))
    for name, value in {"MISSING": "chromium tini", "USER_ID": "1000", "ASKS": ""}.items():
        monkeypatch.setenv(name, value)
    return told


def run() -> str:
    done = subprocess.run([SCRIPT], capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout


INSTALLED = """\
noninteractive: apt-get -qq update
noninteractive: apt-get -qq install -y --no-install-recommends chromium tini
"""


def test_root_installs_what_is_missing(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USER_ID", "0")
    assert "chromium tini" in run()
    assert told.read_text() == INSTALLED


def test_so_does_who_has_a_sudo_that_asks_nothing(told: Path) -> None:
    run()
    first, second = INSTALLED.splitlines()
    assert told.read_text().splitlines() == ["sudo", first, "sudo", second]


def test_others_are_told_what_to_install(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASKS", "a password")
    assert "sudo apt-get install chromium tini" in run()
    assert not told.read_text()


def test_nothing_is_done_where_nothing_is_missing(
    told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MISSING", "")
    assert run() == ""
    assert not told.read_text()


def test_a_failed_installation_is_a_failure(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (told.parent / "bin" / "apt-get").write_text("#!/bin/sh\nexit 100\n")
    monkeypatch.setenv("USER_ID", "0")
    done = subprocess.run([SCRIPT], capture_output=True, check=False)
    assert done.returncode == 100
