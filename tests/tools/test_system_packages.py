"""The script that installs Debian packages, beside programs that only note what they are told."""

import os
from pathlib import Path

import pytest

from tests.processes import run

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


INSTALLED = """\
noninteractive: apt-get -qq update
noninteractive: apt-get -qq install -y --no-install-recommends chromium tini
"""


@pytest.mark.parametrize(
    ("variables", "done", "said"),
    [
        ({"USER_ID": "0"}, INSTALLED, "chromium tini"),
        ({}, INSTALLED.replace("noninteractive", "sudo\nnoninteractive"), "chromium tini"),
        ({"ASKS": "a password"}, "", "sudo apt-get install chromium tini"),
        ({"MISSING": ""}, "", ""),
    ],
    ids=["root", "a sudo that asks nothing", "others are told", "nothing is missing"],
)
def test_what_is_missing_is_installed(
    variables: dict[str, str], done: str, said: str, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ran = run(SCRIPT, check=True)
    assert not ran.stderr
    assert told.read_text() == done
    assert said in ran.stdout
    assert bool(ran.stdout) == bool(said)


def test_a_failed_installation_is_a_failure(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (told.parent / "bin" / "apt-get").write_text("#!/bin/sh\nexit 100\n")
    monkeypatch.setenv("USER_ID", "0")
    assert run(SCRIPT).returncode == 100
