"""The image's first process passes SIGTERM on to the script, and lives until that has ended."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ENTRYPOINT = Path(__file__).parents[2] / "deployment" / "training" / "entrypoint.sh"

SCRIPT = """
import signal, sys, time
def stop(*_):
    print("checkpoint written", flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
print("ready", flush=True)
time.sleep(60)
"""

# As sagemaker-training: waits for the script and does not care about signals.
TRAIN = """
import subprocess, sys
status = subprocess.run([sys.executable, "-c", sys.argv[1]]).returncode
print("script ended with", status, flush=True)
sys.exit(status)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.skipif(not shutil.which("tini"), reason="needs the package tini")
def test_sigterm_reaches_the_script() -> None:
    # In a PID namespace the entry point is the first process, as in a container.
    with subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", ENTRYPOINT, sys.executable,
         "-c", TRAIN, SCRIPT],
        stdout=subprocess.PIPE,
        text=True,
    ) as container:  # fmt: skip
        assert container.stdout is not None
        assert container.stdout.readline() == "ready\n"
        children = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text()
        os.kill(int(children.split()[0]), signal.SIGTERM)
        assert container.stdout.read() == "checkpoint written\nscript ended with 143\n"
    assert container.returncode == 143
