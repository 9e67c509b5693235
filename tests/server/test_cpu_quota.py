"""CPU quotas of control groups and AWS Lambda, in their file formats."""

from pathlib import Path

import pytest

from battlesnake_server.live.cpu_quota import available_cores

BOUND = available_cores(Path("/nowhere"), Path("/nowhere"), {})


def given(tmp_path: Path, own: str, files: dict[str, str]) -> float:
    """Return the cores for these contents of /proc/self/cgroup and of the cgroup file systems."""
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return available_cores(tmp_path, tmp_path / "own", {})


@pytest.mark.parametrize(
    ("quota", "share"),
    [
        ("max 100000", None),
        ("50000 100000", 0.5),
        ("2900 20000", 0.145),
        ("100000000 100000", None),
    ],
)
@pytest.mark.parametrize(
    ("own", "group"),
    [
        ("0::/\n", ""),  # In a container.
        ("0::/system.slice/battlesnake.service\n", "system.slice/battlesnake.service/"),
        ("0::/system.slice/battlesnake.service\n", "system.slice/"),
    ],
)
def test_a_quota_of_version_2(
    tmp_path: Path, own: str, group: str, quota: str, share: float | None
) -> None:
    found = given(tmp_path, own, {f"{group}cpu.max": quota + "\n"})
    assert found == (BOUND if share is None else share)


@pytest.mark.parametrize(("quota", "share"), [("-1", None), ("58000", 0.58)])
@pytest.mark.parametrize("group", ["", "docker/1a2b/"])
def test_a_quota_of_version_1(tmp_path: Path, group: str, quota: str, share: float | None) -> None:
    files = {"cpu.cfs_quota_us": quota, "cpu.cfs_period_us": "100000"}
    own = "3:cpuset:/docker/1a2b\n1:cpu,cpuacct:/docker/1a2b\n"
    found = given(tmp_path, own, {f"cpu/{group}{name}": text for name, text in files.items()})
    assert found == (BOUND if share is None else share)


@pytest.mark.parametrize(("memory", "share"), [("512", 512 / 1769), ("1000000", None), ("x", None)])
def test_a_function_has_the_share_of_its_memory(memory: str, share: float | None) -> None:
    environment = {"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": memory}
    found = available_cores(Path("/nowhere"), Path("/nowhere"), environment)
    assert found == (BOUND if share is None else share)


def test_there_is_a_core_for_each_that_is_seen() -> None:
    assert BOUND >= 1
    assert BOUND.is_integer()
