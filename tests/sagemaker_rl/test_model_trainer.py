"""Preflight checks of jobs of the SageMaker SDK 3, which excludes version 2.

``sdk3_job.py`` creates a job with the real SDK. Its tests need ``SAGEMAKER_SDK3_PYTHON``, the path
of a Python with that SDK (``pip install sagemaker-train``).
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("botocore", reason="needs the extra sagemaker")

from sagemaker_rl.job import preflight
from sagemaker_rl.job.job_environment import channel_names, check_channels
from tests.processes import run
from tests.sagemaker_rl.conftest import IMAGE

ROOT = Path(__file__).parents[2]
SCRIPT = """
import json, os, sys
groups = json.loads(os.environ["SM_RESOURCE_CONFIG"])["instance_groups"]
print("seen", [(one["instance_type"], one["hosts"]) for one in groups], os.environ["SM_HPS"])
if "lrr" in json.loads(os.environ["SM_HPS"]):
    sys.exit("lrr")
"""


@pytest.fixture
def trainer(session: Any, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that creates an object with the fields of a `ModelTrainer`."""
    from sagemaker import get_execution_role

    (tmp_path / "train.py").write_text(SCRIPT)

    def make(**changes: Any) -> Any:
        groups = [
            SimpleNamespace(instance_group_name=name, instance_type=kind, instance_count=count)
            for name, kind, count in (("learns", "ml.g5.xlarge", 1), ("plays", "ml.c5.xlarge", 2))
        ]
        fields = {
            "source_code": SimpleNamespace(
                source_dir=str(tmp_path), entry_script=None, command="exec python3 train.py"
            ),
            "compute": SimpleNamespace(instance_groups=groups, enable_managed_spot_training=False),
            "stopping_condition": SimpleNamespace(max_runtime_in_seconds=60),
            "networking": None,
            "checkpoint_config": None,
            "output_data_config": None,
            "training_image": f"{IMAGE}:latest",
            "role": get_execution_role(session),
            "sagemaker_session": session,
            "hyperparameters": {"algorithm": "APEX", "minutes": 5, "sizes": "[8]"},
        }
        return SimpleNamespace(**(fields | changes))

    return make


def test_a_job_that_can_work_passes(
    trainer: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    preflight.check(trainer())
    said = capsys.readouterr().out
    assert "('ml.g5.xlarge', ['algo-1']), ('ml.c5.xlarge', ['algo-2', 'algo-3'])" in said
    given = json.loads(said.partition("] ")[2].partition("] ")[2] or said[said.index("{") :])
    assert given == {"algorithm": "APEX", "minutes": 5, "sizes": [8]}


def test_mistakes_are_found(trainer: Callable[..., Any]) -> None:
    spot = SimpleNamespace(
        instance_type="ml.c5.xlarge", instance_count=0, enable_managed_spot_training=True
    )
    source = trainer().source_code
    shell = SimpleNamespace(source_dir=source.source_dir, entry_script="train.py", command=None)
    for changes, message in (
        ({"compute": spot}, "instance_count .*0"),
        ({"compute": spot}, "use_spot_instances .*checkpoint_s3_uri"),
        ({"hyperparameters": {"lrr": 1}}, "lrr"),
        ({"hyperparameters": {"rl.training.config.lr": 1}}, r"rl\.training\.config\.lr\b"),
        ({"training_image": None}, "image_uri"),
        ({"source_code": shell}, "'exec python3 train.py'"),
    ):
        with pytest.raises(preflight.PreflightError, match=message):
            preflight.check(trainer(**changes))


def test_an_estimator_stays_what_it_is() -> None:
    one = SimpleNamespace(entry_point="train.py", instance_count=1)
    assert preflight._as_estimator(one) is one


def test_the_channels_of_the_sdk_are_nobodys_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SM_CHANNELS", '["code", "sm_drivers", "policy"]')
    assert channel_names() == ["policy"]
    check_channels(["policy"])


def with_the_real_sdk(what: str, source_dir: Path, folder: Path) -> tuple[str, dict[str, Any]]:
    """Run ``sdk3_job.py``, and return its output and its last line."""
    python = os.environ.get("SAGEMAKER_SDK3_PYTHON")
    if python is None:
        pytest.skip("needs SAGEMAKER_SDK3_PYTHON")
    ours = ("", "heuristics", "server", "rllib_src", "rllib_common/sagemaker_rl")
    path = os.pathsep.join(str(ROOT / one) for one in ours)
    script = Path(__file__).with_name("sdk3_job.py")
    done = run(python, script, what, source_dir, folder, env=os.environ | {"PYTHONPATH": path})
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
def test_the_real_sdk_has_these_fields(tmp_path: Path) -> None:
    _, told = with_the_real_sdk("seen", ROOT / "rllib_src", tmp_path)
    assert told["groups"] == [["learns", "ml.g5.2xlarge", 1], ["plays", "ml.c5.4xlarge", 2]]
    assert told["hyperparameters"] == {"algorithm": '"APEX"', "minutes": "60"}
    assert told["entry_point"] == "train-mabs.py"
    assert told["max_run"] == 7200
    assert not told["misses_sigterm"]
    assert told["instance_count"] is None


TRAINING = """
import json, os, signal, sys, time
from pathlib import Path

if "--dry-run" in sys.argv:
    sys.exit(0)
told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(1))
groups = json.loads(os.environ["SM_RESOURCE_CONFIG"])["instance_groups"]
policy = os.listdir(os.environ["SM_CHANNEL_POLICY"])
model = Path(os.environ["SM_MODEL_DIR"])
saved = model.parent / "checkpoints" / "saved"
if saved.exists():
    (model / "policy").write_text("x")
    minutes = json.loads(os.environ["SM_HPS"])["minutes"]
    print("resumed", [one["hosts"] for one in groups], minutes + 1, policy)
    sys.exit(0)
print("training", os.environ["SM_CURRENT_HOST"], flush=True)
while not told:
    time.sleep(0.1)
saved.write_text("")
sys.exit(143)
"""


@pytest.mark.slow
def test_a_job_of_the_real_sdk_is_simulated(tmp_path: Path) -> None:
    """Two groups, a channel and an interruption, with the programs that the SDK uploads."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "train-mabs.py").write_text(TRAINING)
    said, told = with_the_real_sdk("simulated", source, tmp_path / "jobs")
    assert "training algo-1" in said.partition("interrupted")[0]
    for host in ("algo-1", "algo-2", "algo-3"):
        assert f"{host} | resumed [['algo-1'], ['algo-2', 'algo-3']] 61 ['policy.json']" in said, (
            said
        )
    assert told["status"] == "Completed"
    assert told["model"] > 0


@pytest.mark.slow
def test_the_page_s_listing_trains(tmp_path: Path) -> None:
    said, told = with_the_real_sdk("documented", ROOT / "rllib_src", tmp_path / "jobs")
    assert told["status"] == "Completed"
    assert "algo-1 | training_iteration=1 " in said
