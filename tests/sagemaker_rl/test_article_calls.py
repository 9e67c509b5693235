"""The article's four calls, run as published: after a preamble, in an unrelated folder."""

import contextlib
import itertools
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.processes import until
from tests.sagemaker_rl import test_simulator
from tests.sagemaker_rl.article_calls import calls

NAMES = ("single", "homogeneous", "primary", "secondary")


@pytest.fixture
def article(
    session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, legacy_listings: Any
) -> Any:
    """Return a function that runs ``RLEstimator(...)`` of a call, and the calls' algorithms."""
    from sagemaker_rl.job.network import find_network

    monkeypatch.chdir(tmp_path)
    network = find_network(session)
    preamble = {
        "image_name": "520713654638.dkr.ecr.us-east-1.amazonaws.com/sagemaker-rl-ray-container",
        "role": session.get_caller_identity_arn(),
        "s3_output_path": f"s3://{session.default_bucket()}/",
        "bucket": session.default_bucket(),
        "region": session.boto_region_name,
        "subnets": network["subnets"],
        "security_groups": network["security_group_ids"],
        "run": tmp_path.name,
    }
    algorithms = {name: algorithm for name, (algorithm, _) in calls(**preamble).items()}
    legacy_listings.enable_legacy_listings(session)

    def call(name: str) -> Any:
        return legacy_listings.RLEstimator(**calls(**preamble)[name][1])

    call.algorithms = algorithms  # type: ignore[attr-defined]
    return call


@pytest.mark.usefixtures("checked_here")
@pytest.mark.parametrize("name", NAMES)
def test_a_call_would_train_the_algorithm_that_the_article_names(article: Any, name: str) -> None:
    from sagemaker_rl.job import preflight

    estimator = article(name)
    assert estimator.hyperparameters()["algorithm"] == f'"{article.algorithms[name]}"'
    if name == "primary":  # The article's GPU.
        with pytest.raises(preflight.PreflightError, match=r"ml\.p2\.xlarge.* use ml\.g4dn"):
            preflight.check(estimator)
        estimator.instance_type = "ml.g4dn.xlarge"
    preflight.check(estimator)


def test_a_shortened_call_trains(
    article: Any, session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    estimator = article("single")
    estimator.metric_definitions += test_simulator.OUR_METRICS
    given = estimator._hyperparameters
    del given["num_iters"]
    given.update({
        "rl.training.run": given.pop("algorithm"),
        "rl.training.stop.training_iteration": 2,
        "rl.training.config.min_sample_timesteps_per_iteration": 512,
        "rl.training.config.num_steps_sampled_before_learning_starts": 256,
        "board_size": 7,
    })  # fmt: skip
    estimator.fit()
    assert estimator.latest_training_job.describe()["TrainingJobStatus"] == "Completed"
    said = capsys.readouterr().out
    assert "num_cpus is 2 in a simulation" in said
    assert "training_iteration=2 " in said
    test_simulator.check_published(estimator, session, tmp_path, said, test_simulator.OF_THE_LADDER)


def fit(estimator: Any) -> None:
    """Fit until the job is stopped; an instance that its head node stops ends its own job."""
    from sagemaker.exceptions import UnexpectedStatusException

    with contextlib.suppress(UnexpectedStatusException):
        estimator.fit()


@pytest.mark.slow
@pytest.mark.parametrize("names", [NAMES[:1], NAMES[1:2], NAMES[2:]], ids=["one", "equal", "pair"])
def test_unchanged_calls_train(
    article: Any, session: Any, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """`fit` of each call in turn; the calls' 5,000 iterations end by a request to stop."""
    estimators = []
    for name in names:
        estimators.append(article(name))
        # The last call of a listing waits for the end of the job.
        last = threading.Thread(target=fit, args=[estimators[-1]], daemon=True)
        last.start()
        if name == "primary":
            last.join(60)
            assert not last.is_alive()
            said = capsys.readouterr().out
            assert "call fit() of the secondary estimator now" in said
            assert said.count("warning: in an AWS account, this job would fail: torch has no") == 1
    while estimators[0].latest_training_job is None:
        last.join(0.1)
    job = session._jobs.jobs[estimators[0].latest_training_job.name]
    log = job.iter_log(wait=True)
    before = [*itertools.takewhile(lambda line: "training_iteration=2 " not in line, log)]
    assert job.describe()["TrainingJobStatus"] == "InProgress", "\n".join(before[-30:])
    job.stop()
    last.join(300)
    assert not last.is_alive()
    # The secondary job may end before the primary job.
    until(
        lambda: all(
            estimator.latest_training_job.describe()["TrainingJobStatus"] != "InProgress"
            for estimator in estimators
        )
    )
