"""Preflight checks of jobs, with an account simulated by moto."""

import json
import re
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("botocore", reason="needs the extra sagemaker")

from sagemaker_rl.job import preflight
from tests.sagemaker_rl.conftest import IMAGE

SCRIPT = """
import json, os, sys
import helping  # one of the dependencies

assert sys.argv[1:] == ["--dry-run"]
hosts = json.loads(os.environ["SM_HOSTS"])
if "training" in json.loads(os.environ["SM_CHANNELS"]):
    sys.exit("nobody reads the data channel 'training'")
if own := os.environ.get("BATTLESNAKE_GYM_EXTENSIONS"):
    sys.exit(f"there is no {own}")
if not os.path.isfile(path := os.environ.get("OWN_FILE", __file__)):
    sys.exit(f"there is no {path}")
unknown = sorted(set(json.loads(os.environ["SM_HPS"])) - helping.KNOWN)
if unknown or len(hosts) > 2:
    print("some library's warning", file=sys.stderr)
    sys.exit(f"unknown hyperparameter {unknown}, instances {hosts}")
"""
KNOWN = {"lr", "s3_bucket", "aws_region", "rl_cluster_type"}


@pytest.fixture
def job(estimator: Any) -> Any:
    return partial(estimator, SCRIPT, f"KNOWN = {KNOWN!r}\n")


def rejected(job: Any, message: str, **changes: Any) -> None:
    with pytest.raises(preflight.PreflightError, match=message):
        preflight.check(job(**changes))


def test_a_job_that_can_work_passes(job: Any, session: Any) -> None:
    bucket = session.default_bucket()
    preflight.check(
        job(
            instance_count=2,
            use_spot_instances=True,
            max_run=60,
            max_wait=60,
            output_path=f"s3://{bucket}/out",
            checkpoint_s3_uri=f"s3://{bucket}/checkpoints/1",
            checkpoint_local_path="/opt/ml/checkpoints/",
        )
    )
    ecr = session.boto_session.client("ecr")
    (image,) = ecr.describe_images(repositoryName="battlesnake-training")["imageDetails"]
    other = job(image_uri=f"{IMAGE}@{image['imageDigest']}")
    other.set_hyperparameters(s3_bucket=bucket, aws_region="us-east-1")  # encodes them twice
    preflight.check(other)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instance_count": 0}, r"instance_count .*\b1\b.* 0"),
        ({"use_spot_instances": True, "max_run": 60}, r"max_wait .*max_run .*60.* None"),
        (
            {"use_spot_instances": True, "max_run": 60, "max_wait": 60},
            "use_spot_instances .*checkpoint_s3_uri",
        ),
        ({"checkpoint_local_path": "/opt/ml/x"}, "local_path .*/x, .*/opt/ml/checkpoints;"),
        ({"disable_output_compression": True}, r"_compression .*model\.tar\.gz"),
        ({"hyperparameters": {"lr": 1.0, "map_sise": 7}}, r"unknown hyperparameter \['map_sise'\]"),
        ({"instance_count": 3}, r"instances \['algo-1', 'algo-2', 'algo-3'\]"),
        ({"entry_point": "tran.py"}, r"tran\.py.* entry_point .*source_dir"),
        ({"dependencies": ["nowhere"]}, "nowhere"),
        ({"role": "nobody"}, "role nobody"),
        ({"role": "arn:aws:iam::123456789012:user/me"}, ":user/me"),
        ({"image_uri": f"{IMAGE}:old"}, re.escape(f"{IMAGE}:old")),
        ({"image_uri": f"{IMAGE}@sha256:{1:064}"}, f"there is no image {IMAGE}@sha256"),
        ({"image_uri": IMAGE.replace("us-", "eu-")}, "eu-east-1.* us-east"),
        ({"image_uri": "battlesnake-training"}, "ECR"),
        ({"image_uri": IMAGE.replace("battlesnake-training", "x")}, r"amazonaws\.com/x\b"),
        ({"output_path": "runs/x"}, "output_path: 'runs/x'.* s3://"),
        ({"output_path": "s3://My bucket/x"}, "My bucket"),
        ({"output_path": "s3://no-such-bucket/x"}, "output_path: .*no-such-bucket"),
        ({"hyperparameters": {"aws_region": "eu-west-1"}}, "aws_region .*eu-west-1.* us-east-1"),
        ({"hyperparameters": {"rl_cluster_type": "primary"}}, "subnets .*security_group_ids"),
        (
            {
                "hyperparameters": {"rl_cluster_type": "primary"},
                "subnets": ["subnet-00000000"],
                "security_group_ids": ["sg-1"],
            },
            "'subnet-00000000'",
        ),
    ],
)
def test_mistakes_are_found(job: Any, changes: dict[str, Any], message: str) -> None:
    rejected(job, message, **changes)


def test_instance_groups_are_checked(job: Any) -> None:
    from sagemaker.instance_group import InstanceGroup

    def grouped(*groups: tuple[str, int]) -> dict[str, Any]:
        made = [InstanceGroup(f"group-{i}", *group) for i, group in enumerate(groups)]
        return {"instance_type": None, "instance_count": None, "instance_groups": made}

    preflight.check(job(**grouped(("ml.g5.xlarge", 1), ("ml.c5.xlarge", 1))))
    for kind, count, message in (
        ("ml.g5.xlarge", 2, r"instances \['algo-1', 'algo-2', 'algo-3'\]"),
        ("ml.g5.xlarge", 0, r"instance_count .*'group-1' .*\b1\b.* 0"),
        ("ml.m5.xlarge", 1, "instance_groups .*GPU"),
    ):
        rejected(job, message, **grouped((kind, 1), ("ml.c5.xlarge", count)))


def test_channels_are_checked(job: Any, session: Any, tmp_path: Path) -> None:
    from sagemaker.inputs import FileSystemInput, TrainingInput

    bucket = session.default_bucket()
    key = f"{tmp_path.name}/model.tar.gz"
    session.boto_session.client("s3").put_object(Bucket=bucket, Key=key, Body=b"")
    there = f"s3://{bucket}/{key}"
    preflight.check(job(), {"policy": there, "opponents": TrainingInput(there)})
    preflight.check(job(), {"policy": FileSystemInput("fs-1", "EFS", "/policies")})
    source = SimpleNamespace(s3_uri=there)  # SDK 3 accepts an `S3DataSource` or its URI.
    third = [SimpleNamespace(channel_name="policy", data_source=one) for one in (source, there)]
    assert [preflight._channel_uris([one]) for one in third] == [{"policy": there}] * 2
    for inputs, message in (
        ({"policy": f"{there}.gz"}, f"channel 'policy': .*{re.escape(there)}\\.gz"),
        ({"policy": "s3://no-such-bucket/x"}, "channel 'policy': .*no-such-bucket"),
        ({"policy": "runs/first"}, "channel 'policy': .*'runs/first'"),
        (there, "nobody reads the data channel 'training'"),
    ):
        with pytest.raises(preflight.PreflightError, match=message):
            preflight.check(job(), inputs)


def test_a_tuner_is_checked_with_its_ranges(job: Any, session: Any) -> None:
    from sagemaker.tuner import CategoricalParameter, ContinuousParameter, HyperparameterTuner

    def tuner(objective: str = "elo", name: str = "lr", **changes: Any) -> Any:
        ranges = {name: ContinuousParameter(1e-4, 1e-2), "aws_region": CategoricalParameter(["x"])}
        metrics = [{"Name": "elo", "Regex": "elo=(.*)"}]
        return HyperparameterTuner(job(**changes), objective, ranges, metric_definitions=metrics)

    with pytest.raises(preflight.PreflightError, match="check each estimator"):
        preflight.check(SimpleNamespace(objective_metric_name="elo", estimator=None))
    session_region = "aws_region .*x.* us-east-1"
    for one, message in (
        (tuner(), session_region),
        (tuner(name="lrr"), r"unknown hyperparameter \['lrr'\]"),
        (tuner("rewards"), "objective_metric_name .*rewards.* metric_def"),
        (tuner(checkpoint_s3_uri=f"s3://{session.default_bucket()}/x"), "checkpoints"),
    ):
        with pytest.raises(preflight.PreflightError, match=message):
            preflight.check(one)


def test_all_mistakes_are_reported_together(job: Any) -> None:
    with pytest.raises(preflight.PreflightError) as refusal:
        preflight.check(job(instance_count=0, role="nobody"))
    _, count, role = str(refusal.value).splitlines()
    assert count.startswith("- instance_count ")
    assert re.match(r"- .*nobody.* sagemaker\.get_execution_role\(\)", role)


def test_sagemakers_own_images_are_too_old(job: Any) -> None:
    old = "462105765813.dkr.ecr.us-east-1.amazonaws.com/sagemaker-rl-ray-container:ray-1.6.0"
    rejected(job, r"Ray 1\.6", image_uri=old)
    estimator = job()
    estimator.image_uri = None
    with pytest.raises(preflight.PreflightError, match="image_uri"):
        preflight.check(estimator)


def test_a_dependency_must_not_end_with_a_slash(job: Any, tmp_path: Path) -> None:
    message = f"write {tmp_path}/helping"
    rejected(job, message, dependencies=[f"{tmp_path}/helping/"])


def test_the_script_finds_dependencies_and_environment_variables_of_the_job(
    job: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATTLESNAKE_GYM_EXTENSIONS", "a file of this machine")
    preflight.check(job(environment={"OWN_FILE": "helping/__init__.py"}))
    rejected(job, "there is no helping/none", environment={"OWN_FILE": "helping/none"})


def test_the_script_finds_only_the_files_of_the_job(
    job: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job()  # creates the folders
    (tmp_path / "source" / "own.py").touch()
    (tmp_path / "source" / "deep").mkdir()
    (tmp_path / "source" / "deep" / "train.py").write_text(f"import own\n{SCRIPT}")
    preflight.check(job(entry_point="deep/train.py"))
    # Without source_dir, the SDK packs only the script.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fast.abi3.so").touch()
    preflight.check(job(entry_point="source/train.py", source_dir=None))
    rejected(job, "'helping'", entry_point="source/train.py", source_dir=None, dependencies=[])
    (tmp_path / "source" / "helping.py").touch()
    rejected(job, "'helping'", entry_point="source/train.py", source_dir=None, dependencies=[])


def test_compiled_files_are_rejected(job: Any, tmp_path: Path) -> None:
    job()  # creates the folders
    (tmp_path / "helping" / "fast.abi3.so").touch()
    rejected(job, r"fast\.abi3\.so")


def test_buckets_are_in_the_region_of_the_job(job: Any, session: Any) -> None:
    europe = {"LocationConstraint": "eu-west-1"}
    s3 = session.boto_session.client("s3")
    s3.create_bucket(Bucket="in-europe", CreateBucketConfiguration=europe)
    message = ".*in-europe.* eu-west-1.* us-east-1"
    rejected(job, f"checkpoint_s3_uri:{message}", checkpoint_s3_uri="s3://in-europe/x")
    rejected(job, f"hyperparameter s3_bucket:{message}", hyperparameters={"s3_bucket": "in-europe"})


def test_a_role_must_trust_sagemaker(job: Any, session: Any) -> None:
    trust = {"Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **trust}]}
    iam = session.boto_session.client("iam")
    iam.create_role(RoleName="of-machines", AssumeRolePolicyDocument=json.dumps(document))
    rejected(job, "role of-machines", role="of-machines")


def test_two_jobs_need_an_endpoint_for_s3(job: Any, session: Any) -> None:
    ec2 = session.boto_session.client("ec2")
    (vpc,) = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]
    of_vpc = [{"Name": "vpc-id", "Values": [vpc["VpcId"]]}]
    network = {
        "subnets": [ec2.describe_subnets(Filters=of_vpc)["Subnets"][0]["SubnetId"]],
        "security_group_ids": ["sg-1"],
    }
    preflight.check(job(hyperparameters={"rl_cluster_type": "primary"}, **network))
    spot = {"use_spot_instances": True, "max_run": 60, "max_wait": 60}
    preflight.check(job(hyperparameters={"rl_cluster_type": "secondary"}, **network, **spot))
    other = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=other, CidrBlock="10.0.0.0/24")["Subnet"]["SubnetId"]
    rejected(
        job,
        f"{other} .*S3",
        hyperparameters={"rl_cluster_type": "primary"},
        **(network | {"subnets": [subnet]}),
    )
