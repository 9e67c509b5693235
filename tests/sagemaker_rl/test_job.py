"""Folders on a laptop and in a SageMaker job."""

from pathlib import Path

from sagemaker_rl.launch.job import Job


def test_a_laptop_has_everything_in_one_folder() -> None:
    job = Job.from_environment("fast", Path("runs"), {})
    assert job == Job(
        name="fast",
        output_dir=Path("runs/fast"),
        checkpoint_dir=Path("runs/fast/checkpoints"),
        model_dir=Path("runs/fast/model"),
        in_sagemaker=False,
    )


def test_sagemaker_says_where() -> None:
    environ = {
        "SM_MODEL_DIR": "/opt/ml/model",
        "SM_OUTPUT_DATA_DIR": "/opt/ml/output/data",
        "SM_OUTPUT_INTERMEDIATE_DIR": "/opt/ml/output/intermediate",
        "TRAINING_JOB_NAME": "job-7",
    }
    job = Job.from_environment("fast", Path("runs"), environ)
    assert job.name == "job-7"
    assert job.output_dir == Path("/opt/ml/output/data")
    assert job.checkpoint_dir == Path("/opt/ml/checkpoints")
    assert job.model_dir == Path("/opt/ml/model")
    assert job.in_sagemaker
    assert job.intermediate_dir == Path("/opt/ml/output/intermediate")
    elsewhere = Job.from_environment("fast", environ=environ | {"SAGEMAKER_BASE_DIR": "/tmp/ml"})
    assert elsewhere.checkpoint_dir == Path("/tmp/ml/checkpoints")
