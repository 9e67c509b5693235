"""What a finished job has delivered, brought here from S3."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path
from typing import Any

from sagemaker_rl.launch.s3 import bucket_and_key


def fetch(estimator: Any, run: Path) -> Path:
    """Unpack a finished job into ``run``, laid out as ``battlesnake-gym train`` leaves a run.

    ``run`` gets ``progress.csv``, ``tensorboard/`` and, in ``model/``, the policy with its
    checkpoint. ``estimator`` is one of the SageMaker SDK's. Returns ``run``.
    """
    bucket, key = bucket_and_key(estimator.model_data)
    folder = key.rpartition("/")[0]
    for name, target in (("output.tar.gz", run), ("model.tar.gz", run / "model")):
        with tempfile.TemporaryDirectory() as draft:
            (packed,) = estimator.sagemaker_session.download_data(draft, bucket, f"{folder}/{name}")
            with tarfile.open(packed) as archive:
                archive.extractall(target, filter="data")
    return run
