"""The systemd unit calls the command as it is."""

from __future__ import annotations

import configparser
import shlex
from pathlib import Path

from battlesnake_server.commands import serve

UNIT = Path(__file__).parents[2] / "deployment/server/battlesnake.service"


def test_the_unit_starts_a_server_without_rights() -> None:
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(UNIT)
    service = unit["Service"]
    program, subcommand, *options = shlex.split(service["ExecStart"])
    assert (Path(program).name, subcommand) == ("battlesnake-gym", "serve")
    assert serve.parser().parse_args(options).host == "127.0.0.1"
    assert service["DynamicUser"] == "yes"
    assert service["Restart"] == "always"
