"""Simulator of AWS for a snake on Lambda.

The simulator runs on this machine, free of charge and offline. moto simulates S3, IAM,
CloudFormation and Lambda's API. As on Lambda, a process unpacks and runs the function's code. After
a change of the code, a new process handles the next request.

A web server converts requests to events in place of API Gateway, because moto's CloudFormation does
not create a gateway. The layer is empty, because the function runs in this Python environment. A
simulation therefore does not detect packages that a real layer lacks.
"""

from __future__ import annotations

import argparse
import atexit
import io
import json
import logging
import subprocess
import sys
import tempfile
import threading
import warnings
import zipfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import boto3
from werkzeug import Request, Response

from battlesnake_gym.common import extensions
from battlesnake_server.address_policy import open_listener
from battlesnake_server.aws.publishing import DEFAULT_NAME
from battlesnake_server.aws.snake_stack import check_options, deploy, parser
from battlesnake_server.aws.stacks import Account
from battlesnake_server.http.page_server import PageServer
from battlesnake_server.http.wsgi_pool import Application

_INSTANCE_PROGRAM = """
import json, sys
answers, sys.stdout = sys.stdout, sys.stderr
from battlesnake_server.live.lambda_handler import handler
for line in sys.stdin:
    answers.write(json.dumps(handler(json.loads(line), None)) + "\\n")
    answers.flush()
"""
"""Python program of a simulated Lambda instance.

The program reads one event per line and writes one response per line.
"""

_TASK_DIRECTORY = "/var/task"
"""Directory in which Lambda unpacks a function's code."""


class SimulatedAccount(ExitStack):
    """Simulated AWS account.

    Use the account as a context manager, or call `close`. The end of the account stops all its
    processes.
    """

    def __init__(self) -> None:
        from sagemaker_rl.simulator.local_job import simulated_aws

        super().__init__()
        self.enter_context(warnings.catch_warnings())
        # moto's CloudFormation prints warnings about the unsupported resource types: the four types
        # of API Gateway, and the budget.
        warnings.filterwarnings("ignore", message="Tried to parse")
        logging.getLogger("moto").setLevel(
            logging.ERROR
        )  # moto also logs errors about these types.
        environment = self.enter_context(simulated_aws())
        self.session = boto3.Session(
            aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
            region_name=environment["AWS_DEFAULT_REGION"],
        )
        url = environment["AWS_ENDPOINT_URL"]
        ask = self.session.client
        self.session.client = lambda name, **options: ask(name, **{"endpoint_url": url} | options)
        self.account = Account.from_session(self.session)
        atexit.register(self.close)

    def deploy(self, options: argparse.Namespace) -> str:
        """Deploy a snake with the options of ``battlesnake-gym aws deploy``.

        Returns:
            Local URL of the snake, which is served until the account is closed.
        """
        with tempfile.TemporaryDirectory() as folder:
            layer = Path(folder) / "layer.zip"
            with zipfile.ZipFile(layer, "w") as archive:
                archive.writestr("python/empty", "")
            options.layer = options.layer or layer
            deploy(self.account, options)
        instance = _LambdaInstance(self.account, options.name)
        self.callback(instance.stop)
        listener = open_listener("127.0.0.1", 0)
        server = self.enter_context(PageServer(_gateway(instance), listener))
        return f"http://127.0.0.1:{server.port}"

    def play(self, bundle: str | Path, name: str = DEFAULT_NAME) -> str:
        """Deploy a bundle with the bundle's customization.

        Returns:
            Local URL of the snake.
        """
        options = parser().parse_args([str(bundle), "--name", name])
        check_options(options)
        return self.deploy(options)


class _LambdaInstance:
    """Simulated Lambda instance: a process that runs a function's code.

    The process handles one request at a time.
    """

    def __init__(self, account: Account, function: str) -> None:
        self._account = account
        self._function = function
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._resources = ExitStack()
        self._code = b""

    def handle_event(self, event: dict[str, Any]) -> dict[str, Any]:
        """Run the function's current code on ``event`` and return the response."""
        from moto.awslambda.models import lambda_backends

        with self._lock:
            backend = lambda_backends[self._account.account_id][self._account.region]
            function = backend.get_function(self._function)
            if self._process is None or function.code_bytes != self._code:
                self._start_process(function)
            assert self._process is not None
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(event) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            if not line:
                self._process = None
                return {"statusCode": 502, "body": '{"error": "the function ended"}'}
            answer: dict[str, Any] = json.loads(line)
            return answer

    def stop(self) -> None:
        """Stop the process and delete the unpacked code."""
        self._resources.close()
        self._process = None

    def _start_process(self, function: Any) -> None:
        """Unpack the code of moto's ``function`` and start a process."""
        self.stop()
        self._code = function.code_bytes
        folder = self._resources.enter_context(tempfile.TemporaryDirectory())
        with zipfile.ZipFile(io.BytesIO(self._code)) as code:
            code.extractall(folder)
        variables = {
            key: str(value).replace(_TASK_DIRECTORY, folder)
            for key, value in function.environment_vars.items()
        }
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _INSTANCE_PROGRAM],
            cwd=folder,
            env=extensions.portable_environment() | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C in the terminal must not reach this process.
        )
        self._resources.callback(self._process.communicate)
        self._resources.callback(self._process.kill)


def _gateway(instance: _LambdaInstance) -> Application:
    """Return a WSGI application that passes requests to a simulated Lambda instance.

    The application converts requests to Lambda events of payload format 2.0, and the results of the
    function to HTTP responses.
    """

    @Request.application
    def respond(request: Request) -> Response:
        event = {
            "version": "2.0",
            "rawPath": request.path,
            "rawQueryString": request.query_string.decode("latin-1"),
            "headers": {name.lower(): value for name, value in request.headers},
            "requestContext": {
                "http": {
                    "method": request.method,
                    "path": request.path,
                    "protocol": "HTTP/1.1",
                    "sourceIp": "127.0.0.1",
                }
            },
            "body": request.get_data().decode("utf-8", "replace"),
            "isBase64Encoded": False,
        }
        answer = instance.handle_event(event)
        return Response(answer["body"], answer["statusCode"], content_type="application/json")

    return respond
