"""A snake whose moves come from a SageMaker endpoint, with another that steps in.

The endpoint takes the body of a ``/move`` request and answers the move, as ours do on
``/invocations`` (``deployment/cloudformation/endpoint.yaml``). The caller needs
``sagemaker:InvokeEndpoint``, and boto3.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from battlesnake_gym.boards.board import Board
from battlesnake_gym.rules import MOVES
from battlesnake_gym.snakes import Decision, Factory, Strategy

SECONDS = 0.3
"""How long the endpoint may take; the rest of an engine's half second is for who steps in."""

log = logging.getLogger(__name__)


class EndpointSnake:
    """A strategy that asks the endpoint ``name``, and ``otherwise`` where no move comes of it."""

    def __init__(self, runtime: Any, name: str, otherwise: Strategy) -> None:
        self._runtime = runtime
        self._name = name
        self._otherwise = otherwise
        self._told = False

    def __call__(self, board: Board, seconds: float | None = None) -> Decision:
        """Choose a move for ``board.you``."""
        began = time.perf_counter()
        try:
            return self._ask(board)
        except Exception as error:  # botocore has many, and a network more
            if not self._told:
                log.warning("the endpoint %s does not answer: %s", self._name, error)
            self._told = True
        left = None if seconds is None else seconds - (time.perf_counter() - began)
        return self._otherwise(board, left if left is None else max(0.01, left))

    def _ask(self, board: Board) -> Decision:
        answer = self._runtime.invoke_endpoint(
            EndpointName=self._name,
            ContentType="application/json",
            Body=json.dumps(board.to_api(board.you_id)),
        )
        move = json.load(answer["Body"])["move"]
        if move not in MOVES:
            raise ValueError(f"it answered the move {move!r}")
        return Decision(move)


def before(factory: Factory, name: str) -> Factory:
    """Strategies that ask the endpoint first, and those of ``factory`` where it does not answer.

    Raises ``ValueError`` where boto3 is missing.
    """
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ModuleNotFoundError as error:
        raise ValueError(f"the endpoint {name!r} needs boto3: pip install boto3") from error
    waits = Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"total_max_attempts": 1})
    try:
        runtime = boto3.client("sagemaker-runtime", config=waits)
    except BotoCoreError as error:  # no region
        raise ValueError(f"the endpoint {name!r} cannot be asked: {error}") from error
    return lambda seed: EndpointSnake(runtime, name, factory(seed))
