"""The MXNet DQN that the Battlesnake starter pack taught with, as a baseline to measure against.

MXNet 1.9.1 needs numpy before 1.24, so it lives in a virtual environment of its own (``make
mxnet``). `settings` and `algorithm` run in the project's environment; `network`, `dqn`, `worker`
and `export` in the other one, where the same game, environment and counting are imported.
Begin with `dqn`.
"""
