"""Preflight checks that run before a training job starts.

    preflight.check(estimator)
    estimator.fit()

With data channels, call ``preflight.check(estimator, inputs)`` and ``estimator.fit(inputs)``.
The checks read the estimator and its AWS account, and run the training script with ``--dry-run``.
If the caller lacks the permissions for a check, the check is skipped. For example, users often
cannot read roles.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError, ParamValidationError

from battlesnake_gym.common.extensions import portable_environment
from battlesnake_gym.common.temporary_dirs import temporary_dir
from sagemaker_rl.job.hyperparameters import decode_twice_encoded, parse_value
from sagemaker_rl.job.job_environment import (
    CHECKPOINT_DIR,
    HOMOGENEOUS_GROUP,
    SECONDARY_JOB,
    assign_hosts,
    log_line,
    num_instance_gpus,
)
from sagemaker_rl.job.source_files import (
    SCRIPT_COMMAND,
    add_compiled_modules,
    find_compiled_files,
    split_s3_uri,
)

_DOCKERFILE_PATH = "deployment/training/Dockerfile"
"""Path of the training image's Dockerfile in the repository."""
_MALFORMED = "malformed"
"""Code of a request that boto3 rejects, in addition to the error codes of AWS."""
_MISSING_IMAGE_CODES = (_MALFORMED, "RepositoryNotFoundException", "ImageNotFoundException")
"""Codes of a request for an image that does not exist."""


class PreflightError(ValueError):
    """Error raised if a job's configuration is invalid.

    Each line of the message names a problem and its remedy.
    """


def check(estimator: Any, inputs: Any = None) -> None:
    """Check a job for errors before the job starts.

    The check lasts some seconds, mostly for the start of the training script. A
    ``HyperparameterTuner`` is checked with the first value of each range.

    Args:
        estimator: An ``RLEstimator`` of SageMaker SDK 2, a ``ModelTrainer`` of SDK 3, or a
            ``HyperparameterTuner`` of SDK 2. The estimator's session determines the AWS account.
        inputs: Argument ``inputs`` of ``fit``, or of ``train`` in SDK 3: channels and their S3
            URIs.

    Raises:
        PreflightError: If the job cannot work; the message lists all problems.
    """
    estimator, tuned = _split_tuner(_as_estimator(estimator))
    addresses = _channel_uris(inputs)
    problems = [problem for check_ in _CHECKS for problem in check_(estimator)]
    problems += [*_check_tuner(estimator, tuned), *_check_channel_data(estimator, addresses)]
    problems += _check_with_script(estimator, addresses)
    if problems:
        raise PreflightError(
            "\n".join(["this job cannot work:", *(f"- {one}" for one in problems)])
        )


def _send_request(call: Callable[..., Any], **arguments: Any) -> tuple[dict[str, Any], str]:
    """Return the response of AWS and "", or {} and the code of the error."""
    try:
        return call(**arguments), ""
    except ParamValidationError:
        return {}, _MALFORMED
    except ClientError as error:
        return {}, error.response["Error"]["Code"]


def _check_instances(estimator: Any) -> Iterator[str]:
    """Yield problems of instance groups, spot settings and checkpoints."""
    groups = _list_instance_groups(estimator)
    for name, _, count in groups:
        if not isinstance(count, int) or count < 1:
            of = f" of group {name!r}" if estimator.instance_groups else ""
            yield f"instance_count{of} must be at least 1, got {count!r}"
    if len(groups) > 1 and not any(num_instance_gpus(kind) for _, kind, _ in groups):
        yield (
            "none of the instance_groups has a GPU; use instance_type and instance_count instead, "
            "or add a group with a GPU"
        )
    if (local := estimator.checkpoint_local_path) and Path(local) != Path(CHECKPOINT_DIR):
        yield (
            f"checkpoint_local_path is {local}, but the script writes checkpoints to "
            f"{CHECKPOINT_DIR}; leave out checkpoint_local_path"
        )
    if estimator.disable_output_compression:
        yield (
            "disable_output_compression stores no model.tar.gz and output.tar.gz, which "
            "download_artifacts reads; leave it out"
        )
    if estimator.use_spot_instances:
        if estimator.max_wait is None or estimator.max_wait < estimator.max_run:
            yield (
                f"max_wait must be at least max_run ({estimator.max_run} seconds) with spot "
                f"instances, got {estimator.max_wait!r}"
            )
        # A secondary job writes no checkpoints.
        kind = estimator.hyperparameters().get("rl_cluster_type", "")
        if not estimator.checkpoint_s3_uri and SECONDARY_JOB not in kind:
            yield (
                "use_spot_instances needs checkpoint_s3_uri, or an interrupted job starts from "
                "scratch; use a unique key prefix in your bucket"
            )


def _list_instance_groups(estimator: Any) -> list[tuple[str, str, Any]]:
    """Return the name, the instance type and the number of instances of each instance group."""
    if estimator.instance_groups:
        return [
            (group.instance_group_name, str(group.instance_type), group.instance_count)
            for group in estimator.instance_groups
        ]
    return [(HOMOGENEOUS_GROUP, str(estimator.instance_type), estimator.instance_count)]


def _check_sources(estimator: Any) -> Iterator[str]:
    """Yield problems of the training script and its dependencies."""
    script = Path(estimator.source_dir or ".") / estimator.entry_point
    if not script.is_file():
        yield f"there is no {script}; entry_point must be a file in source_dir"
    elif getattr(estimator, "misses_sigterm", False):
        command = SCRIPT_COMMAND.format(script=script.name)
        yield (
            "a shell would run between SageMaker and the script, so a stopped job would export "
            f"nothing; give SourceCode the command {command!r}"
        )
    for folder in estimator.dependencies:
        if not Path(folder).is_dir():
            yield f"there is no folder {folder}, which is in dependencies; check its path"
        elif str(folder).endswith(("/", os.sep)):
            yield (
                f"the dependency {folder} ends with a slash, so the SDK would pack the files in "
                f"the folder without the folder; write {str(folder).rstrip('/')}"
            )
    # Without source_dir, the SDK packs only the script.
    folders = map(Path, filter(None, (estimator.source_dir, *estimator.dependencies)))
    if compiled := [path for folder in folders for path in find_compiled_files(folder)]:
        yield (
            f"the job would include {compiled[0].name}, which was compiled for this machine; "
            "give the estimator **sagemaker_rl.job.source_files.copy_sources(source_dir=..., "
            "dependencies=...)"
        )


def _check_hyperparameter_names(estimator: Any) -> Iterator[str]:
    """Yield hyperparameter names that the shell of SDK 3 cannot export."""
    for name in getattr(estimator, "exported_names", ()):
        if not re.fullmatch(r"\w+", name):
            yield (
                f"the hyperparameter {name} would end the job, because SDK 3 exports it in a "
                "shell; pass RLlib's settings as additional_configs={NAME: VALUE}"
            )


def _check_image(estimator: Any) -> Iterator[str]:
    """Yield problems of the training image."""
    session, uri = estimator.sagemaker_session, estimator.image_uri
    page = "docs/how-to/run-sagemaker-jobs.md"
    build = f"build an image from {_DOCKERFILE_PATH} and push the image ({page})"
    if not uri:
        yield f"image_uri is missing, and SageMaker's own RLlib images end at Ray 1.6; {build}"
        return
    match = re.fullmatch(
        r"(\d+)\.dkr\.ecr\.([\w-]+)\.amazonaws\.com[\w.]*/([^:@]+)(?:([:@])(.+))?", uri
    )
    if match is None:
        yield f"image_uri {uri} is not in ECR, but SageMaker pulls images from ECR; {build}"
        return
    account, region, repository, mark, version = match.groups()
    if repository.startswith("sagemaker-rl"):
        yield f"image_uri {uri} is one of SageMaker's own images, which end at Ray 1.6; {build}"
    elif region != session.boto_region_name:
        yield (
            f"image_uri {uri} is in {region}, but the job runs in {session.boto_region_name}; push "
            "the image to the job's region"
        )
    else:
        ecr = session.boto_session.client("ecr")
        image = {"imageDigest" if mark == "@" else "imageTag": version or "latest"}
        _, code = _send_request(
            ecr.describe_images, registryId=account, repositoryName=repository, imageIds=[image]
        )
        if code in _MISSING_IMAGE_CODES:
            yield f"there is no image {uri}; {build}"


def _check_role(estimator: Any) -> Iterator[str]:
    """Yield problems of the IAM role."""
    arn = str(estimator.role)
    name = arn.rpartition("/")[2]
    hint = "use the role of notebooks and jobs, sagemaker.get_execution_role()"
    if arn.startswith("arn:") and ":role/" not in arn:
        yield f"role {arn} is not a role; {hint}"
        return
    iam = estimator.sagemaker_session.boto_session.client("iam")
    found, code = _send_request(iam.get_role, RoleName=name)
    if code == "NoSuchEntity":
        yield f"there is no role {name} in this account; {hint}"
    elif found and "sagemaker.amazonaws.com" not in json.dumps(
        found["Role"]["AssumeRolePolicyDocument"]
    ):
        yield (
            f"SageMaker may not assume role {name}: its trust policy does not name "
            f"sagemaker.amazonaws.com; {hint}"
        )


def _check_buckets(estimator: Any) -> Iterator[str]:
    """Yield problems of the S3 buckets and their AWS regions."""
    session = estimator.sagemaker_session
    s3 = session.boto_session.client("s3")
    region = session.boto_region_name
    given = {
        name: decode_twice_encoded(json.loads(estimator.hyperparameters().get(name, "null")))
        for name in ("s3_bucket", "aws_region")
    }
    # The training script itself rejects malformed values.
    rendezvous = str(given["s3_bucket"] or "").removeprefix("s3://")
    named = {
        "output_path": estimator.output_path,
        "code_location": estimator.code_location,
        "checkpoint_s3_uri": estimator.checkpoint_s3_uri,
        "hyperparameter s3_bucket": rendezvous and f"s3://{rendezvous}",
    }
    for argument, uri in named.items():
        if not uri:
            continue
        try:
            bucket, _ = split_s3_uri(str(uri))
        except ValueError as error:
            yield f"{argument}: {error}"
            continue
        found, code = _send_request(s3.head_bucket, Bucket=bucket)
        where = found.get("BucketRegion", region)
        if code == _MALFORMED:
            yield f"{argument}: {bucket} is not a valid bucket name; use s3://BUCKET/FOLDER"
        elif code == "404":
            yield f"{argument}: there is no bucket {bucket}; create it in {region}"
        elif code == "403":
            yield f"{argument}: you have no access to the bucket {bucket}; use another bucket"
        elif where != region:
            yield (
                f"{argument}: the bucket {bucket} is in {where}, but the job runs in {region}; use "
                f"a bucket in {region}, such as {session.default_bucket()}"
            )
    if given["aws_region"] not in (None, region):
        yield (
            f"hyperparameter aws_region is {given['aws_region']}, but the job runs in {region}; "
            f"set aws_region to {region}"
        )


def _check_network(estimator: Any) -> Iterator[str]:
    """Yield problems of the network between two jobs that form one cluster."""
    if "rl_cluster_type" not in estimator.hyperparameters():
        return
    if not estimator.subnets or not estimator.security_group_ids:
        yield (
            "two jobs that form one cluster must reach each other; give both jobs the same "
            "subnets and security_group_ids"
        )
        return
    ec2 = estimator.sagemaker_session.boto_session.client("ec2")
    try:
        subnets = ec2.describe_subnets(SubnetIds=list(estimator.subnets))["Subnets"]
        vpc = subnets[0]["VpcId"]
        service = f"com.amazonaws.{estimator.sagemaker_session.boto_region_name}.s3"
        filters = [
            {"Name": "vpc-id", "Values": [vpc]},
            {"Name": "service-name", "Values": [service]},
        ]
        endpoints = ec2.describe_vpc_endpoints(Filters=filters)["VpcEndpoints"]
    except ClientError as error:
        if "NotFound" in error.response["Error"]["Code"]:
            yield f"subnets: {error.response['Error']['Message']}; use subnets of your VPC"
        return
    if not endpoints:
        yield (
            f"the VPC {vpc} has no endpoint for S3, so jobs in this VPC cannot read their code; "
            f"create a gateway endpoint for {service} in this VPC"
        )


def _channel_uris(inputs: Any) -> dict[str, str]:
    """Return the S3 URI of each channel, or "" for a file system, keyed by channel name.

    ``inputs`` is an argument of ``fit`` or ``train``.
    """
    if inputs is None:
        return {}
    if isinstance(inputs, list):  # SDK 3 passes a list.
        return {one.channel_name: _source_uri(one.data_source) for one in inputs}
    named = inputs if isinstance(inputs, Mapping) else {"training": inputs}
    return {name: _source_uri(one) for name, one in named.items()}


def _source_uri(source: Any) -> str:
    """Return the S3 URI of a channel's data source, or "" for a file system."""
    if hasattr(source, "config"):
        source = source.config["DataSource"].get("S3DataSource", {}).get("S3Uri")
    uri = getattr(source, "s3_uri", source)
    return uri if isinstance(uri, str) else ""


def _check_channel_data(estimator: Any, addresses: Mapping[str, str]) -> Iterator[str]:
    """Yield data channels whose S3 URI is invalid or has no data."""
    s3 = estimator.sagemaker_session.boto_session.client("s3")
    for name, address in addresses.items():
        if not address:
            continue
        try:
            bucket, key = split_s3_uri(address)
        except ValueError as error:
            yield f"channel {name!r}: {error}"
            continue
        found, code = _send_request(s3.list_objects_v2, Bucket=bucket, Prefix=key, MaxKeys=1)
        if code == _MALFORMED:
            yield f"channel {name!r}: {bucket} is not a valid bucket name; use s3://BUCKET/..."
        elif code == "NoSuchBucket":
            yield f"channel {name!r}: there is no bucket {bucket}"
        elif found and not found["KeyCount"]:
            yield f"channel {name!r}: there is nothing at {address}; check the URI"


def _split_tuner(given: Any) -> tuple[Any, Any]:
    """Split ``given`` into an estimator and its tuner.

    The tuner is None for a plain estimator. In the returned estimator, each tuned hyperparameter
    has the first value of its range.
    """
    if not hasattr(given, "objective_metric_name"):
        return given, None
    if getattr(given, "estimator", None) is None:
        raise PreflightError(
            "a tuner of SDK 3 or of several estimators cannot be checked; check each estimator"
        )
    estimator = copy.copy(given.estimator)
    estimator._hyperparameters = dict(estimator._hyperparameters or {})
    for ranges in given.hyperparameter_ranges().values():
        for one in ranges:
            first = one["Values"][0] if "Values" in one else one["MinValue"]
            estimator._hyperparameters[one["Name"]] = parse_value(str(parse_value(first)))
    return estimator, given


def _check_tuner(estimator: Any, tuner: Any) -> Iterator[str]:
    """Yield problems of a hyperparameter tuner; ``tuner`` may be None."""
    if tuner is None:
        return
    names = [one["Name"] for one in tuner.metric_definitions or estimator.metric_definitions or []]
    if tuner.objective_metric_name not in names:
        yield (
            f"objective_metric_name is {tuner.objective_metric_name}, which is not one of the "
            f"metric_definitions: {', '.join(names) or 'none'}; use a defined metric"
        )
    if estimator.checkpoint_s3_uri:
        yield (
            "a tuner's jobs would resume each other's checkpoints; leave out checkpoint_s3_uri and "
            "spot instances"
        )


def _check_with_script(estimator: Any, addresses: Mapping[str, str]) -> Iterator[str]:
    """Validate hyperparameters and channels with the training script's own checks."""
    script = Path(estimator.source_dir or ".") / estimator.entry_point
    groups = _list_instance_groups(estimator)
    if not script.is_file() or not all(isinstance(count, int) for *_, count in groups):
        return
    hosts, described = assign_hosts((name, kind, max(count, 1)) for name, kind, count in groups)
    resources = {"current_host": hosts[0], "hosts": hosts, "instance_groups": described}
    given = {
        name: json.loads(text)
        for name, text in estimator.hyperparameters().items()
        if not name.startswith("sagemaker_")
    }
    with temporary_dir("preflight") as code:
        # As in a job, the dependencies are in the source directory.
        own = Path(estimator.source_dir).iterdir() if estimator.source_dir else [script]
        for part in (*own, *map(Path, estimator.dependencies)):
            if not os.path.lexists(code / part.name):
                (code / part.name).symlink_to(part.absolute())
        done = subprocess.run(
            [
                sys.executable,
                estimator.entry_point if estimator.source_dir else script.name,
                "--dry-run",
            ],
            cwd=code,
            env=portable_environment()
            | (estimator.environment or {})
            | {
                "PYTHONPATH": add_compiled_modules(
                    os.pathsep.join([str(code), os.environ.get("PYTHONPATH", "")])
                ),
                "SM_HPS": json.dumps(given),
                "SM_HOSTS": json.dumps(hosts),
                "SM_CURRENT_HOST": hosts[0],
                "SM_RESOURCE_CONFIG": json.dumps(resources),
                "SM_CHANNELS": json.dumps(sorted(addresses)),
                # The SDK would pack bytecode files, so Python must not write bytecode.
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            capture_output=True,
            text=True,
        )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"{script} ended with {done.returncode}"]
        yield lines[-1]
        return
    for line in done.stdout.splitlines():
        log_line(line)


def _as_estimator(given: Any) -> Any:
    """Return ``given``, or an estimator's attributes if ``given`` is a `ModelTrainer` of SDK 3."""
    if not hasattr(given, "source_code") or not hasattr(given, "compute"):
        return given
    source, compute = given.source_code, given.compute
    limits, network = given.stopping_condition, given.networking
    words = shlex.split(getattr(source, "command", None) or "")
    script = next((word for word in words if word.endswith(".py")), None)
    values = dict(given.hyperparameters or {})
    # A string that is valid JSON is the value that the JSON describes.
    encoded = {
        name: json.dumps(parse_value(value) if isinstance(value, str) else value)
        for name, value in values.items()
    }
    return SimpleNamespace(
        source_dir=str(source.source_dir or "."),
        entry_point=script or str(source.entry_script),
        environment=_get_attribute(given, "environment"),
        image_uri=given.training_image,
        role=str(given.role),
        sagemaker_session=given.sagemaker_session,
        instance_type=_get_attribute(compute, "instance_type"),
        instance_count=_get_attribute(compute, "instance_count"),
        instance_groups=_get_attribute(compute, "instance_groups"),
        use_spot_instances=bool(_get_attribute(compute, "enable_managed_spot_training")),
        max_run=_get_attribute(limits, "max_runtime_in_seconds"),
        max_wait=_get_attribute(limits, "max_wait_time_in_seconds"),
        checkpoint_s3_uri=_get_attribute(given.checkpoint_config, "s3_uri"),
        checkpoint_local_path=_get_attribute(given.checkpoint_config, "local_path"),
        output_path=_get_attribute(given.output_data_config, "s3_output_path"),
        disable_output_compression=(
            _get_attribute(given.output_data_config, "compression_type") == "NONE"
        ),
        subnets=list(_get_attribute(network, "subnets") or ()),
        security_group_ids=list(_get_attribute(network, "security_group_ids") or ()),
        exported_names=list(values),
        misses_sigterm=words[:1] != ["exec"],
        dependencies=(),
        code_location=None,
        metric_definitions=None,
        hyperparameters=lambda: encoded,
    )


def _get_attribute(part: Any, name: str) -> Any:
    """Return an attribute of ``part``, or None if the attribute is unassigned.

    SDK 3 marks unassigned attributes with a special object.
    """
    value = getattr(part, name, None)
    return None if type(value).__name__ == "Unassigned" else value


_CHECKS: tuple[Callable[[Any], Iterator[str]], ...] = (
    _check_instances,
    _check_sources,
    _check_hyperparameter_names,
    _check_image,
    _check_role,
    _check_buckets,
    _check_network,
)
