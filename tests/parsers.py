"""The parsers of the command line's commands."""

import pytest

from battlesnake_gym.cli import main
from battlesnake_gym.common.command_line import Parser
from battlesnake_gym.common.extras import MissingExtraError


def parser_of(command: str) -> Parser:
    """The command's parser; without the extra that it needs, the test is skipped."""
    try:
        parser: Parser = main.load_command(command).parser()
    except MissingExtraError as error:
        pytest.skip(str(error))
    return parser
