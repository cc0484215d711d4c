"""The list of what is installed: no answer is not the answer "no fault"."""

import json

import pytest

import sbom

GOOD = {"name": "numpy", "version": "2", "vulns": []}
BAD = {"name": "scipy", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]}
SKIPPED = {"name": "torch", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("answers", "code", "said"),
    [
        ([GOOD, {**BAD, "vulns": []}], 0, "No known fault in 2"),
        ([GOOD, BAD], 1, "scipy 1: PYSEC-1, mended in 2"),
        ([GOOD, SKIPPED], 2, "NOT CHECKED for known faults: 1 of 2"),
        ([], 2, "2 of 2"),
        ([BAD, SKIPPED], 1, "1 of 2"),
        ([GOOD, {"name": "dpose", "version": "1", "vulns": []}], 2, "1 of 2"),
    ],
)
def test_what_could_not_be_asked_about_is_no_pass(answers, code, said):
    lines, found = sbom.verdict({"dependencies": answers}, 2)
    assert found == code
    assert said in "\n".join(lines)


@pytest.mark.slow
def test_the_list_names_what_is_installed_and_no_folder_of_this_machine(tmp_path, monkeypatch):
    pytest.importorskip("cyclonedx_py")
    monkeypatch.setattr(sbom, "known_faults", lambda: {"dependencies": []})
    assert sbom.main(tmp_path / "sbom.json") == 2
    text = (tmp_path / "sbom.json").read_text()
    assert {"numpy", "torch"} <= {c["name"] for c in json.loads(text)["components"]}
    assert "file:" not in text
    assert str(sbom.ROOT) not in text
