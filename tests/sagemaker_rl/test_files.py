"""Content of a job's archive, packed by the SageMaker SDK, and S3 URIs."""

import io
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from battlesnake_gym.engine import engine
from sagemaker_rl.job.source_files import (
    PROJECT_DEPENDENCIES,
    copy_sources,
    download_artifacts,
    find_compiled_files,
    merge_source_dir,
    split_s3_uri,
    training_image_uri,
)
from tests.processes import run

ROOT = Path(__file__).parents[2]
SOURCE_DIR = "rllib_src"


def members(packed: bytes) -> set[str]:
    """Return the files in an archive."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        return {member.name for member in archive if member.isfile()}


def tracked() -> set[str]:
    """Return the files of a job in git by their names in the archive."""
    names = set()
    for folder in (SOURCE_DIR, *PROJECT_DEPENDENCIES):
        base = ROOT / folder if folder == SOURCE_DIR else (ROOT / folder).parent
        listed = run("git", "ls-files", "-z", folder, cwd=ROOT, check=True)
        names |= {str((ROOT / one).relative_to(base)) for one in listed.stdout.split("\0") if one}
    return names


@pytest.fixture
def packed_by_the_sdk(estimator: Callable[..., Any], session: Any) -> Callable[..., set[str]]:
    """Return a function that uploads folders with an estimator, and returns the files in S3."""
    pytest.importorskip("sagemaker", reason="needs the extras sagemaker and sagemaker-simulator")

    def packed(**sources: Any) -> set[str]:
        one = estimator("", "", entry_point="train-mabs.py", **sources)
        one._prepare_for_training("packed")
        bucket, key = split_s3_uri(one.uploaded_code.s3_prefix)
        body = session.boto_session.client("s3").get_object(Bucket=bucket, Key=key)["Body"]
        return members(body.read())

    return packed


def test_the_sdk_packs_no_compiled_files_of_this_machine(
    packed_by_the_sdk: Callable[..., set[str]],
) -> None:
    assert engine.COMPILED, "or this would show nothing"
    folders: dict[str, Any] = {
        "source_dir": str(ROOT / SOURCE_DIR),
        "dependencies": [str(ROOT / folder) for folder in PROJECT_DEPENDENCIES],
    }
    assert {Path(name).suffix for name in packed_by_the_sdk(**folders)} & {".so", ".pyd"}
    arrived = packed_by_the_sdk(**copy_sources(**folders))
    assert not [name for name in arrived if re.search(r"__pycache__|\.(so|pyd|pyc)$", name)]
    assert tracked() <= arrived, "nothing else is missing"


def test_nothing_compiled_is_left_by_the_questions_before(
    estimator: Callable[..., Any], tmp_path: Path
) -> None:
    """``preflight`` runs the script in the copies."""
    from sagemaker_rl.job import preflight

    estimator("import helping\n", "WORD = 1\n")  # creates the folders
    sources = copy_sources(source_dir=tmp_path / "source", dependencies=[tmp_path / "helping"])
    list(preflight._check_with_script(estimator("", "", **sources), {}))
    assert sorted(path.name for path in Path(sources["source_dir"]).parent.rglob("*")) == [
        "source",
        "train.py",
    ]
    assert [path.name for path in Path(sources["dependencies"][0]).iterdir()] == ["__init__.py"]


def test_a_copy_is_what_was_there_and_leaves_the_original_alone(tmp_path: Path) -> None:
    compiled = ("lib/b.abi3.so", "lib/c.cp311-win_amd64.pyd")
    for name in ("src/train.py", "lib/a.py", "lib/__pycache__/a.cpython-311.pyc", *compiled):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "lib" / "dangling").symlink_to("nowhere")
    # With the slash, the SDK would pack the files without the folder.
    sources = copy_sources(source_dir=tmp_path / "src", dependencies=[f"{tmp_path}/lib/"])
    (tmp_path / "lib" / "a.py").write_text("changed")
    (copy,) = map(Path, sources["dependencies"])
    assert copy.name == "lib"
    assert {path.name: path.read_text() for path in copy.iterdir()} == {"a.py": "lib/a.py"}
    assert {f"lib/{path.name}" for path in find_compiled_files(tmp_path / "lib")} == set(compiled)
    assert not list(find_compiled_files(copy))


def test_folders_that_are_none_or_overwrite_each_other_are_refused(tmp_path: Path) -> None:
    for name in ("src", "a/lib", "b/lib"):
        (tmp_path / name).mkdir(parents=True)
    with pytest.raises(ValueError, match="nowhere"):
        copy_sources(source_dir=tmp_path / "src", dependencies=["nowhere"])
    with pytest.raises(ValueError, match=r"\blib\b"):
        copy_sources(
            source_dir=tmp_path / "src", dependencies=[tmp_path / "a/lib", tmp_path / "b/lib"]
        )


def test_one_folder_holds_what_a_tarball_would() -> None:
    folders = [ROOT / name for name in PROJECT_DEPENDENCIES]
    folder = Path(merge_source_dir(source_dir=ROOT / SOURCE_DIR, dependencies=folders))
    there = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    prefix = f"{SOURCE_DIR}/"
    assert {name.removeprefix(prefix) for name in tracked()} <= there
    assert not list(find_compiled_files(folder))


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("s3://runs/a/model.tar.gz", ("runs", "a/model.tar.gz")),
        ("s3://runs/a/b/", ("runs", "a/b")),
        ("s3://runs/", ("runs", "")),
        ("s3://runs", ("runs", "")),
    ],
)
def test_an_address_has_a_bucket_and_a_key(address: str, parts: tuple[str, str]) -> None:
    assert split_s3_uri(address) == parts


def test_a_download_that_ends_early_leaves_no_curves(tmp_path: Path) -> None:
    def download(folder: str, bucket: str, key: str) -> list[str]:
        if tmp_path.joinpath("run").exists():
            raise ConnectionError
        with tarfile.open(packed := f"{folder}/one.tar.gz", "w:gz") as archive:
            archive.addfile(tarfile.TarInfo("one"))
        return [packed]

    session = SimpleNamespace(download_data=download)
    job = SimpleNamespace(model_data="s3://runs/a/model.tar.gz", sagemaker_session=session)
    with pytest.raises(ConnectionError):
        download_artifacts(job, tmp_path / "run")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["model"]


@pytest.mark.parametrize(("region", "end"), [("cn-north-1", ".com.cn"), ("us-gov-west-1", ".com")])
def test_the_image_is_in_the_partition_of_the_region(region: str, end: str) -> None:
    session = SimpleNamespace(account_id=lambda: "1", boto_region_name=region)
    assert f"1.dkr.ecr.{region}.amazonaws{end}/" in training_image_uri(session)


@pytest.mark.parametrize("address", ["", "runs/a", "s3:/runs/a", "s3:///a", "file:///runs/a"])
def test_anything_else_is_refused_by_its_name(address: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(repr(address))} .*s3://BUCKET/FOLDER$"):
        split_s3_uri(address)
