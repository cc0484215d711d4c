#!/usr/bin/env bash
# What a GPU brings, in one JSON file: private steps and their memory, the recipe, releases, predictions.
#
#     PYTHON=.venv/bin/python bash benchmarks/gpu.sh gpu.json         # about half an hour on one GPU
#     LSPET=/data/lspet bash benchmarks/gpu.sh gpu.json               # with the recipe on real people, too
#
# Each part is a command, its seconds, its exit code and what it printed; a part that fails stops no other. Run again with
# the same file it goes on with what is missing. Releases and predictions run on the processor, for comparison of machines.
set -uo pipefail
cd "$(dirname "$0")/.."
OUT=${1:?usage: gpu.sh FILE.json}
PYTHON=${PYTHON:-python}
WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT

part() { # NAME COMMAND...: run it and note it, unless it was noted before
  local name=$1
  shift
  "$PYTHON" - "$OUT" "$name" "$@" << 'PY'
import json, os, platform, subprocess, sys, time
from pathlib import Path

out, name, *command = sys.argv[1:]
path = Path(out)
found = json.loads(path.read_text()) if path.exists() else {}
if found.get("parts", {}).get(name, {}).get("code") == 0:
    print(f"{name}: measured before")
    sys.exit()
import torch

device = torch.cuda.get_device_name() if torch.cuda.is_available() else f"none; {platform.processor() or platform.machine()}"
print(f"{name}: {' '.join(command)}", flush=True)
began = time.perf_counter()
done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
seconds = time.perf_counter() - began
revision = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
found.update(device=device, torch=torch.__version__, python=platform.python_version(), revision=revision)
found.setdefault("parts", {})[name] = {
    "command": " ".join(command), "seconds": round(seconds, 1), "code": done.returncode, "printed": done.stdout[-20000:]
}
temporary = path.with_suffix(".part")
temporary.write_text(json.dumps(found, indent=1) + "\n")
os.replace(temporary, path)
print(done.stdout[-1500:], f"\n{name}: {seconds:.0f} s, exit code {done.returncode}", flush=True)
PY
}

DPOSE=("$PYTHON" -m dpose)
DEVICE=$("$PYTHON" -c 'import torch; print("cuda" if torch.cuda.is_available() else "cpu")')
for backbone in nano 5m lite0; do
  part "step, $backbone" "$PYTHON" benchmarks/private_step.py --device "$DEVICE" --backbone "$backbone" --batch "${BATCH:-64}" \
    --strategy light finetune full --views 1 --no-opacus
done
part "recipe, ward, epsilon 0.8" "${DPOSE[@]}" train --data synthetic:ward --recipe recommended --epsilon 0.8 --delta 1e-5 --out "$WORK/ward"
part "recipe, ward, scores" "${DPOSE[@]}" evaluate "$WORK/ward" --data synthetic:ward:test
if [[ -n ${LSPET:-} ]]; then
  for epsilon in 0.8 8; do
    part "recipe, LSPET, epsilon $epsilon" "${DPOSE[@]}" train --data "lspet:$LSPET:private" --backbone lite0 --recipe recommended \
      --epsilon "$epsilon" --delta 1e-5 --out "$WORK/lspet-$epsilon"
    part "recipe, LSPET, epsilon $epsilon, scores" "${DPOSE[@]}" evaluate "$WORK/lspet-$epsilon" --data "lspet:$LSPET:validation"
  done
fi
part "pixelization" "$PYTHON" benchmarks/pixelize.py
part "films" "$PYTHON" benchmarks/video_release.py --no-dense
part "prediction, nano" "$PYTHON" benchmarks/predict.py
part "prediction, 5m" "$PYTHON" benchmarks/predict.py --preset 5m
echo "$OUT"
