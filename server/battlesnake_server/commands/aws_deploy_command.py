"""``battlesnake-gym aws deploy``: a bundle behind a URL on AWS Lambda, in one step."""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.command_line import print_error
from battlesnake_gym.rules import Game
from battlesnake_server.aws.snake_stack import PROG, check, deploy
from battlesnake_server.aws.snake_stack import parser as parser
from battlesnake_server.aws.stacks import StackError, account
from battlesnake_server.commands.aws_undeploy_command import undeploy


def main(argv: list[str] | None = None) -> int:
    """Make the stack and print the snake's address; the exit status is 2 where it is refused."""
    options = parser().parse_args(argv)
    try:
        check(options)
        if options.rehearse:
            rehearse(options)
            return 0
        sys.stdout.write(deploy(account(), options) + "\n")
    except (ValueError, OSError) as error:
        return print_error(PROG, error)
    return 0


def rehearse(options: argparse.Namespace) -> None:
    """Make the stack in an account on this machine, ask the snake, and take all away again."""
    try:
        from battlesnake_server.aws.lambda_simulator import SimulatedAccount

        account = SimulatedAccount()
    except ModuleNotFoundError as error:
        raise StackError(
            f"{error.name} is missing; install the extra: pip install '.[rehearsal]'"
        ) from error
    with account:
        url = account.deploy(options)
        sys.stdout.write(f"rehearsed: the stack {options.name} is made\n")
        for path, body in (("/", None), ("/move", a_request())):
            with urllib.request.urlopen(f"{url}{path}", body) as answer:
                sys.stdout.write(f"{path}  {answer.read().decode().strip()}\n")
        for one in undeploy(account.account, options.name):
            sys.stdout.write(f"kept: {one}\n")
        sys.stdout.write(f"rehearsed: the stack {options.name} is gone\n")


def a_request(seed: int = 1) -> bytes:
    """The body of a request for a move, at the start of a game."""
    board = Board.new(11, 11, 2, game=Game(seed=seed, id="rehearsal", timeout=10_000))
    return json.dumps(board.to_api("snake_0")).encode()
