"""Addresses in S3."""

from __future__ import annotations


def bucket_and_key(address: str) -> tuple[str, str]:
    """The two parts of ``s3://BUCKET/KEY``; the key without slashes at its end, "" for none.

    Raises:
        ValueError: it is no such address.
    """
    scheme, _, place = address.partition("://")
    bucket, _, key = place.partition("/")
    if scheme != "s3" or not bucket:
        raise ValueError(f"{address!r} is not an address in S3; give s3://BUCKET/FOLDER")
    return bucket, key.rstrip("/")
