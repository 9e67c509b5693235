"""The systemd unit calls the command as it is, and systemd has nothing against it."""

import configparser
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from battlesnake_server.commands import serve_command
from tests.processes import run

UNIT = Path(__file__).parents[2] / "deployment/server/battlesnake.service"


def test_the_unit_starts_a_server_without_rights(tmp_path: Path) -> None:
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    service = unit["Service"]
    program, subcommand, *options = shlex.split(service["ExecStart"])
    assert (Path(program).name, subcommand) == ("battlesnake-gym", "serve")
    assert serve_command.parser().parse_args(options).host == "127.0.0.1"
    assert service["DynamicUser"] == "yes"
    assert service["Restart"] == "always"
    if not shutil.which("systemd-analyze"):
        pytest.skip("needs the Debian package systemd")
    here = tmp_path / UNIT.name
    here.write_text(UNIT.read_text().replace("/opt/battlesnake/bin", f"{sys.prefix}/bin"))
    done = run("systemd-analyze", "verify", "--man=no", here)
    assert (done.returncode, done.stderr) == (0, "")
