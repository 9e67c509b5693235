"""Clusters without SageMaker: Ray's cluster launcher on EC2, and KubeRay on Kubernetes."""

import json
import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from tests.deployment.test_pins import pins

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deployment" / "ray"


SCHEMA = ROOT / "tests" / "data" / "rayjob_schema.json"
"""Part of the API ray.io/v1 in use (https://ray-project.github.io/kuberay/reference/api/)."""


def rayjobs() -> Any:
    """Return the schema of a job: KubeRay's ray.io_rayjobs.yaml, if ``KUBERAY_CRD`` is its path.

    No package registry has that file, which is one megabyte.
    """
    if "KUBERAY_CRD" not in os.environ:
        return json.loads(SCHEMA.read_text())
    definition = yaml.safe_load(Path(os.environ["KUBERAY_CRD"]).read_text())
    (version,) = [one for one in definition["spec"]["versions"] if one["name"] == "v1"]
    return closed(version["schema"]["openAPIV3Schema"]["properties"]["spec"])


def closed(schema: Any) -> Any:
    """Return a schema that rejects the unknown fields that Kubernetes would drop silently."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        made.setdefault("additionalProperties", False)
    return made


def commands() -> list[list[str]]:
    """Return the training commands of cluster.yaml and of the job's entry point."""
    _, job = read("rayjob.yaml")
    (line,) = re.findall(r'--tmux "(.*)"', (FOLDER / "cluster.yaml").read_text())
    return [shlex.split(line), shlex.split(job["spec"]["entrypoint"])]


def read(name: str) -> list[Any]:
    return list(yaml.safe_load_all((FOLDER / name).read_text()))


def first(kinds: Any, failed: dict[str, float]) -> dict[str, int]:
    """Return the machines that Ray's autoscaler starts for eight CPUs; ``failed`` score < 1."""
    from ray.autoscaler.v2.instance_manager.config import NodeTypeConfig
    from ray.autoscaler.v2.scheduler import ResourceDemandScheduler, SchedulingRequest
    from ray.autoscaler.v2.utils import ResourceRequestUtil

    wanted = ResourceRequestUtil.group_by_count([ResourceRequestUtil.make({"CPU": 4})] * 2)
    types = {
        name: NodeTypeConfig(name, 0, kind["max_workers"], None, kind.get("priority", 0),
                             dict(kind["resources"]))
        for name, kind in kinds.items()
        if name != "head"
    }  # fmt: skip
    request = SchedulingRequest(
        disable_launch_config_check=True,
        node_type_configs=types,
        max_num_nodes=4,
        resource_requests=wanted,
        recoverable_resource_availabilities=failed,
    )
    reply = ResourceDemandScheduler(None).schedule(request)
    return {one.instance_type: one.count for one in reply.to_launch}


def test_the_launcher_takes_the_file_and_makes_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Run the launcher until machines would start, with resources simulated by moto."""
    pytest.importorskip("ray", reason="needs the extra rllib")
    moto = pytest.importorskip("moto", reason="needs the extra dev")
    from ray.autoscaler._private import commands as launcher
    from ray.autoscaler._private.aws.utils import resource_cache
    from ray.autoscaler._private.util import prepare_config, validate_config

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "nothing")
    monkeypatch.chdir(ROOT)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("token")
    (tmp_path / ".ssh").mkdir()
    (given,) = read("cluster.yaml")
    validate_config(prepare_config(given))
    resource_cache.cache_clear()
    monkeypatch.setattr("ray.autoscaler._private.aws.config.time.sleep", lambda _: None)
    with moto.mock_aws(config={"iam": {"load_aws_managed_policies": True}}):
        made = launcher._bootstrap_config(given, no_config_cache=True)
    kinds = made["available_node_types"]
    assert made["head_node"]["IamInstanceProfile"]
    for kind in kinds.values():
        assert kind["node_config"]["SecurityGroupIds"]
        assert kind["node_config"]["ImageId"].startswith("resolve:ssm:")
        assert kind["resources"]["CPU"] == 4
    spot, fallback = (kinds[name]["node_config"] for name in ("worker", "fallback"))
    assert spot["InstanceMarketOptions"] == {"MarketType": "spot"}
    assert "InstanceMarketOptions" not in fallback
    assert fallback["InstanceType"] != spot["InstanceType"]
    assert first(kinds, {}) == {"worker": 2}
    assert first(kinds, {"worker": 0.0}) == {"fallback": 2}


def test_the_job_is_one_of_kuberay_s() -> None:
    claim, job = read("rayjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    errors = [error.message for error in Draft202012Validator(rayjobs()).iter_errors(job["spec"])]
    assert not errors
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    (volume,) = head["volumes"]
    assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    (mount,) = head["containers"][0]["volumeMounts"]
    _, line = commands()
    assert line[line.index("--runs-dir") + 1] == mount["mountPath"]


def test_both_train_as_the_page_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray", reason="needs the extra rllib")
    from battlesnake_rl.commands.train_command import main

    for _, _, *options in commands():
        address = options.index("--ray-address")
        assert options[address + 1] == "auto"
        del options[address : address + 2]
        grow = options.index("--autoscale-timeout")
        assert "--num-env-runners" in options
        del options[grow : grow + 2]
        assert main([*options, "--runs-dir", str(tmp_path), "--dry-run"]) == 0
        assert capsys.readouterr().err == ""


def test_the_image_adds_what_fits_to_that_of_training() -> None:
    ours = pins(FOLDER / "requirements.txt")
    below = pins(ROOT / "deployment" / "training" / "requirements.txt")
    _, job = read("rayjob.yaml")
    assert ours["ray"] == below["ray"] == job["spec"]["rayClusterSpec"]["rayVersion"]
    both = set(ours) & set(below)
    assert {name: ours[name] for name in both} == {name: below[name] for name in both}
    text = (FOLDER / "Dockerfile").read_text()
    assert "--require-hashes" in text
    assert text.count("pip install") == 1
