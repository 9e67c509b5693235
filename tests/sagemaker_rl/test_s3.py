"""Addresses in S3, taken apart."""

import re

import pytest

from sagemaker_rl.launch.s3 import bucket_and_key


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
    assert bucket_and_key(address) == parts


@pytest.mark.parametrize("address", ["", "runs/a", "s3:/runs/a", "s3:///a", "file:///runs/a"])
def test_anything_else_is_refused_by_its_name(address: str) -> None:
    message = f"{address!r} is not an address in S3; give s3://BUCKET/FOLDER"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        bucket_and_key(address)
