"""Why a job failed stands where SageMaker looks, and the first reason stays."""

from pathlib import Path

import pytest

from sagemaker_rl.launch.failure import report_failure


def test_the_first_reason_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"SM_MODEL_DIR": str(tmp_path / "model"), "SAGEMAKER_BASE_DIR": str(tmp_path)}
    report_failure("algo-2 was lost", environ)
    report_failure("and so training failed", environ)
    assert (tmp_path / "output" / "failure").read_text() == "algo-2 was lost"
    assert capsys.readouterr().err == "algo-2 was lost\nand so training failed\n"


def test_a_laptop_gets_it_on_stderr_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report_failure("no", {"SAGEMAKER_BASE_DIR": str(tmp_path)})
    assert capsys.readouterr().err == "no\n"
    assert not list(tmp_path.iterdir())
