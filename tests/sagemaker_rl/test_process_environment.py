"""Environment variables and torch's threads of training processes."""

import json
import os
import sys
from pathlib import Path

import pytest

from sagemaker_rl.job import process_environment
from tests import processes

ROOT = Path(__file__).parents[2]

IMPORT_ALL = """
import contextlib, importlib, json, os, pkgutil
for name in ("numpy", "torch", "ray.rllib", "gymnasium", "pettingzoo", "tensorboardX", "envpool",
             "imageio.v2", "matplotlib.pyplot", "moto", "sagemaker", "onnx", "onnxscript"):
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
before = dict(os.environ)
imported = []
for top in ("battlesnake_gym", "battlesnake_heuristics", "battlesnake_server", "battlesnake_rl",
            "sagemaker_rl"):
    package = importlib.import_module(top)
    for module in pkgutil.walk_packages(package.__path__, f"{top}."):
        with contextlib.suppress(ImportError):
            importlib.import_module(module.name)
            imported.append(module.name)
after = dict(os.environ)
names = before.keys() | after.keys()
print(json.dumps([imported, sorted(n for n in names if before.get(n) != after.get(n))]))
"""
"""Imports other packages first, because some of them set variables."""


@pytest.mark.timeout(600)
def test_imports_set_no_environment_variable() -> None:
    given = {name: value for name, value in os.environ.items() if not name.startswith("OMP_")}
    done = processes.run(sys.executable, "-c", IMPORT_ALL, cwd=ROOT, env=given)
    assert done.returncode == 0, done.stderr
    imported, changed = json.loads(done.stdout.splitlines()[-1])
    assert changed == []
    assert {"sagemaker_rl.ray_launcher", "battlesnake_rl.mabs.ppo.ppo"} <= set(imported)


def test_set_variables_override_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.delenv("RAY_USAGE_STATS_ENABLED", raising=False)
    expected = {
        "OMP_NUM_THREADS": "3",
        "OMP_WAIT_POLICY": "passive",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    assert process_environment.actor_variables() == expected
    assert "OMP_WAIT_POLICY" not in os.environ
    process_environment.set_default_variables()
    assert {name: os.environ[name] for name in expected} == expected


@pytest.mark.parametrize(("given", "threads"), [(None, 1), ("2", 2)])
def test_torch_uses_one_thread_unless_the_user_sets_it(
    monkeypatch: pytest.MonkeyPatch, given: str | None, threads: int
) -> None:
    import torch

    if given is None:
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    else:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        process_environment.limit_torch_threads()
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
