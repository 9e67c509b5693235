"""`ModelTrainer` of the SageMaker SDK 3, as the checks before a job see it.

They speak of what an ``RLEstimator`` of version 2 has; both lead to the same request.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass
class Trainer:
    """What a `ModelTrainer` says of its job, under the names of version 2."""

    source_dir: str
    entry_point: str
    image_uri: str | None
    role: str
    sagemaker_session: Any
    instance_type: str | None
    instance_count: int | None
    instance_groups: list[Any] | None
    use_spot_instances: bool
    max_run: int | None
    max_wait: int | None
    checkpoint_s3_uri: str | None
    output_path: str | None
    subnets: list[str]
    security_group_ids: list[str]
    given: Mapping[str, Any]
    deaf: bool
    """Whether the script would not hear SIGTERM."""

    dependencies: tuple[str, ...] = ()
    code_location: None = None
    metric_definitions: None = None

    def hyperparameters(self) -> dict[str, str]:
        """As the request has them: JSON, or text as it is."""
        return {
            name: value if isinstance(value, str) and _is_json(value) else json.dumps(value)
            for name, value in self.given.items()
        }


def as_estimator(given: Any) -> Any:
    """``given``, or what is like an estimator where it is a `ModelTrainer`."""
    if not hasattr(given, "source_code") or not hasattr(given, "compute"):
        return given
    source, compute = given.source_code, given.compute
    limits, network = given.stopping_condition, given.networking
    words = shlex.split(getattr(source, "command", None) or "")
    script = next((word for word in words if word.endswith(".py")), None)
    return Trainer(
        source_dir=str(source.source_dir or "."),
        entry_point=script or str(source.entry_script),
        image_uri=given.training_image,
        role=str(given.role),
        sagemaker_session=given.sagemaker_session,
        instance_type=_of(compute, "instance_type"),
        instance_count=_of(compute, "instance_count"),
        instance_groups=_of(compute, "instance_groups"),
        use_spot_instances=bool(_of(compute, "enable_managed_spot_training")),
        max_run=_of(limits, "max_runtime_in_seconds"),
        max_wait=_of(limits, "max_wait_time_in_seconds"),
        checkpoint_s3_uri=_of(given.checkpoint_config, "s3_uri"),
        output_path=_of(given.output_data_config, "s3_output_path"),
        subnets=list(_of(network, "subnets") or ()),
        security_group_ids=list(_of(network, "security_group_ids") or ()),
        given=given.hyperparameters or {},
        deaf=words[:1] != ["exec"],
    )


def _of(part: Any, name: str) -> Any:
    """A field that is set; SDK 3 has something of its own for one that is not."""
    value = getattr(part, name, None)
    return None if type(value).__name__ == "Unassigned" else value


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
