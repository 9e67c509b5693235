"""Published listings of the starter pack, the Procgen kit and the post, run in a simulation.

`names` replaces the account; everything else is unchanged.
"""

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.rllib

PACK = """
metric_definitions = [
    {'Name': name, 'Regex': name + ': ([-+]?[0-9]*[.]?[0-9]+([eE][-+]?[0-9]+)?)'}
    for name in ('training_iteration', 'episodes_total', 'timesteps_total', 'episode_reward_min',
                 'episode_reward_mean', 'episode_len_max', 'Snake_hit_wall_max')
]
additional_config = {
    'lambda': 0.90, 'gamma': 0.999, 'kl_coeff': 0.2, 'clip_rewards': True, 'vf_clip_param': 175.0,
    'train_batch_size': 9216, 'sample_batch_size': 96, 'sgd_minibatch_size': 256,
    'num_sgd_iter': 3, 'lr': 5.0e-4,
}
estimator = RLEstimator(entry_point="train-mabs.py",
                        source_dir='training/training_src',
                        dependencies=["training/common/sagemaker_rl", "inference/inference_src/",
                                      "../BattlesnakeGym/"],
                        image_uri=image_uri,
                        role=role,
                        instance_type="ml.m5.xlarge",
                        instance_count=1,
                        output_path=s3_output_path,
                        base_job_name='Battlesnake-job-rllib',
                        metric_definitions=metric_definitions,
                        hyperparameters={
                            "num_iters": 10, "num_agents": 5, "iterate_map_size": False,
                            "map_size": 11, "algorithm": "PPO",
                            "additional_configs": additional_config,
                            "use_heuristics_action_masks": False,
                        })
estimator.fit()
"""
MASKED = PACK.replace('"use_heuristics_action_masks": False', '"heuristics": ["banned_wall_hits"]')
CLUSTER = """
estimator = RLEstimator(entry_point="train-mabs-dqn-async.py",
                        source_dir='rllib_src',
                        dependencies=["rllib_common/sagemaker_rl", "battlesnake_gym/"],
                        image_name=image_uri,
                        role=role,
                        train_instance_type="ml.m5.xlarge",
                        train_instance_count=3,
                        train_max_run=3600,
                        output_path=s3_output_path,
                        metric_definitions=RLEstimator.default_metric_definitions(RLToolkit.RAY),
                        hyperparameters={"rl.training.config.num_workers": 11,
                                         "rl.training.config.num_gpus": 0,
                                         "num_iters": 5000, "num_agents": 5})
estimator.fit(wait=False)
"""
PAIR = """
for kind, type, count in (("primary", "ml.g4dn.xlarge", 1), ("secondary", "ml.m5.xlarge", 1)):
    estimator = RLEstimator(entry_point="train-mabs-dqn-async.py",
                            source_dir='rllib_src',
                            dependencies=["rllib_common/sagemaker_rl", "battlesnake_gym/"],
                            image_name=image_uri,
                            role=role,
                            train_instance_type=type,
                            train_instance_count=count,
                            output_path=s3_output_path,
                            hyperparameters={"s3_prefix": "pair", "s3_bucket": s3_bucket,
                                             "aws_region": region, "rl_cluster_type": kind,
                                             "rl_num_instances_secondary": 1,
                                             "rl.training.config.num_workers": 11,
                                             "rl.training.config.num_gpus": 1,
                                             "num_iters": 5000, "num_agents": 5},
                            subnets=default_subnets,
                            security_group_ids=default_security_groups)
    estimator.fit(wait=False)
"""
PROCGEN = """
estimator = RLEstimator(entry_point="train-sagemaker.py",
                        source_dir='source',
                        dependencies=["source/utils", "source/common/",
                                      "neurips2020-procgen-starter-kit/"],
                        image_name=image_uri,
                        role=role,
                        train_instance_type="ml.c5.4xlarge",
                        train_instance_count=1,
                        train_use_spot_instances=True,
                        train_max_run=18000,
                        train_max_wait=36000,
                        checkpoint_s3_uri=s3_output_path + "checkpoints",
                        output_path=s3_output_path,
                        debugger_hook_config=False,
                        hyperparameters={"rl.training.upload_dir": s3_output_path,
                                         "rl.training.config.env_config.env_name": "coinrun"})
estimator.fit(wait=False)
"""
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
def run(session: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs a listing; ``short`` trains one iteration."""
    pytest.importorskip("ray", reason="needs the extra rllib")
    import sagemaker.rl

    from sagemaker_rl.job import legacy_listings, preflight

    monkeypatch.setattr(sagemaker.rl, "RLEstimator", sagemaker.rl.RLEstimator)
    monkeypatch.setattr(legacy_listings.RLEstimator, "session", None)
    monkeypatch.setattr("sagemaker.utils.validate_sagemaker_config", lambda _: None)
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
    [PACK, MASKED, CLUSTER, PAIR, PROCGEN],
    ids=["pack", "masked", "cluster", "pair", "procgen"],
)
@pytest.mark.usefixtures("checked_here")
def test_a_listing_would_train(run: Any, listing: str) -> None:
    made, _ = run(listing)
    assert len(made) == (2 if listing == PAIR else 1)


@pytest.mark.usefixtures("checked_here")
def test_a_tuner_would_train(run: Any) -> None:
    from sagemaker_rl.job import preflight

    _, space = run(TUNER)
    preflight.check(space["tuner"])


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
@pytest.mark.parametrize("listing", [CLUSTER, PAIR, PROCGEN], ids=["cluster", "pair", "procgen"])
def test_a_listing_trains(run: Any, listing: str) -> None:
    made, _ = run(listing, short=True)
    for one in made:
        assert one.latest_training_job.describe()["TrainingJobStatus"] == "Completed"
