#!/bin/sh
# Fuzzes the compiled modules through Python. libFuzzer (clang) supplies the requests. AddressSanitizer
# and UBSan detect errors. The variable MINUTES sets the duration. tools/boundary_corpus.zip stores the inputs that
# reach a new branch.
set -eu
cd "$(dirname "$0")/.."
python=${PYTHON:-$PWD/.venv/bin/python}
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
config() { "$python" -c "import sysconfig; print(sysconfig.get_config_var('$1'))"; }
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
watched="-g -O1 -fno-omit-frame-pointer -fno-sanitize-recover=all -I$include"

compile() { # compile SOURCES TARGET
    clang -std=gnu11 $watched -fsanitize=fuzzer-no-link,address,undefined -w \
        -DPy_LIMITED_API=0x030B0000 -Ibattlesnake_gym/engine/csrc -shared -fPIC "$1"/*.c -o "$2"
}
compile battlesnake_gym/engine/csrc "$build/_engine.abi3.so"
compile heuristics/battlesnake_heuristics/search/csrc "$build/_search.abi3.so"
clang $watched -fsanitize=fuzzer,address,undefined -rdynamic tools/fuzz_boundary.c -o "$build/fuzz" \
    -L"$(config LIBDIR)" -lpython"$(config py_version_short)" -Wl,-rpath,"$(config LIBDIR)"
mkdir "$build/corpus" "$build/small"
[ ! -e tools/boundary_corpus.zip ] || unzip -q tools/boundary_corpus.zip -d "$build/corpus"

fuzz() {
    FUZZ_PYTHON=$python FUZZ_BUILD=$build ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=16 PYTHONMALLOC=malloc \
        PYTHONPATH=tools:.:heuristics "$build/fuzz" -max_len=512 -len_control=0 "$@"
}
fuzz -max_total_time=$((60 * ${MINUTES:-10})) -print_final_stats=1 -timeout=60 "$build/corpus"
fuzz -merge=1 "$build/small" "$build/corpus"
rm -f tools/boundary_corpus.zip
(cd "$build/small" && zip -q -X -9 - *) > tools/boundary_corpus.zip
