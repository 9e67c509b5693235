"""What is in the wheel and in the source distribution: all that packages need, nothing else."""

from __future__ import annotations

import tarfile
import zipfile
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

from tests.processes import run
from tests.wheel.conftest import Built, Environment, tracked

HOMES = {
    "battlesnake_gym": ["battlesnake_gym"],
    "battlesnake_heuristics": ["heuristics/battlesnake_heuristics"],
    "battlesnake_server": ["server/battlesnake_server"],
    "battlesnake_rl": ["rllib_src/battlesnake_rl"],
    "sagemaker_rl": ["rllib_common/sagemaker_rl"],
}
"""The packages of the wheel, and the folders that they come from."""

KINDS = {
    "battlesnake_gym": {".py", ".pyi", ".c", ".h", ".so", ".txt", "py.typed"},
    "battlesnake_heuristics": {
        *(".py", ".pyi", ".c", ".h", ".so", ".txt", ".json", ".jsonl", ".evaluation", ".md")
    },
    "battlesnake_server": {
        *(".py", ".html", ".js", ".css", ".svg", ".onnx", ".json", ".md", ".yaml", ".txt", "")
    },
    "battlesnake_rl": {".py", ".yaml", ".txt"},
    "sagemaker_rl": {".py"},
}
"""The kinds of files in each."""

OF_JOBS_ONLY = {
    *("imports.py", "requirements.txt", "rollout.py", "train-mabs.py", "train-procgen.py")
}
"""What a job has beside the packages: its scripts."""


@pytest.fixture(scope="module")
def names(built: Built) -> set[str]:
    """The files of the wheel, less what describes it."""
    with zipfile.ZipFile(built.wheel) as wheel:
        return {name for name in wheel.namelist() if ".dist-info/" not in name}


def test_the_wheel_has_these_packages_and_kinds_of_files(names: set[str]) -> None:
    found: dict[str, set[str]] = {}
    for name in names:
        kind = "py.typed" if name.endswith("py.typed") else PurePosixPath(name).suffix
        found.setdefault(name.split("/")[0], set()).add(kind)
    assert found == KINDS


def test_every_file_of_a_package_is_in_the_wheel(names: set[str]) -> None:
    ours = {
        f"{package}/{name.removeprefix(home + '/')}"
        for package, homes in HOMES.items()
        for home in homes
        for name in tracked()
        if name.startswith(home + "/")
    }
    assert ours - names == set()
    more = names - ours
    jobs = "battlesnake_rl/job_scripts/"
    assert {name.removeprefix(jobs) for name in more if name.startswith(jobs)} == OF_JOBS_ONLY
    more = {name for name in more if not name.startswith(jobs)}
    deployed = "battlesnake_server/deployment/"
    read = {name.removeprefix("battlesnake_server/") for name in more if name.startswith(deployed)}
    templates = {name for name in tracked() if name.startswith("deployment/cloudformation/")}
    assert read == templates | {"deployment/server/requirements-lambda.txt"}, "what deploy reads"
    rest = {PurePosixPath(name).suffix for name in more if not name.startswith(deployed)}
    assert rest == {".so"}


def test_what_no_package_has_is_for_jobs_alone() -> None:
    homes = tuple(home + "/" for homes in HOMES.values() for home in homes)
    folders = ("rllib_src/", "rllib_common/", "heuristics/", "server/")
    alone = (name for name in tracked() if name.startswith(folders) and not name.startswith(homes))
    assert {PurePosixPath(name).name for name in alone} == OF_JOBS_ONLY


def test_all_parts_in_c_were_compiled(names: set[str]) -> None:
    compiled = Counter(name.split("/")[0] for name in names if name.endswith(".so"))
    assert compiled == {"battlesnake_gym": 1, "battlesnake_heuristics": 1}


def test_the_source_distribution_has_no_tests(built: Built) -> None:
    with tarfile.open(built.sdist) as sdist:
        inside = {name.split("/")[1] for name in sdist.getnames() if "/" in name}
    assert {"battlesnake_gym", "rllib_src", "rllib_common", "setup.py"} <= inside
    assert "tests" not in inside


IMPORTED = """
import importlib, sys
for package in sys.argv[1:]:
    print(*importlib.import_module(package).__path__)
from battlesnake_gym.engine import engine
assert engine.COMPILED
"""


def test_the_environment_has_the_wheel_and_not_the_checkout(
    environment: Environment, tmp_path: Path
) -> None:
    words = (environment.python, "-c", IMPORTED, *HOMES)
    done = run(*words, cwd=tmp_path, env=environment.variables, check=True)
    folders = done.stdout.splitlines()
    assert len(folders) == len(HOMES)
    assert all(folder.startswith(str(environment.folder)) for folder in folders), folders


JOB = """
from sagemaker.rl import RLEstimator
from sagemaker_rl.job import legacy_listings, preflight
from sagemaker_rl.simulator.simulated_session import SimulatedSession
from article_calls import calls

session = SimulatedSession()
legacy_listings.enable_legacy_listings(session)
from sagemaker.rl import RLEstimator

bucket = session.default_bucket()
values = {"image_name": "sagemaker-rl", "role": session.get_caller_identity_arn()}
values |= {"s3_output_path": f"s3://{bucket}/", "bucket": bucket, "region": "us-east-1"}
_, call = calls(**values, subnets=[], security_groups=[])["homogeneous"]
estimator = RLEstimator(**call)
preflight.check(estimator)
print(estimator.hyperparameters()["algorithm"], estimator.source_dir)
"""


def test_published_calls_need_no_checkout(environment: Environment, tmp_path: Path) -> None:
    pytest.importorskip("sagemaker", reason="needs the extra sagemaker")
    path = {"PYTHONPATH": str(Path(__file__).parents[1] / "sagemaker_rl")}
    words = (environment.python, "-c", JOB)
    done = run(*words, cwd=tmp_path, env=environment.variables | path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"APEX" ' in done.stdout
    assert done.stdout.count("the hyperparameters are valid") == 1


NAMED = """
from battlesnake_rl.mabs import experiments
from battlesnake_rl.procgen import procgen_experiments
for module in (experiments, procgen_experiments):
    for path in module.EXPERIMENT_DIR.glob("*.yaml"):
        assert module.load_experiment(path.stem)
        print(path.stem)
"""


def test_every_experiment_is_known(environment: Environment, tmp_path: Path) -> None:
    words = (environment.python, "-c", NAMED)
    done = run(*words, cwd=tmp_path, env=environment.variables, check=True)
    files = [Path(name).stem for name in tracked() if "/experiment_files/" in name]
    assert sorted(done.stdout.split()) == sorted(files)
    assert {"hill-vanilla", "impala-baseline"} < set(files)
