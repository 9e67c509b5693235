#!/bin/sh
# Plays a million random turns on the C code built with AddressSanitizer and UBSan (gcc); stops at
# the first finding. TURNS and SEED change what is played.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

# Beside the build stand its sources: the package takes no engine that was built from others.
cp -r battlesnake_gym/csrc "$build"
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
gcc -std=c11 -g -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
    -fno-sanitize-recover=all -DPy_LIMITED_API=0x030B0000 -I"$include" -shared -fPIC \
    "$build"/csrc/*.c -o "$build/_engine.abi3.so"

# Python itself leaks by design, hence no leak check. PYTHONMALLOC: every array of numpy and every
# object is then a block of its own that AddressSanitizer watches.
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" \
    ASAN_OPTIONS=detect_leaks=0:abort_on_error=0 UBSAN_OPTIONS=print_stacktrace=1 \
    PYTHONMALLOC=malloc \
    "$python" tools/random_turns.py --engine "$build/_engine.abi3.so" \
    --turns "${TURNS:-1000000}" --seed "${SEED:-1}"
