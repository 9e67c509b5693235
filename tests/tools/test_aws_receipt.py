"""The receipt from AWS, in a simulation."""

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for package in ("sagemaker", "moto.server", "sagemaker_training"):
        pytest.importorskip(package, reason="needs the extras sagemaker and sagemaker-simulator")
    monkeypatch.syspath_prepend(ROOT / "tools")
    import aws_receipt
    from moto.moto_api._internal.models import moto_api_backend

    moto_api_backend.reset()  # other tests' accounts, and afterwards ours
    yield aws_receipt
    moto_api_backend.reset()


def test_it_cannot_cost_more_than_two_dollars(tool: Any) -> None:
    most = sum(job.price_dollars(tool._MAX_RUN_S) for job in tool._JOBS.values())
    assert most < 1


def test_another_account_is_refused(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from battlesnake_server.aws.lambda_simulator import SimulatedAccount

    with SimulatedAccount() as one:
        monkeypatch.setattr(tool.Account, "from_session", lambda: one.account)
        assert tool.main(["210987654321", "--folder", str(tmp_path)]) == 2
    assert re.search(r"123456789012.* 210987654321", capsys.readouterr().err)


def test_a_stack_with_the_name_of_the_test_is_kept(
    tool: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    account = SimpleNamespace(find_stack=lambda name: {"StackName": name})
    place = nullcontext(SimpleNamespace(account=account))
    monkeypatch.setattr(tool, "_open_account", lambda options: place)
    assert tool.main(["210987654321"]) == 2
    assert "the account has a stack receipt" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_receipt_is_rehearsed(tool: Any, tmp_path: Path) -> None:
    assert tool.main(["simulated", "--folder", str(tmp_path)]) == 0
    receipt = json.loads((tmp_path / "receipt.json").read_text())
    assert receipt["left"] == []
    assert 0 < receipt["dollars"] < 2
    assert receipt["seconds"] < 1800
    steps = receipt["steps"]
    assert steps["snake"]["moves"] == 50
    assert steps["snake"]["kept"] == []
    assert [steps[name]["status"] for name in tool._JOBS] == ["Completed", "Completed", "Stopped"]
    for name in tool._JOBS:
        assert "policy.onnx" in steps[name]["delivered"]
        assert "training_iteration=1 " in steps[name]["log"][0]
    page = (tmp_path / "receipt.md").read_text()
    assert "Never run against a real account" not in page
    assert "left: nothing" in page
    assert (
        f"| groups-on-spot-stopped | Stopped | {steps['groups-on-spot-stopped']['seconds']} |"
        in page
    )


def test_what_fails_and_what_is_left_is_shown(
    tool: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No job starts, S3 keeps a file."""
    from botocore.exceptions import ClientError

    def refused(place: Any, job: Any, outputs: Any, prefix: str) -> None:
        place.account.session.client("s3").put_object(
            Bucket=outputs["Bucket"], Key=f"{prefix}/kept", Body=b""
        )
        raise ClientError({"Error": {"Code": "ResourceLimitExceeded", "Message": "0"}}, "x")

    monkeypatch.setattr(tool, "_start_job", refused)
    monkeypatch.setattr(tool, "_delete_resources", lambda *_: None)
    monkeypatch.setattr(tool, "_check_snake", lambda *_: None)
    assert tool.main(["simulated", "--folder", str(tmp_path)]) == 1
    page = (tmp_path / "receipt.md").read_text()
    assert re.search(r"\| single \| ClientError: .*\(ResourceLimitExceeded\)", page)
    assert "left: s3://battlesnake-receipt/receipt-" in page
