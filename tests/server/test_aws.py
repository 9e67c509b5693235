"""A snake on AWS, in a simulated account: deploy, publish, undeploy."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import re
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

import pytest

pytest.importorskip("moto", reason="needs the extra sagemaker-simulator")

import boto3
from botocore.exceptions import ClientError

from battlesnake_server import bundle
from battlesnake_server.aws import layer, publish, snake_stack
from battlesnake_server.aws.lambda_simulator import SimulatedAccount
from battlesnake_server.aws.stacks import Account
from battlesnake_server.commands import aws_deploy_command, aws_undeploy_command
from tests.processes import fetch_json, run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def account() -> Iterator[SimulatedAccount]:
    with SimulatedAccount() as account:
        place = account.session.client("s3").meta.endpoint_url
        # Reset the state of earlier tests.
        urllib.request.urlopen(f"{place}/moto-api/reset", b"").close()
        yield account


@pytest.fixture
def make(tmp_path: Path) -> Any:
    """Return a function that packs a snake with a constant move."""

    def run(move: str, **looks: str) -> Path:
        rules = (
            "from battlesnake_gym import snakes\n"
            f"{move} = snakes.Decision({move!r})\n"
            f"snakes.register('mine', lambda seed: lambda board, seconds=None: {move})\n"
        )
        facts: dict[str, Any] = {"snake": "mine", "filters": [], "nodes": None}
        facts["customization"] = looks
        path = tmp_path / f"{move}.zip"
        path.write_bytes(bundle.to_bytes(facts, {bundle.RULES_FILE: rules.encode()}))
        return path

    return run


def left(session: Any) -> dict[str, list[Any]]:
    """List the resources in the account, without layers: moto keeps those of deleted stacks."""
    ask = session.client
    return {
        "stacks": ask("cloudformation").describe_stacks()["Stacks"],
        "functions": ask("lambda").list_functions()["Functions"],
        "roles": ask("iam").list_roles()["Roles"],
        "logs": ask("logs").describe_log_groups()["logGroups"],
        "buckets": [one["Name"] for one in ask("s3").list_buckets()["Buckets"]],
    }


def options(path: Path, *words: str) -> argparse.Namespace:
    found: argparse.Namespace = snake_stack.parser().parse_args([str(path), *words])
    snake_stack.check_options(found)
    return found


def test_a_snake_is_made_published_changed_and_taken_away(
    account: SimulatedAccount, make: Any, body: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BATTLESNAKE_POLICY", "a file of this machine")
    body["game"]["timeout"] = 10_000
    assert not any(left(account.session).values())
    url = account.play(make("left", color="#010203", author="jane"))
    assert fetch_json(url)["color"] == "#010203"
    assert fetch_json(f"{url}/move", body)["move"] == "left"

    publish(make("right", color="#040506"), session=account.session)
    assert fetch_json(f"{url}/move", body)["move"] == "right", "the next request is_published it"
    assert fetch_json(url)["color"] == "#040506"

    account.play(make("left", color="#010203", author="jane"))
    assert fetch_json(f"{url}/move", body)["move"] == "left", "what is deployed last is_published"

    assert account.account.undeploy("battlesnake") == []
    assert not any(left(account.session).values())


def test_what_is_kept_is_told(account: SimulatedAccount, make: Any) -> None:
    account.session.client("s3").create_bucket(Bucket="of-mine")
    account.deploy(options(make("up"), "--name", "second", "--bucket", "of-mine"))
    (kept,) = account.account.undeploy("second")
    assert "of-mine" in kept
    assert left(account.session)["buckets"] == ["of-mine"]


def test_a_stack_that_is_not_a_snake_is_kept(account: SimulatedAccount, make: Any) -> None:
    """The notebook's stack has the same name in docs/how-to/create-aws-stacks.md."""
    values = {"BucketName": "of-mine", "RepositoryUrl": "https://example.org/x"}
    account.account.deploy_stack("battlesnake", "notebook", values)
    for change in (
        lambda: account.play(make("up")),
        lambda: account.account.undeploy("battlesnake"),
    ):
        with pytest.raises(ValueError, match="--name: the stack 'battlesnake' is not a snake"):
            change()
    assert left(account.session)["buckets"] == ["of-mine"]
    assert account.account.find_stack("battlesnake")


def test_a_link_fills_the_form_in_and_makes_nothing(
    account: SimulatedAccount, make: Any, tmp_path: Path
) -> None:
    packages = tmp_path / "layer.zip"
    packages.write_bytes(b"packages")
    words = ["--console-link", "--head", "evil", "--layer", str(packages)]
    link = snake_stack.deploy(account.account, options(make("up"), *words))
    place, _, query = urlsplit(link).fragment.partition("?")
    form = {name: values[0] for name, values in parse_qs(query).items()}
    assert place == "/stacks/create/review"
    assert (form["stackName"], form["param_Head"]) == ("battlesnake", "evil")
    assert form["templateURL"].endswith("/templates/snake.yaml")
    bucket = form["param_CodeBucket"]
    s3 = account.session.client("s3")
    for key in (form["param_LayerKey"], form["param_BundleKey"], "templates/snake.yaml"):
        s3.head_object(Bucket=bucket, Key=key)
    assert left(account.session)["stacks"] == []


@pytest.mark.parametrize(
    ("region", "console", "domain"),
    [
        ("us-west-2", "console.aws.amazon.com", "amazonaws.com"),
        ("us-gov-west-1", "console.amazonaws-us-gov.com", "amazonaws.com"),
        ("cn-north-1", "console.amazonaws.cn", "amazonaws.com.cn"),
    ],
)
def test_a_link_is_in_the_partition_of_the_region(region: str, console: str, domain: str) -> None:
    account = Account(boto3.Session(region_name=region), region, "123456789012")
    link = account.quick_create_url("code", "snake", "battlesnake", {})
    assert link.startswith(f"https://{region}.{console}/cloudformation/")
    assert quote(f"https://code.s3.{region}.{domain}/templates/snake.yaml", "") in link


def test_the_command_simulates(make: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert aws_deploy_command.main([str(make("up")), "--simulate"]) == 0
    said = capsys.readouterr().out
    assert '"move":"up"' in said
    assert re.match("simulated: .*battlesnake", said.splitlines()[-1])


def test_what_cannot_be_is_refused_first(
    make: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(make("up"))
    for words, message in (
        ([str(tmp_path / "nobody.zip")], r"nobody\.zip"),
        ([str(tmp_path / "up.py")], r"up\.py"),
        ([path, "--name", "My_Snake"], "--name 'My_Snake'"),
        ([path, "--color", "blue"], "color .*#rrggbb.* 'blue'"),
        ([path, "--layer", "nowhere.zip"], r"nowhere\.zip"),
        ([path, "--budget", "20"], "--budget .*without --budget-email"),
        ([path, "--budget-email", "jane"], "BudgetEmail must be an email address, .*'jane'"),
        ([path, "--budget", "20000", "--budget-email", "a@b.c"], "BudgetDollars .* 10000, got"),
        ([path, "--author", "Jörg"], "Author must be letters, .*'Jörg'"),
        ([path, "--bucket", "of.mine"], r"CodeBucket must be .*'of\.mine'"),
        ([path, "--with-notebook", "git@x.org:y"], "RepositoryUrl must be an https .*'git@x"),
        ([path, "--console-link", "--simulate"], "--console-link .*with --simulate"),
        ([path, "--with-notebook", "https://x.org", "--simulate"], "--simulate"),
    ):
        assert aws_deploy_command.main(words) == 2
        assert re.search(message, capsys.readouterr().err)


def test_stacks_and_buckets_that_are_not_there(account: SimulatedAccount) -> None:
    with pytest.raises(ValueError, match=r"'battlesnake'.* us-east-1"):
        account.account.undeploy("battlesnake")
    with pytest.raises(ValueError, match="nobody-s"):
        account.account.ensure_bucket("nobody-s", create=False)
    account.account.ensure_bucket(account.account.bucket_name("battlesnake"), create=True)
    assert account.account.undeploy("battlesnake") == []
    assert left(account.session)["buckets"] == []


class Stacks:
    """CloudFormation with one stack; moto cannot update stacks with resource types it lacks."""

    def __init__(self, refusal: str = "", status: str = "UPDATE_COMPLETE") -> None:
        self.refusal, self.status = refusal, status
        self.changed: list[dict[str, Any]] = []

    def describe_stacks(self, **_: str) -> dict[str, Any]:
        outputs = [{"OutputKey": "SnakeUrl", "OutputValue": "https://snake"}]
        return {"Stacks": [{"StackStatus": self.status, "Outputs": outputs}]}

    def update_stack(self, **request: Any) -> None:
        self.changed.append(request)
        if self.refusal:
            error = {"Error": {"Code": "ValidationError", "Message": self.refusal}}
            raise ClientError(error, "UpdateStack")

    def describe_stack_events(self, **_: str) -> dict[str, Any]:
        events = [
            ("Packages", "UPDATE_FAILED", "no such layer"),
            ("x", "UPDATE_IN_PROGRESS", "User Initiated"),
            ("Role", "UPDATE_FAILED", "an earlier reason"),
        ]
        names = ("LogicalResourceId", "ResourceStatus", "ResourceStatusReason")
        return {"StackEvents": [dict(zip(names, event, strict=True)) for event in events]}

    def client(self, name: str) -> Stacks:
        return self


def test_missing_permissions_are_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Denied(Stacks):
        def describe_stacks(self, **_: str) -> dict[str, Any]:
            raise ClientError({"Error": {"Code": "AccessDenied"}}, "DescribeStacks")

    account = Account(Denied(), "us-west-2", "1")
    monkeypatch.setattr(Account, "from_session", lambda: account)
    assert aws_undeploy_command.main([]) == 2
    assert re.search(r"AccessDenied.* DescribeStacks", capsys.readouterr().err)


def test_a_stack_that_is_there_is_changed() -> None:
    nothing = "No updates are to be performed."
    for stacks in (Stacks(), Stacks(nothing), Stacks(nothing, "UPDATE_ROLLBACK_COMPLETE")):
        outputs = Account(stacks, "us-west-2", "1").deploy_stack("x", "snake", {"Color": "#070809"})
        assert outputs == {"SnakeUrl": "https://snake"}
        (request,) = stacks.changed
        assert request["Parameters"] == [{"ParameterKey": "Color", "ParameterValue": "#070809"}]


def test_the_reasons_of_a_stack_that_failed_are_told() -> None:
    for stacks, message in (
        (Stacks(status="UPDATE_ROLLBACK_COMPLETE"), "Packages: no such layer$"),
        (Stacks("no capability"), ": .*no capability"),
    ):
        with pytest.raises(ValueError, match=message):
            Account(stacks, "us-west-2", "1").deploy_stack("x", "snake", {})


def test_the_reasons_of_a_stack_that_was_not_created_are_told() -> None:
    """AWS deletes this stack, and returns the events of a deleted stack only for its id."""

    class Deleted(Stacks):
        def describe_stacks(self, **_: str) -> dict[str, Any]:
            error = {"Error": {"Code": "ValidationError", "Message": "x does not exist"}}
            raise ClientError(error, "DescribeStacks")

        def create_stack(self, **_: Any) -> dict[str, str]:
            return {"StackId": "arn:x"}

        def describe_stack_events(self, **asked: str) -> dict[str, Any]:
            return super().describe_stack_events() if asked["StackName"] == "arn:x" else {}

    with pytest.raises(ValueError, match="x was not created: Packages: no such layer"):
        Account(Deleted(), "us-west-2", "1").deploy_stack("x", "snake", {})


def test_an_account_needs_a_region() -> None:
    class Session:
        region_name = None

    with pytest.raises(ValueError, match="set AWS_DEFAULT_REGION"):
        Account.from_session(Session())


def test_a_damaged_bundle_is_not_published(
    account: SimulatedAccount, make: Any, tmp_path: Path
) -> None:
    (tmp_path / "half.zip").write_bytes(make("up").read_bytes()[:200])
    with pytest.raises(ValueError, match="damaged"):
        publish(tmp_path / "half.zip", session=account.session)


def test_the_layer_has_our_packages_and_is_the_same_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Skip the download of third-party packages."""
    monkeypatch.setattr(layer, "_install_packages", lambda folder: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    sizes = [layer.build_layer(tmp_path / name) for name in ("one.zip", "two.zip")]
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        names = set(archive.namelist())
        assert sum(info.file_size for info in archive.infolist()) == sizes[0]
    assert "python/battlesnake_server/live/lambda_handler.py" in names
    assert "python/battlesnake_heuristics/search/evaluations/champion.evaluation" in names
    assert sum(name.endswith(".so") for name in names) == 2
    assert ("python3.13" in capsys.readouterr().err) == (sys.version_info[:2] != (3, 13))


ELF = b"\x7fELF\x02" + bytes(13) + b"\x3e\x00"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\xcf\xfa\xed\xfe" + bytes(40), "x86-64"),
        (ELF[:18] + b"\xb7\x00", "x86-64"),
        (ELF + b"GLIBC_2.17 GLIBC_2.38", r"2.38.* 2.34"),
    ],
)
def test_what_would_not_start_on_lambda_is_refused(data: bytes, message: str) -> None:
    layer._check_compiled(Path("_search.abi3.so"), ELF + b"GLIBC_2.17 GLIBC_2.34")
    with pytest.raises(ValueError, match=message):
        layer._check_compiled(Path("_search.abi3.so"), data)


def test_a_layer_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layer, "_install_packages", lambda folder: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(layer, "_MAX_UNPACKED_BYTES", 1 << 20)
    with pytest.raises(ValueError, match="1 MB"):
        layer.build_layer(tmp_path / "layer.zip")
    assert list(tmp_path.iterdir()) == []


IMPORTED = """
import json, os, sys
os.environ["BATTLESNAKE_POLICY"] = "shipped"
import battlesnake_server.live.lambda_handler
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def test_the_layer_has_what_serving_imports(tmp_path: Path) -> None:
    told = run(sys.executable, "-P", "-c", IMPORTED, cwd=tmp_path, check=True).stdout
    # Several packages share the namespace `google`; serving imports protobuf's part alone.
    packages = {**importlib.metadata.packages_distributions(), "google": ["protobuf"]}
    imported = {
        re.sub("[-_.]+", "-", name).lower()
        for module in json.loads(told)
        for name in packages.get(module, [])
    }
    text = (ROOT / "deployment/server/requirements-lambda.txt").read_text()
    listed = set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE))
    # setuptools imports itself at the start of every Python that has it.
    assert imported - {"battlesnake-gym", "importedpackage", "setuptools"} <= listed
    assert {"flask", "onnxruntime", "numpy"} <= imported
