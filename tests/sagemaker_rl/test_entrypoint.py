"""The image's first process forwards SIGTERM to the script and waits for its end."""

import os
import shutil
import signal
import subprocess
import tempfile
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

# Like sagemaker-training, it waits for the script and ignores signals.
TRAIN = """
import os, subprocess, sys
from pathlib import Path
status = Path("/proc/self/status").read_text()
assert os.getresuid() == os.getresgid() == (10001,) * 3, os.getresuid()
assert not os.getgroups()
assert "NoNewPrivs:\\t1" in status
assert "CapEff:\\t0000000000000000" in status
Path(os.environ["SAGEMAKER_BASE_DIR"], "written").touch()
status = subprocess.run([sys.executable, "-c", sys.argv[1]]).returncode
print("script ended with", status, flush=True)
sys.exit(status)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.skipif(not shutil.which("tini"), reason="needs the package tini")
@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs util-linux")
def test_nothing_runs_as_root_and_sigterm_reaches_the_script() -> None:
    # In a PID namespace the entry point is the first process, as in a container. It needs a Python
    # that another user may run.
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin")
    if python is None:
        pytest.skip("needs the system's Python")
    with tempfile.TemporaryDirectory() as base, subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", ENTRYPOINT, python, "-c",
         TRAIN, SCRIPT],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "SAGEMAKER_BASE_DIR": base},
    ) as container:  # fmt: skip
        assert container.stdout is not None
        assert container.stdout.readline() == "ready\n"
        children = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text()
        os.kill(int(children.split()[0]), signal.SIGTERM)
        assert container.stdout.read() == "checkpoint written\nscript ended with 143\n"
    assert container.returncode == 143
