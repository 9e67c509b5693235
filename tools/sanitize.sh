#!/bin/sh
# Plays a million random turns and searches 5,000 random boards with the C code built with
# AddressSanitizer and UBSan (gcc). The script stops at the first error. The variables TURNS, REQUESTS
# and SEED change the defaults.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')

compile() { # compile SOURCES TARGET
    gcc -std=gnu11 -g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
        -fno-sanitize-recover=all -DPy_LIMITED_API=0x030B0000 -I"$include" -Ibattlesnake_gym/engine/csrc -shared -fPIC \
        "$1"/*.c -o "$2"
}

# Leak checks are off, because Python leaks by design. With PYTHONMALLOC, every array and object has a
# separate memory block, which AddressSanitizer checks.
watched() {
    LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
        ASAN_OPTIONS=detect_leaks=0:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1 \
        PYTHONMALLOC=malloc PYTHONPATH=.:heuristics "$python" "$@"
}

compile battlesnake_gym/engine/csrc "$build/_engine.abi3.so"
compile heuristics/battlesnake_heuristics/search/csrc "$build/_search.abi3.so"
FUZZ_BUILD=$build watched tools/fuzz_boundary.py \
    --turns "${TURNS:-1000000}" --requests "${REQUESTS:-5000}" --seed "${SEED:-1}"
