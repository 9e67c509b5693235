"""Data channels: read, unpacked, or refused."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from sagemaker_rl.launch import channels
from sagemaker_rl.launch.hyperparameters import HyperparameterError


def environment(path: Path) -> dict[str, str]:
    return {"SM_CHANNELS": '["policy"]', "SM_CHANNEL_POLICY": str(path)}


def test_what_nobody_reads_is_refused() -> None:
    given = {"SM_CHANNELS": json.dumps(["policy", "training"])}
    channels.check(("policy", "training"), given)
    channels.check((), {})
    channels.check((), {"SM_CHANNELS": "[]"})
    with pytest.raises(HyperparameterError, match=r"'training'; it reads policy, opponents: "):
        channels.check(("policy", "opponents"), given)
    with pytest.raises(HyperparameterError, match="'policy'; it reads none: "):
        channels.check((), given)


def test_what_is_packed_is_unpacked_beside_itself(tmp_path: Path) -> None:
    assert channels.folder("policy", {"SM_CHANNELS": '["policy"]'}) is None  # a preflight
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("./checkpoint/facts.json")
        info.size = 2
        archive.addfile(info, io.BytesIO(b"{}"))
    for _ in range(2):  # the first attempt may have been interrupted
        folder = channels.folder("policy", environment(tmp_path))
        assert folder is not None
        assert (folder / "model" / "checkpoint" / "facts.json").read_text() == "{}"


def test_what_is_empty_or_damaged_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HyperparameterError, match="'policy' is empty; look at its address"):
        channels.folder("policy", environment(tmp_path))
    (tmp_path / "model.tar.gz").write_bytes(b"nothing packed")
    with pytest.raises(HyperparameterError, match=r"cannot unpack model\.tar\.gz"):
        channels.folder("policy", environment(tmp_path))


def test_nothing_is_unpacked_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with tarfile.open(tmp_path / "data" / "model.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("../../outside"))
    with pytest.raises(HyperparameterError, match="outside"):
        channels.folder("policy", environment(tmp_path / "data"))
    assert not list(tmp_path.rglob("outside"))
