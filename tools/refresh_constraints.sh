#!/usr/bin/env bash
# Rewrites constraints.txt with the packages installed in the project's virtual environment.
set -euo pipefail
cd "$(dirname "$0")/.."
{
    sed -n '/^#/p' constraints.txt
    .venv/bin/pip freeze --exclude battlesnake-gym 2>/dev/null | sed -E 's/(==[^ +]+)\+.*/\1/' | grep == | sort -f
} > constraints.txt.new
mv constraints.txt.new constraints.txt
