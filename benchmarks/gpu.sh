#!/usr/bin/env bash
# What a GPU brings, in one JSON file, within eight minutes, start included; nothing else may run on it.
#
#     PYTHON=.venv/bin/python bash benchmarks/gpu.sh gpu.json
#
# Run again with the same file it goes on with what is missing. The tables of docs/performance.md are made of the file.
set -euo pipefail
cd "$(dirname "$0")/.."
OUT=${1:?usage: gpu.sh FILE.json}
PYTHON=${PYTHON:-python}
"$PYTHON" benchmarks/gpu.py measure "$OUT" "${@:2}"
"$PYTHON" benchmarks/gpu.py page "$OUT"
