"""The baseline as a process: a JSON line in, a JSON line out. `algorithm.MXNet` starts it.

The first line holds ``env_config``, ``settings`` and ``seed``. Each further one is a command:
``["train"]``, ``["measure"]``, ``["save", folder]`` or ``["restore", folder]``; the answer to the
first two are results, to the others null. The process ends when its standard input does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from battlesnake_rl.mxnet_baseline.mxnet_dqn import Baseline
from battlesnake_rl.mxnet_baseline.mxnet_settings import MXNetSettings


def main() -> None:
    """Serve one baseline."""
    # Ctrl-C reaches every process of a terminal; when to stop is for the one that asks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # MXNet must not write between the answers: whatever it prints goes to standard error.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    told = json.loads(sys.stdin.readline())
    baseline = Baseline(told["env_config"], MXNetSettings(**told["settings"]), told["seed"])
    for line in sys.stdin:
        command, *folders = json.loads(line)
        do: dict[str, Callable[..., Any]] = {
            "train": baseline.train,
            "measure": baseline.measure,
            "save": baseline.save,
            "restore": baseline.restore,
        }
        answers.write(json.dumps(do[command](*map(Path, folders))) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
