#!/usr/bin/env bash
# Builds the training image without an image registry, and runs the image as SageMaker does:
# make image-check.
#
# The base image is not available without a registry. Packages of the same Debian release (bookworm,
# which also has Python 3.11) replace the base image. All other steps are those of
# deployment/training/Dockerfile.
# Requires root, 30 GB, and: apt-get install buildah mmdebstrap debian-archive-keyring runc iproute2
set -euo pipefail
cd "$(dirname "$0")/.."
base=localhost/python:3.11-slim-bookworm
image=localhost/battlesnake-training
pip_cert=${PIP_CERT:-/etc/ssl/certs/ca-certificates.crt}  # CA certificates of the local network, for the steps with downloads

if ! buildah inspect --type image "$base" > /dev/null 2>&1; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mmdebstrap --quiet --variant=minbase --include=ca-certificates,python3-dev,python3.11-venv,python-is-python3 \
        bookworm "$work/base.tar"
    container=$(buildah from scratch)
    buildah add --quiet "$container" "$work/base.tar" /
    buildah config --env PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$container"
    buildah commit --quiet --rm "$container" "$base"
fi
began=$SECONDS
buildah build --quiet --layers --isolation chroot --network host --pull-never \
    --volume "$pip_cert:/etc/ssl/certs/ca-certificates.crt:ro" \
    --env PIP_CERT=/etc/ssl/certs/ca-certificates.crt \
    --build-arg "PYTHON_IMAGE=$base" -f deployment/training/Dockerfile -t "$image" . > /dev/null
echo "built in $((SECONDS - began)) s"
container=$(buildah from --pull-never "$image")
trap 'buildah rm "$container" > /dev/null; rm -rf "${work:-}"' EXIT
root=$(buildah mount "$container")
echo "the image has $(du -sm "$root" | cut -f1) MB, of which packages $(du -sm "$root/training" | cut -f1)," \
    "torch's CUDA $(du -sm "$root"/training/lib/python3.11/site-packages/nvidia | cut -f1)"
IMAGE_ROOT=$root "${PYTHON:-python}" -m pytest -n 0 -q --durations=5 tests/deployment/test_image.py
