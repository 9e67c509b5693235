"""``battlesnake-gym aws deploy``: deploy a bundle to AWS Lambda."""

from __future__ import annotations

import argparse
import json
import sys
import urllib.request

from battlesnake_gym.boards.board import Board
from battlesnake_gym.common.command_line import reports_errors
from battlesnake_gym.rules import Game
from battlesnake_server.aws.snake_stack import check_options, deploy
from battlesnake_server.aws.snake_stack import parser as parser
from battlesnake_server.aws.stacks import Account
from battlesnake_server.bundle import Bundle
from battlesnake_server.strategy_loader import example_board_size


@reports_errors
def main(argv: list[str] | None = None) -> int:
    """Create the stack and print the snake's URL.

    The exit status is 2 if the stack is rejected.
    """
    options = parser().parse_args(argv)
    check_options(options)
    if options.simulate:
        _simulate_deployment(options)
        return 0
    sys.stdout.write(deploy(Account.from_session(), options) + "\n")
    return 0


def _simulate_deployment(options: argparse.Namespace) -> None:
    """Create the stack in a simulated account, request a move, and delete the stack."""
    try:
        from battlesnake_server.aws.lambda_simulator import SimulatedAccount

        account = SimulatedAccount()
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{error.name} is missing; install the extra: pip install '.[aws-simulator]'"
        ) from error
    with account:
        url = account.deploy(options)
        sys.stdout.write(f"simulated: the stack {options.name} is created\n")
        size = example_board_size(Bundle.load(options.bundle).factory())
        for path, body in (("/", None), ("/move", move_request_body(size=size))):
            with urllib.request.urlopen(f"{url}{path}", body) as answer:
                sys.stdout.write(f"{path}  {answer.read().decode().strip()}\n")
        for one in account.account.undeploy(options.name):
            sys.stdout.write(f"kept: {one}\n")
        sys.stdout.write(f"simulated: the stack {options.name} is deleted\n")


def move_request_body(seed: int = 1, size: tuple[int, int] = (11, 11)) -> bytes:
    """Return the body of a move request at the start of a game."""
    board = Board.new(*size, 2, game=Game(seed=seed, id="simulation", timeout=10_000))
    return json.dumps(board.to_api("snake_0")).encode()
