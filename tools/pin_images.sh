#!/usr/bin/env bash
# Pins the packages and base images of the images in deployment/.
#
#   tools/pin_images.sh packages   write the packages with their hashes: deployment/*/requirements*.txt
#   tools/pin_images.sh base       write the digest of the base image into the Dockerfiles (needs docker)
#   tools/pin_images.sh check      reject Dockerfiles whose base image has no digest or another digest
#
# uv (pip install uv) resolves the packages of constraints.txt from the package index of pip.
set -euo pipefail
cd "$(dirname "$0")/.."
constraints=constraints.txt
dockerfiles=(deployment/server/Dockerfile deployment/training/Dockerfile)

compile() {  # TARGET UV_ARGUMENT...: the packages, with the hashes of all their files
    local target=$1
    shift
    {
        echo "# Written by tools/pin_images.sh packages; installed with pip's --require-hashes."
        uv pip compile "$@" --constraints "$constraints" --universal --python-version 3.11 \
            --generate-hashes --no-header --no-annotate --no-emit-index-url --quiet
    } > "$target.new"
    mv "$target.new" "$target"
}

case ${1:-} in
packages)
    UV_DEFAULT_INDEX=${UV_DEFAULT_INDEX:-$(python3 -m pip config get global.index-url 2> /dev/null || true)}
    if [ -n "$UV_DEFAULT_INDEX" ]; then export UV_DEFAULT_INDEX; else unset UV_DEFAULT_INDEX; fi
    build=$(mktemp --suffix .in)
    trap 'rm -f "$build"' EXIT
    echo setuptools > "$build"
    compile deployment/server/requirements.txt pyproject.toml "$build" --extra server
    printf '%s\n' apig-wsgi flask gymnasium numpy onnxruntime prometheus-client > "$build"
    compile deployment/server/requirements-lambda.txt "$build"  # what serving imports: server/battlesnake_server/aws
    printf 'setuptools\nsagemaker-training\n' > "$build"
    compile deployment/training/requirements.txt pyproject.toml rllib_src/requirements.txt "$build" \
        --extra rllib --extra procgen
    # The last torch built with CUDA 12 supports hosts with NVIDIA drivers since 525.
    older=$(mktemp) constraints=$(mktemp)
    trap 'rm -f "$build" "$older" "$constraints"' EXIT
    echo torch==2.10.0 > "$older"
    grep -v '^torch==' constraints.txt > "$constraints"
    compile deployment/training/requirements-cuda12.txt pyproject.toml rllib_src/requirements.txt "$build" \
        --extra rllib --extra procgen --override "$older"
    constraints=constraints.txt
    sed -n 's/^ray==/ray[default]==/p' constraints.txt > "$build"
    compile deployment/ray/requirements.txt "$build"
    ;;
base)
    for file in "${dockerfiles[@]}"; do
        image=$(sed -n 's/^ARG PYTHON_IMAGE=\([^@]*\).*/\1/p' "$file")
        digest=$(docker buildx imagetools inspect "$image" --format '{{.Manifest.Digest}}')
        [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || { echo "no digest of $image: $digest" >&2; exit 1; }
        sed -i "s|^ARG PYTHON_IMAGE=.*|ARG PYTHON_IMAGE=$image@$digest|" "$file"
        echo "$file: $image@$digest"
    done
    ;;
check)
    status=0
    for file in "${dockerfiles[@]}"; do
        if ! grep -Eq '^ARG PYTHON_IMAGE=[^@]+@sha256:[0-9a-f]{64}$' "$file"; then
            echo "$file: PYTHON_IMAGE has no digest; write it by tools/pin_images.sh base" >&2
            status=1
        fi
    done
    if [ "$(sed -n 's/^ARG PYTHON_IMAGE=//p' "${dockerfiles[@]}" | sort -u | wc -l)" != 1 ]; then
        echo "${dockerfiles[*]}: PYTHON_IMAGE differs; write both by tools/pin_images.sh base" >&2
        status=1
    fi
    exit $status
    ;;
*)
    sed -n '2,8s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
