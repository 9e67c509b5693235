"""Published listings of the starter pack, the Procgen kit and the post, run in a simulation.

`names` replaces the account; everything else is unchanged.
"""

from pathlib import Path
from typing import Any

import pytest

LISTINGS = Path(__file__).parents[1] / "data" / "listings"
PACK, CLUSTER, PAIR, PROCGEN = (
    (LISTINGS / f"{name}.txt").read_text() for name in ("pack", "cluster", "pair", "procgen")
)
MASKED = PACK.replace('"use_heuristics_action_masks": False', '"heuristics": ["banned_wall_hits"]')
TUNER = PACK.replace("estimator.fit()", """
tuner = HyperparameterTuner(estimator,
                            objective_metric_name='episode_reward_mean',
                            objective_type='Maximize',
                            hyperparameter_ranges={
                                'rl.training.config.entropy_coeff': ContinuousParameter(0.0, 0.1)},
                            metric_definitions=metric_definitions,
                            max_jobs=1)
""").replace("image_uri=image_uri", "toolkit=RLToolkit.RAY, toolkit_version='0.8.5', "
             "framework=RLFramework.TENSORFLOW")  # fmt: skip
HEADER = """
from sagemaker.rl import RLEstimator, RLFramework, RLToolkit
from sagemaker.tuner import ContinuousParameter, HyperparameterTuner
"""

SHORT = {
    "rl.training.config.train_batch_size_per_learner": 128,
    "rl.training.config.min_time_s_per_iteration": 1,
    "num_iters": 1,
}


@pytest.fixture
def run(session: Any, monkeypatch: pytest.MonkeyPatch, legacy_listings: Any) -> Any:
    """Return a function that runs a listing; ``short`` trains one iteration."""
    from sagemaker_rl.job import preflight

    made: list[Any] = []
    fit = legacy_listings.RLEstimator.fit

    def asked(estimator: Any, wait: bool = True) -> None:
        preflight.check(estimator)
        made.append(estimator)

    def shortened(estimator: Any, wait: bool = True) -> None:
        made.append(estimator)
        given = estimator._hyperparameters
        if "additional_configs" in given:
            given["additional_configs"].update(train_batch_size=192, sgd_minibatch_size=64)
            given["num_iters"] = 1
        else:
            given.update(SHORT)
            if estimator.entry_point == legacy_listings.PROCGEN_SCRIPT:
                given["rl.training.config.minibatch_size"] = 64
        fit(estimator, wait=False)

    ec2, bucket = session.boto_session.client("ec2"), session.default_bucket()
    names = {
        "image_uri": "462105765813.dkr.ecr.us-east-1.amazonaws.com/"
        "sagemaker-rl-ray-container:ray-0.8.2-tf-cpu-py36",
        "role": session.get_caller_identity_arn(),
        "s3_bucket": bucket,
        "s3_output_path": f"s3://{bucket}/",
        "region": session.boto_region_name,
        "default_subnets": [one["SubnetId"] for one in ec2.describe_subnets()["Subnets"]],
        "default_security_groups": [
            one["GroupId"] for one in ec2.describe_security_groups()["SecurityGroups"]
        ],
    }

    def run(listing: str, short: bool = False) -> tuple[list[Any], dict[str, Any]]:
        monkeypatch.setattr(legacy_listings.RLEstimator, "fit", shortened if short else asked)
        legacy_listings.enable_legacy_listings(session)
        space = dict(names)
        exec(HEADER + listing, space)
        for estimator in made if short else ():
            session.logs_for_job(estimator.latest_training_job.name, wait=True)
        return made, space

    return run


@pytest.mark.parametrize(
    "listing",
    [PACK, MASKED, CLUSTER, PAIR, PROCGEN, TUNER],
    ids=["pack", "masked", "cluster", "pair", "procgen", "tuner"],
)
@pytest.mark.usefixtures("checked_here")
def test_a_listing_would_train(run: Any, listing: str) -> None:
    from sagemaker_rl.job import preflight

    made, space = run(listing)
    if listing == TUNER:
        preflight.check(space["tuner"])
    else:
        assert len(made) == (2 if listing == PAIR else 1)


def test_hyperparameters_may_be_strings(session: Any, legacy_listings: Any) -> None:
    workers = {"rl.training.config.num_workers": "3"}
    listing = {"entry_point": "mine.py", "hyperparameters": workers}
    translated = legacy_listings._translate_arguments(listing, session)
    assert translated["hyperparameters"] == {"rl.training.config.num_workers": 1}
    listing = {"entry_point": "train-sagemaker.py", "hyperparameters": workers}
    translated = legacy_listings._translate_arguments(listing, session)
    limited = {"experiment": "single-instance", "rl.training.config.num_workers": 1}
    assert translated["hyperparameters"] == limited


@pytest.mark.slow
def test_the_pack_s_first_listing_trains(
    run: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the listing in a clone of the pack; the job contains only the user's own folders."""
    for name in ("training/training_src/train-mabs.py", "inference/inference_src/mine.py"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("raise SystemExit('the old one')")
    monkeypatch.chdir(tmp_path)
    ((estimator,), _) = run(PACK, short=True)
    assert any(Path(one, "mine.py").exists() for one in estimator.dependencies)
    last = estimator.latest_training_job.describe()["FinalMetricDataList"]
    found = {one["MetricName"] for one in last}
    assert found >= {"training_iteration", "episodes_total", "timesteps_total", "episode_len_max"}
    said = capsys.readouterr().out
    assert "using image_uri 123456789012.dkr.ecr" in said
    assert "Warning" not in said


@pytest.mark.slow
def test_procgen_s_listing_trains(run: Any) -> None:
    """`test_article_calls` trains on several instances."""
    ((one,), _) = run(PROCGEN, short=True)
    assert one.latest_training_job.describe()["TrainingJobStatus"] == "Completed"
