"""List what this environment holds, in CycloneDX, and ask which of it has known faults.

    make sbom                               # or: .venv/bin/python tools/sbom.py build/sbom.json

The list is made without a network. For known faults pip-audit asks PyPI's advisories about each package, and says
nothing of those that it got no answer for; here they are counted. Exit code 0: all were asked about and none is known
to be faulty; 1: one is; 2: some could not be asked about.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpose.files import write_atomic

ROOT = Path(__file__).resolve().parents[1]
PATIENCE_S = 600
OWN = "dpose"


def bill_of_materials() -> dict[str, Any]:
    """What is installed beside this interpreter, without paths of this machine."""
    command = [sys.executable, "-P", "-m", "cyclonedx_py", "environment", "--pyproject", str(ROOT / "pyproject.toml")]
    command += ["--output-reproducible", "--output-file", "-", sys.executable]
    bom = subprocess.run(command, capture_output=True, check=True, text=True)
    found: dict[str, Any] = json.loads(bom.stdout)
    for component in [found["metadata"]["component"], *found["components"]]:
        references = component.pop("externalReferences", [])
        if kept := [one for one in references if not one["url"].startswith("file:")]:
            component["externalReferences"] = kept
    return found


def known_faults() -> dict[str, Any]:
    """What pip-audit answers; no dependencies where it cannot ask at all."""
    command = [sys.executable, "-P", "-m", "pip_audit", "--local", "--skip-editable"]
    command += ["--format", "json", "--progress-spinner", "off"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        answer: dict[str, Any] = json.loads(asked.stdout)
    except (ValueError, subprocess.TimeoutExpired):
        return {"dependencies": []}
    return answer


def verdict(answer: Mapping[str, Any], installed: int) -> tuple[list[str], int]:
    """Lines to print, and the exit code.

    Args:
        answer: As pip-audit gives it.
        installed: How many packages there are, this one left out.
    """
    asked = [one for one in answer["dependencies"] if "skip_reason" not in one and one["name"] != OWN]
    faulty = [one for one in asked if one["vulns"]]
    lines = [
        f"{one['name']} {one['version']}: {fault['id']}, mended in {', '.join(fault['fix_versions']) or 'none'}"
        for one in faulty
        for fault in one["vulns"]
    ]
    if missing := installed - len(asked):
        lines.append(f"NOT CHECKED for known faults: {missing} of {installed} packages (no answer: no network?)")
    elif not faulty:
        lines.append(f"No known fault in {installed} packages")
    return lines, 1 if faulty else 2 if missing else 0


def main(out: Path) -> int:
    """Write the list to `out`, print what is known to be faulty, return the exit code."""
    bom = bill_of_materials()
    write_atomic(out, json.dumps(bom, indent=1) + "\n")
    names = {component["name"] for component in bom["components"]} - {OWN}
    print(f"{out}: {len(names)} packages (CycloneDX {bom['specVersion']})")
    lines, code = verdict(known_faults(), len(names))
    print("\n".join(lines))
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "sbom.json"))
