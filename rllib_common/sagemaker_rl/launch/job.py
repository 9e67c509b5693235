"""Where a job reads and writes: SageMaker's ``/opt/ml`` layout, or one folder on a laptop."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sagemaker_rl.launch.failure import base_folder


@dataclass(frozen=True, slots=True)
class Job:
    """The folders of one training job; none is created here."""

    name: str
    output_dir: Path
    """Curves: ``progress.csv`` and TensorBoard files."""
    checkpoint_dir: Path
    """Where checkpoints are written to and resumed from."""
    model_dir: Path
    """What the job delivers: the exported policy."""
    in_sagemaker: bool
    intermediate_dir: Path | None = None
    """What is put here goes to S3 while the job runs."""

    @classmethod
    def from_environment(
        cls, name: str, runs: Path = Path("runs"), environ: Mapping[str, str] = os.environ
    ) -> Job:
        """Folders as SageMaker names them, where it runs us; else all of them in ``runs/NAME``."""
        in_sagemaker = "SM_MODEL_DIR" in environ
        run = runs / name
        base = base_folder(environ)
        return cls(
            name=environ.get("TRAINING_JOB_NAME", name),
            output_dir=Path(environ.get("SM_OUTPUT_DATA_DIR", base / "output" / "data"))
            if in_sagemaker
            else run,
            checkpoint_dir=base / "checkpoints" if in_sagemaker else run / "checkpoints",
            model_dir=Path(environ["SM_MODEL_DIR"]) if in_sagemaker else run / "model",
            in_sagemaker=in_sagemaker,
            intermediate_dir=Path(environ["SM_OUTPUT_INTERMEDIATE_DIR"])
            if in_sagemaker and "SM_OUTPUT_INTERMEDIATE_DIR" in environ
            else None,
        )
