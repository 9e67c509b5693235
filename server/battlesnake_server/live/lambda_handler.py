"""The live snake on AWS Lambda, behind API Gateway: HTTP API, REST API or a function URL.

Name ``battlesnake_server.live.lambda_handler.handler`` as the function's handler, and its snake in
the environment (`battlesnake_server.live.app.from_environment`). ``docs/hosting.md`` says what a
snake loses there.
"""

from __future__ import annotations

from apig_wsgi import make_lambda_handler

from battlesnake_server.live.app import create_app, from_environment

handler = make_lambda_handler(create_app(from_environment()))
"""What Lambda calls with an event of payload format 1.0 or 2.0; answers in the same format."""
